"""Bands on a Slurm in memory: overflow, steering without a helper, undo, reclaims in the history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.plan import SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor
from policies.quota.layout import HIGHEST_BORROW_PRIORITY
from policies.records import AccountName, AgentName, JobId, JobState
from slurm_plugin.client.qos import NO_LISTS
from slurm_plugin.errors import SlurmAuthError
from slurm_plugin.qos_helper.request import Verdict
from slurm_plugin.rebalancer.daemon import Daemon, Signals
from slurm_plugin.rebalancer.enact import _chunks
from slurm_plugin.rebalancer.outcomes import EnactOutcome
from slurm_plugin.rebalancer.pauses import HELPER_REST_S
from slurm_plugin.rebalancer.preempt_lists import restore_lists
from slurm_plugin.rebalancer.reset import reset_effects
from tests.slurm_plugin.rebalancer.band_world import FULL_RISK, REC, RISK, BandWorld
from tests.slurm_plugin.rebalancer.world import make_job

if TYPE_CHECKING:
    from pathlib import Path

    from policies.records import JobRecord
    from slurm_plugin.rebalancer.cycle import CycleResult
    from slurm_plugin.rebalancer.reset import ResetReport


def gpus(number: int, account: str, n_gpus: int, **changes: object) -> JobRecord:
    tres = (("cpu", n_gpus), ("gres/gpu", n_gpus), ("mem", 1024))
    return make_job(number, account, tres=tres, qos=f"fg_fake_{account}", **changes)


def busy(path: Path) -> BandWorld:
    """Rec holds its 6 GPUs and has 7 one-GPU jobs waiting; risk is idle."""
    jobs = [gpus(1, "rec", 4), gpus(2, "rec", 2)]
    waiting = [gpus(number, "rec", 1, reason="QOSGrpGRES") for number in range(3, 10)]
    world = BandWorld(path, *jobs, *waiting)
    world.slurm.start_job(JobId("1"), nodes="node01")
    world.slurm.start_job(JobId("2"), nodes="node02")
    return world


def outcomes(result: CycleResult, kind: type) -> set[EnactOutcome]:
    return {one.outcome for one in result.enacted.enacted if isinstance(one.decision, kind)}


def reset(world: BandWorld) -> ResetReport:
    world.advance(1.0)
    return reset_effects(world.site, world.slurm, helper=world.helper, history=world.rebalancer.history)


def test_jobs_beyond_the_quota_go_to_the_cap_and_then_to_the_opportunistic_band(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    bands = [world.qos_of(number) for number in range(3, 10)]
    assert bands.count(f"{REC}_borrow") == 1  # 20 % of 6, rounded down
    assert bands.count(f"{REC}_opp") == 6
    world.cycle()
    assert len(world.slurm.moved) == 7


def test_without_bands_in_the_site_file_no_qos_is_read_or_written(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.rebalancer.site = replace(world.site, policy=replace(world.site.policy, bands=None))
    result = world.cycle()
    assert result.observation.qos == ()
    assert world.slurm.moved == ()
    assert not world.helper.asked


def test_qoses_that_we_may_not_see_cost_the_bands_and_not_the_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy(tmp_path)

    def refuse() -> None:
        raise SlurmAuthError("scontrol: Access/permission denied")

    monkeypatch.setattr(world.slurm, "fetch_qos", refuse)
    result = world.cycle()
    assert ("no QOSes: scontrol: Access/permission denied", 1) in result.observation.problems
    assert world.slurm.moved == ()
    assert world.factor(3)


def test_without_a_helper_ordering_and_overflow_go_on(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.helper.is_away = True
    result = world.cycle()
    assert outcomes(result, SetQos) == {EnactOutcome.WRITTEN}
    assert outcomes(result, SetPreemptList) == {EnactOutcome.UNHELPED}
    assert result.error is None
    assert world.factor(3)
    (row,) = world.rebalancer.history.query("SELECT count(*) AS n FROM band_decisions WHERE outcome = 'unhelped'")
    world.cycle()
    (again,) = world.rebalancer.history.query("SELECT count(*) AS n FROM band_decisions WHERE outcome = 'unhelped'")
    assert again == row


def test_a_list_that_the_helper_cannot_write_rests_a_minute(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.helper.failure = "Problem talking to the database"
    assert outcomes(world.cycle(), SetPreemptList) == {EnactOutcome.REJECTED}
    assert outcomes(world.cycle(), SetPreemptList) == {EnactOutcome.PAUSED}
    world.helper.failure = ""
    assert outcomes(world.cycle(60.0), SetPreemptList) == {EnactOutcome.WRITTEN}


def test_a_helper_that_keeps_us_waiting_is_asked_once_and_ordering_goes_on(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.helper.is_silent = True
    for _ in range(3):
        assert outcomes(world.cycle(), SetPreemptList) == {EnactOutcome.UNHELPED}
    assert world.helper.n_silences == 1
    assert world.factor(3)
    world.helper.is_silent = False
    assert outcomes(world.cycle(HELPER_REST_S), SetPreemptList) == {EnactOutcome.WRITTEN}


def test_a_slurmdbd_that_goes_away_between_two_changes_is_no_refusal(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.helper.failure, world.helper.verdict = "sacctmgr did not end within 10 s", Verdict.AWAY
    assert outcomes(world.cycle(), SetPreemptList) == {EnactOutcome.UNHELPED}
    n_asked = len(world.helper.asked)
    world.cycle()
    assert len(world.helper.asked) == n_asked
    world.helper.failure = ""
    assert outcomes(world.cycle(HELPER_REST_S), SetPreemptList) == {EnactOutcome.WRITTEN}


def test_while_slurmdbd_is_away_the_helper_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy(tmp_path)
    with monkeypatch.context() as patch:
        known = world.slurm.fetch_qos()[0]
        patch.setattr(world.slurm, "fetch_qos", lambda: (known, ((f"{NO_LISTS}: slurmdbd is away", 1),)))
        result = world.cycle()
    assert outcomes(result, SetPreemptList) == {EnactOutcome.UNHELPED}
    assert outcomes(result, SetQos) == {EnactOutcome.WRITTEN}
    assert not world.helper.asked
    assert outcomes(world.cycle(), SetPreemptList) == {EnactOutcome.WRITTEN}


def test_agents_at_or_below_nominal_leave_the_lists_and_come_back(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    assert world.slurm.qos(REC).preempt == ("fg_fake_rec_borrow", "fg_fake_rec_opp")
    assert world.slurm.qos(RISK).preempt == ()  # nobody is above nominal, and no job is in a loan of risk
    for number in range(3, 10):
        world.slurm.start_job(JobId(str(number)), nodes="node03")
    result = world.cycle()
    assert world.slurm.qos(RISK).preempt == ("fg_fake_rec_borrow", "fg_fake_rec_opp")
    assert outcomes(result, SetBorrowRank) == {EnactOutcome.WRITTEN}
    assert world.slurm.qos(f"{REC}_borrow").priority < world.slurm.qos(f"{RISK}_borrow").priority


def emptied_lists(world: BandWorld) -> None:
    """As if a rebalancer had left nobody's loans in any list, and the helper went away then."""
    for qos in (REC, f"{REC}_borrow"):
        world.slurm.set_qos(replace(world.slurm.qos(qos), preempt=()))


