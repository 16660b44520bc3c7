"""The kill switch gives every job back what it had, whatever happened in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from policies.records import AccountName, JobId, PartitionName
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.rebalancer.cycle import outcome_of
from slurm_plugin.rebalancer.daemon_state import Outcome
from slurm_plugin.rebalancer.journal import GONE_AFTER_S
from slurm_plugin.rebalancer.reset import reset_effects
from slurm_plugin.site.switch import turn_off, turn_on
from tests.slurm_plugin.rebalancer.world import SCALE, World, make_job

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.rebalancer.reset import ResetReport


def _reset(world: World) -> ResetReport:
    world.advance(1.0)
    return reset_effects(world.site, world.slurm, helper=world.rebalancer.helper, history=world.rebalancer.history)


def test_jobs_that_we_ranked_go_back_to_zero(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2, "rec"))
    world.cycle()
    assert _reset(world).restored == (("1", 0), ("2", 0))
    assert (world.factor(1), world.factor(2)) == (0, 0)


def test_a_second_reset_finds_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2, site_factor=-7), make_job(3))
    world.cycle()
    world.slurm.start_job(JobId("3"))
    assert _reset(world).n_touched == 3
    written = world.slurm.written
    assert _reset(world).n_touched == 0
    assert world.slurm.written == written


@pytest.mark.parametrize("former", [-7, SCALE + 1, 2_000_000])
def test_a_factor_that_somebody_else_set_is_ranked_and_given_back(tmp_path: Path, former: int) -> None:
    world = World(tmp_path, make_job(1, site_factor=former))
    world.cycle()
    assert world.factor(1) == SCALE
    _reset(world)
    assert world.factor(1) == former


def test_the_former_value_survives_a_killed_rebalancer(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.restart()
    world.cycle()
    _reset(world)
    assert world.factor(1) == -7


def test_what_the_hook_set_goes_back_to_zero_without_any_journal(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=SCALE), mode="observe")
    assert _reset(world).restored == (("1", 0),)


def test_a_running_job_that_we_ranked_goes_back_though_its_factor_is_hidden(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.start_job(JobId("1"))
    _reset(world)
    assert world.factor(1) == 0


def test_a_running_job_that_the_hook_set_is_known_from_an_earlier_cycle(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=SCALE))
    assert world.cycle().plan.decisions == ()
    world.slurm.start_job(JobId("1"))
    _reset(world)
    assert world.factor(1) == 0


@pytest.mark.parametrize("theirs", [-7, SCALE + 1])
def test_a_running_job_that_only_somebody_else_ranked_keeps_its_hidden_factor(tmp_path: Path, theirs: int) -> None:
    world = World(tmp_path, make_job(1, site_factor=theirs), mode="observe")
    world.cycle()
    world.slurm.start_job(JobId("1"))
    assert _reset(world).n_touched == 0
    assert world.factor(1) == theirs


def test_a_held_job_is_known_from_the_hooks_own_record(tmp_path: Path) -> None:
    job = make_job(1, site_factor=SCALE, priority=0, reason="JobHeldUser")
    world = World(tmp_path, job)
    world.cycle()
    answer = {"at_s": job.submit_s - 0.5, "uid": job.uid, "verdict": "accept", "site_factor": SCALE}
    _record_submission(world, answer)
    _reset(world)
    assert world.factor(1) == 0


def test_a_record_of_a_mode_that_sets_nothing_does_not_count(tmp_path: Path) -> None:
    job = make_job(1, site_factor=55, priority=0, reason="JobHeldUser")
    world = World(tmp_path, job)
    answer = {"at_s": job.submit_s - 0.5, "uid": job.uid, "verdict": "accept", "site_factor": SCALE}
    _record_submission(world, {**answer, "message": "[observe] by account"})
    assert _reset(world).n_touched == 0
    assert world.factor(1) == 55


def _record_submission(world: World, row: dict[str, object]) -> None:
    assert world.rebalancer.history._attempt(lambda store: store.add_submissions([row]))


def test_jobs_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        make_job(1, site_factor=500, partitions=(PartitionName("cpu"),)),
        make_job(2, site_factor=500, account=AccountName("nobody")),
        make_job(3, site_factor=-500),
        mode="observe",
    )
    world.cycle()
    assert _reset(world).n_touched == 0


def test_a_job_of_a_partition_that_left_the_site_file_is_still_given_back(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=world.factor(1), partitions=(PartitionName("cpu"),)))
    _reset(world)
    assert world.factor(1) == 0


@pytest.mark.parametrize("left", [{"partitions": (PartitionName("cpu"),)}, {"account": AccountName("nobody")}])
def test_a_job_that_its_user_moved_away_from_the_agents_loses_our_factor_in_one_cycle(
    tmp_path: Path, left: dict[str, Any]
) -> None:
    world = World(tmp_path, make_job(1), make_job(2, site_factor=SCALE * 10_000 // 10_416))
    world.cycle()
    # The rebalancer ranked job 1; job 2 has what the hook set and only a cycle saw it.
    for number in (1, 2):
        world.slurm.add_job(make_job(number, site_factor=world.factor(number), **left))
    result = world.cycle()
    assert result.released.restored == (("1", 0), ("2", 0))
    assert (world.factor(1), world.factor(2)) == (0, 0)
    assert world.cycle().released.n_touched == 0
    world.slurm.add_job(make_job(1))
    world.cycle()
    assert world.factor(1) == SCALE


def test_a_job_that_left_before_any_cycle_saw_it_is_known_from_the_hooks_record(tmp_path: Path) -> None:
    job = make_job(1, site_factor=777, partitions=(PartitionName("cpu"),))
    world = World(tmp_path, job)
    answer = {"at_s": job.submit_s - 0.5, "uid": job.uid, "verdict": "accept"}
    for factor in (SCALE, 777):
        _record_submission(world, answer | {"site_factor": factor})
    world.cycle()
    assert world.factor(1) == 0


@pytest.mark.parametrize("moves", [False, True], ids=["off", "stray"])
def test_what_a_pinned_priority_hides_is_taken_back_too(tmp_path: Path, *, moves: bool) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.pin_priority(JobId("1"))
    if moves:
        world.slurm.add_job(make_job(1, site_factor=SCALE, account=AccountName("nobody")))
        assert world.cycle().released.n_touched == 1
        assert world.cycle().released.n_touched == 0
    else:
        assert _reset(world).n_touched == 1
        assert _reset(world).n_touched == 0
    world.slurm.pin_priority(JobId("1"), is_pinned=False)
    assert world.factor(1) == 0


def test_a_stray_is_given_back_what_it_had_and_by_off_too(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=world.factor(1), account=AccountName("nobody")))
    assert _reset(world).restored == (("1", -7),)


def test_strays_are_left_alone_in_a_dry_run_while_off_and_outside_enforce(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=SCALE, account=AccountName("nobody")))
    world.rebalancer.is_dry_run = True
    assert world.cycle().released.n_touched == 0
    world.rebalancer.is_dry_run = False
    turn_off(world.site)
    assert world.cycle().released.n_touched == 0
    turn_on(world.site)
    assert world.cycle().released.n_touched == 1


def test_a_stray_whose_update_slurm_refuses_is_not_asked_about_every_cycle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=SCALE, account=AccountName("nobody")))
    world.slurm.reject_updates(JobId("1"), "no")
    assert world.cycle().released.failed == (("1", "no"),)
    assert "event=restore_failed job=1 text=no" in caplog.text
    assert world.cycle().released.n_touched == 0
    world.slurm.reject_updates(JobId("1"), "")
    assert world.cycle(60.0).released.restored == (("1", 0),)


def test_slurm_going_away_while_strays_are_written_is_the_cycles_outcome(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=SCALE, account=AccountName("nobody")))
    seen = world.slurm.observe()
    world.slurm.be_unavailable(1)
    released, error = world.rebalancer._release(seen, world.now_s)
    assert (released.n_touched, outcome_of(error)) == (0, Outcome.UNAVAILABLE)
    world.cycle()
    assert world.factor(1) == 0


def test_a_split_array_task_inherits_the_former_value(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(7, site_factor=-7, n_tasks=3))
    world.cycle()
    task = world.slurm.start_task(JobId("7"), 0)
    _reset(world)
    assert (world.factor(7), world.factor(task)) == (-7, -7)


def test_a_requeued_job_keeps_its_former_value(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.slurm.start_job(JobId("1"))
    world.cycle()
    world.slurm.requeue_job(JobId("1"), delay_s=0)
    world.cycle()
    _reset(world)
    assert world.factor(1) == -7


def test_another_job_with_the_same_number_inherits_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.slurm.add_job(make_job(1, site_factor=0, submit_s=int(world.now_s)))
    world.cycle()
    _reset(world)
    assert world.factor(1) == 0


def test_the_journal_forgets_a_job_that_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    assert set(world.rebalancer.history.factors.lines) == {"1"}
    world.slurm.finish_job(JobId("1"))
    world.cycle()
    assert set(world.rebalancer.history.factors.lines) == {"1"}  # slurmctld may show it again
    world.cycle(GONE_AFTER_S)
    assert world.rebalancer.history.factors.lines == {}


def test_a_value_that_an_admin_set_while_off_is_the_one_to_give_back(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    _reset(world)
    world.slurm.set_site_factors([(JobId("1"), 0)])
    world.cycle()
    assert world.factor(1) == SCALE
    _reset(world)
    assert world.factor(1) == 0


def test_a_lost_restore_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.slurm.lose_updates(1)
    _reset(world)
    _reset(world)
    assert world.factor(1) == -7


def test_a_write_that_arrives_after_the_reset_is_undone_by_the_next(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.slurm.delay_updates(1)
    world.cycle()
    assert _reset(world).n_touched == 0
    assert world.factor(1) == SCALE
    _reset(world)
    assert world.factor(1) == -7


def test_a_refused_restore_is_reported_with_slurms_words(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.reject_updates(JobId("1"), "no")
    assert _reset(world).failed == (("1", "no"),)


def test_slurm_away_is_the_callers_to_try_again(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.be_unavailable(1)
    with pytest.raises(SlurmUnavailable):
        _reset(world)
    _reset(world)
    assert world.factor(1) == 0


def test_without_a_rebalancer_the_history_on_disk_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, site_factor=-7))
    world.cycle()
    world.rebalancer.history.close()
    assert reset_effects(world.site, world.slurm, helper=world.rebalancer.helper).restored == (("1", -7),)