def test_no_job_borrows_before_its_own_agent_could_take_it_back(tmp_path: Path) -> None:
    world = busy(tmp_path)
    emptied_lists(world)
    world.helper.is_away = True
    result = world.cycle()
    assert outcomes(result, SetQos) == {EnactOutcome.UNHELPED}
    assert {world.qos_of(number) for number in range(3, 10)} == {REC}
    world.helper.is_away = False
    world.cycle()
    assert len(world.slurm.moved) == 7
    assert set(world.slurm.qos(REC).preempt) == {f"{REC}_borrow", f"{REC}_opp"}


def test_a_move_back_needs_no_list(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    emptied_lists(world)
    world.slurm.finish_job(JobId("2"))
    world.helper.is_away = True
    n_moved = len(world.slurm.moved)
    world.cycle()
    assert [qos for _, qos in world.slurm.moved[n_moved:]] == [REC, REC]


def test_lists_with_one_value_are_one_change_however_many() -> None:
    changes = [
        SetPreemptList(qos=f"q{n:03}", agent=AgentName("a"), old=("x",), new=("y",) if n < 250 else (), reason="")
        for n in range(300)
    ]
    assert [len(chunk) for chunk in _chunks(changes)] == [250, 50]


def test_equal_changes_are_asked_once(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    n_asked = len(world.helper.asked)
    world.cycle()
    assert len(world.helper.asked) == n_asked


def test_off_moves_waiting_jobs_back_and_restores_the_lists(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    world.slurm.start_job(JobId("3"), nodes="node02")
    ran_in = world.qos_of(3)
    report = reset(world)
    assert {qos for _, qos in report.moved} == {REC}
    assert [world.qos_of(number) for number in range(4, 10)] == [REC] * 6
    assert world.qos_of(3) == ran_in
    assert world.slurm.qos(RISK).preempt == FULL_RISK
    assert RISK in report.lists.restored
    assert reset(world).n_touched == 0


def test_a_job_of_the_sites_own_qos_gets_that_one_back(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.cycle()
    assert world.qos_of(1) == REC
    world.restart()
    world.cycle()
    reset(world)
    assert world.qos_of(1) == "normal"


def test_a_lost_journal_sends_jobs_to_the_guaranteed_band(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    world.rebalancer.history.close()
    for path in tmp_path.glob("history.db*"):
        path.unlink()
    world.restart()
    assert {qos for _, qos in reset(world).moved} == {REC}


def test_what_the_owner_changed_meanwhile_is_the_former_value(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.cycle()
    world.slurm.add_job(make_job(1, "rec", qos="special"))
    world.cycle()
    reset(world)
    assert world.qos_of(1) == "special"


def test_a_move_that_got_lost_is_made_again(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.slurm.lose_updates(1)
    world.cycle()
    assert world.qos_of(1) == "normal"
    world.cycle()
    assert world.qos_of(1) == REC


def test_a_way_back_that_got_lost_is_made_again(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.cycle()
    assert world.qos_of(1) == REC
    world.slurm.lose_updates(4)
    reset(world)
    assert world.qos_of(1) == REC
    world.slurm.lose_updates(0)
    assert reset(world).moved == (("1", "normal"),)
    assert reset(world).n_touched == 0


def test_off_is_not_done_before_the_lists_are_full(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    assert world.slurm.qos(RISK).preempt != FULL_RISK
    world.helper.is_away = True
    reset(world)
    assert reset(world).n_touched > 0  # so the daemon asks again
    world.helper.is_away = False
    assert reset(world).lists.restored
    assert world.slurm.qos(RISK).preempt == FULL_RISK
    assert reset(world).n_touched == 0


def test_off_gives_the_ranks_of_apply_back(tmp_path: Path) -> None:
    world = busy(tmp_path)
    borrow = f"{REC}_borrow"
    world.slurm.set_qos(replace(world.slurm.qos(borrow), priority=6))
    world.helper.is_away = True
    assert dict(reset(world).lists.failed)[borrow]
    world.helper.is_away = False
    assert reset(world).lists.ranks == (borrow,)
    assert world.slurm.qos(borrow).priority == HIGHEST_BORROW_PRIORITY
    assert reset(world).n_touched == 0


def test_a_rank_that_the_rebalancer_wrote_goes_back_when_it_is_reset(tmp_path: Path) -> None:
    world = busy(tmp_path)
    for number in range(3):
        world.cycle()
        for job in world.slurm.observe().jobs:
            if job.state is JobState.PENDING and job.qos.endswith("_borrow"):
                world.slurm.start_job(job.job_id, nodes=f"node0{number + 2}")
    borrow = world.slurm.qos(f"{REC}_borrow")
    assert borrow.priority < HIGHEST_BORROW_PRIORITY
    reset(world)
    assert world.slurm.qos(borrow.name).priority == HIGHEST_BORROW_PRIORITY


def test_a_clean_stop_restores_the_lists(tmp_path: Path) -> None:
    world = busy(tmp_path)
    daemon = Daemon(rebalancer=world.rebalancer, signals=Signals(), wait=world.advance)
    daemon.run(once=True)
    written = "SELECT * FROM band_decisions WHERE kind = 'SetPreemptList' AND outcome = 'written'"
    assert world.rebalancer.history.query(written)
    assert world.slurm.qos(RISK).preempt == FULL_RISK


def test_a_stop_just_after_slurmdbd_was_away_writes_every_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy(tmp_path)
    before = world.slurm.fetch_qos()[0]
    world.cycle()
    assert world.slurm.qos(RISK).preempt != FULL_RISK
    # What slurmdbd said last is older than what was written since.
    monkeypatch.setattr(world.slurm, "fetch_qos", lambda: (before, ((f"{NO_LISTS}: slurmdbd is away", 1),)))
    world.helper.asked.clear()
    report = restore_lists(world.site.policy, world.slurm, world.helper)
    assert world.slurm.qos(RISK).preempt == FULL_RISK
    assert not report.failed
    bands = [change.names[0].endswith("_borrow") for change in world.helper.asked]
    assert bands == sorted(bands, reverse=True)  # the lists of borrow QOSes first


@pytest.mark.parametrize("is_down", [False, True])
def test_a_restart_of_a_borrowing_job_is_told_as_a_reclaim_unless_its_node_failed(
    tmp_path: Path,
    is_down: bool,  # noqa: FBT001 - the table's column
) -> None:
    world = busy(tmp_path)
    world.cycle()
    borrower = next(str(number) for number in range(3, 10) if world.qos_of(number) == f"{REC}_borrow")
    world.slurm.start_job(JobId(borrower), nodes="node03")
    world.cycle()
    world.slurm.requeue_job(JobId(borrower))
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    if is_down:
        world.slurm.set_node_state(next(n.name for n in world.slurm.observe().nodes if n.name == "node03"), "down")
    world.cycle()
    rows = world.rebalancer.history.query("SELECT * FROM reclaims")
    if is_down:
        assert rows == []
        return
    (row,) = rows
    assert (row["job_id"], row["agent"], row["band"]) == (borrower, "rec", "borrow")
    assert (row["claimant"], row["claimant_job"]) == ("risk", "50")
    assert "agent risk is owed it" in row["reason"]


def test_a_delay_is_lifted_for_a_victim_below_nominal(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    borrower = JobId(next(str(number) for number in range(3, 10) if world.qos_of(number) == f"{REC}_borrow"))
    world.slurm.start_job(borrower, nodes="node03")
    world.cycle()
    world.slurm.requeue_job(borrower)
    for number in (1, 2):
        world.slurm.finish_job(JobId(str(number)))
    world.cycle()
    assert world.slurm.started_now == (borrower,)
    assert world.qos_of(borrower) == REC
    assert world.slurm.job(borrower).eligible_s == int(world.now_s)


@pytest.mark.parametrize("priority", [1000, 0], ids=["waiting", "held"])
def test_a_job_that_left_the_agents_leaves_our_qos_in_the_next_cycle(tmp_path: Path, *, priority: int) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.cycle()
    assert world.qos_of(1) == REC
    world.slurm.add_job(make_job(1, "nobody", qos=REC, site_factor=world.factor(1), priority=priority))
    result = world.cycle()
    assert result.released.moved == (("1", "normal"),)
    assert world.qos_of(1) == "normal"
    assert world.cycle().released.n_touched == 0


def test_a_borrowing_job_that_left_the_agents_borrows_no_more(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    assert world.qos_of(9) == f"{REC}_opp"
    world.slurm.add_job(replace(world.slurm.job(JobId("9")), account=AccountName("nobody")))
    result = world.cycle()
    assert result.released.moved == (("9", REC),)
    assert result.released.restored == (("9", 0),)


def test_a_refused_move_keeps_no_job_from_its_rank(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal"))
    world.rebalancer.enactor.pauses.note_refused(("SetQos", "1"), now_s=world.now_s)
    result = world.cycle()
    assert outcomes(result, SetQos) == {EnactOutcome.PAUSED}
    assert outcomes(result, SetSiteFactor) == {EnactOutcome.WRITTEN}
