"""Whole cycles against FakeSlurm: what is written, what is not, and what everybody is told."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.records import JobId, NodeName
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.rebalancer.daemon_state import Outcome
from slurm_plugin.rebalancer.outcomes import EnactOutcome
from slurm_plugin.rebalancer.snapshot_ring import KEEP, last_snapshot, snapshot_paths
from slurm_plugin.rebalancer.standings import read_sla_memory
from slurm_plugin.site.switch import turn_off, turn_on
from tests.slurm_plugin.rebalancer.world import SCALE, START_S, World, make_job

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.rebalancer.cycle import CycleResult


def _outcomes(result: CycleResult) -> list[EnactOutcome]:
    return [one.outcome for one in result.enacted.enacted]


def test_a_job_that_the_hook_missed_is_adopted(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    result = world.cycle()
    assert world.factor(1) == SCALE
    assert (result.outcome, _outcomes(result)) == (Outcome.OK, [EnactOutcome.WRITTEN])


def test_a_second_cycle_writes_nothing_new(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2, "rec"))
    world.cycle()
    written = world.slurm.written
    assert world.cycle().plan.decisions == ()
    assert world.slurm.written == written


def test_two_agents_alternate_by_weighted_share(tmp_path: Path) -> None:
    world = World(tmp_path, *(make_job(n) for n in (1, 2)), *(make_job(n, "rec") for n in (3, 4)))
    world.cycle()
    order = sorted((1, 2, 3, 4), key=lambda n: (-(world.factor(n) or 0), n))
    # Tags 0, 0 (name decides), 1/16 : 3/5 = 0.104 and 1/16 : 2/5 = 0.156.
    assert order == [3, 1, 2, 4]


def test_observe_mode_decides_and_writes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), mode="observe")
    result = world.cycle()
    assert _outcomes(result) == [EnactOutcome.NOT_ENFORCED]
    assert world.slurm.written == ()


def test_a_dry_run_writes_neither_to_slurm_nor_to_disk(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.restart(is_dry_run=True)
    before = sorted(tmp_path.iterdir())
    assert _outcomes(world.cycle()) == [EnactOutcome.NOT_ENFORCED]
    assert world.slurm.written == ()
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_is_written_once_the_switch_is_off(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    turn_off(world.site)
    assert _outcomes(world.cycle()) == [EnactOutcome.OFF]
    assert world.slurm.written == ()
    turn_on(world.site)
    world.cycle()
    assert world.factor(1) == SCALE


def test_the_rate_limit_cuts_the_tail_and_the_next_cycle_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, *(make_job(n) for n in range(1, 13)), rate=1)
    first = world.cycle()
    assert _outcomes(first) == [EnactOutcome.WRITTEN] * 5 + [EnactOutcome.DEFERRED] * 7
    assert [int(job_id) for job_id, _ in world.slurm.written] == [1, 2, 3, 4, 5]
    world.cycle()
    assert [int(job_id) for job_id, _ in world.slurm.written[5:]] == [6, 7, 8, 9, 10]


def test_a_young_job_waits_below_24_11(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, submit_s=int(START_S) + 3), release="22.05.8")
    assert _outcomes(world.cycle()) == [EnactOutcome.YOUNG]
    assert _outcomes(world.cycle()) == [EnactOutcome.WRITTEN]


def test_a_young_job_is_written_at_once_from_24_11_on(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, submit_s=int(START_S) + 3), release="24.11.5")
    assert _outcomes(world.cycle()) == [EnactOutcome.WRITTEN]


def test_a_refused_job_is_left_alone_for_a_minute(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.reject_updates(JobId("1"), "Job update not available right now")
    assert _outcomes(world.cycle()) == [EnactOutcome.REJECTED]
    assert _outcomes(world.cycle()) == [EnactOutcome.PAUSED]
    assert _outcomes(world.cycle(60.0)) == [EnactOutcome.REJECTED]


def test_a_job_whose_pinned_priority_hides_every_write_is_not_written_each_cycle(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2))
    world.slurm.pin_priority(JobId("1"))
    outcomes = [[one.outcome for one in world.cycle().enacted.enacted] for _ in range(4)]
    written, paused = EnactOutcome.WRITTEN, EnactOutcome.PAUSED
    assert outcomes == [[written, written], [written], [written], [paused]]
    assert _outcomes(world.cycle(60.0)) == [written]
    assert _outcomes(world.cycle()) == [paused]
    world.slurm.pin_priority(JobId("1"), is_pinned=False)
    assert world.cycle().enacted.enacted == ()


def test_a_job_whose_priority_is_no_longer_pinned_is_ranked_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, priority=77_777))
    world.slurm.lose_updates(99)
    for _ in range(4):
        world.cycle()
    world.slurm.lose_updates(0)
    assert _outcomes(world.cycle()) == [EnactOutcome.PAUSED]
    world.slurm.add_job(make_job(1, priority=710))
    assert _outcomes(world.cycle()) == [EnactOutcome.WRITTEN]
    assert world.factor(1) == SCALE


def test_a_pinned_job_says_so_in_its_decisions_text(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.pin_priority(JobId("1"))
    texts = [world.cycle().enacted.enacted[0].text for _ in range(3)]
    assert texts[:2] == ["", ""]
    assert "priority pinned" in texts[2]


def test_a_lost_answer_is_repaired_by_the_next_cycle(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.lose_updates(1)
    world.cycle()
    assert world.factor(1) == 0
    world.cycle()
    assert world.factor(1) == SCALE


def _lose_slurm(world: World) -> bool:
    world.slurm.be_unavailable(1)
    return False


def test_slurm_going_away_while_writing_is_told_and_repaired(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    enact = world.rebalancer.enactor
    world.rebalancer.enactor = replace(enact, is_stopping=lambda: _lose_slurm(world))
    result = world.cycle()
    assert (result.outcome, _outcomes(result)) == (Outcome.UNAVAILABLE, [EnactOutcome.UNANSWERED])
    world.rebalancer.enactor = enact
    assert world.cycle().outcome is Outcome.OK
    assert world.factor(1) == SCALE


def test_slurm_away_before_the_cycle_is_an_error_to_the_caller(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.be_unavailable(1)
    with pytest.raises(SlurmUnavailable):
        world.cycle()


def test_a_user_who_is_no_operator_ends_the_cycle_as_denied(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.deny_updates()
    assert world.cycle().outcome is Outcome.DENIED


def test_an_old_observation_is_not_acted_on(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.now_s += 100.0
    result = world.cycle()
    assert (result.outcome, _outcomes(result)) == (Outcome.STALE, [EnactOutcome.STALE])
    assert world.slurm.written == ()


def test_a_stop_in_the_middle_leaves_the_rest_to_the_next_rebalancer(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.rebalancer.enactor.is_stopping = lambda: True
    assert _outcomes(world.cycle()) == [EnactOutcome.STOPPED]


def test_a_restarted_rebalancer_adopts_what_came_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.add_job(make_job(2))
    world.restart()
    world.cycle()
    assert 0 < (world.factor(2) or 0) < SCALE


def test_standings_say_where_the_next_job_starts(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2))
    world.slurm.start_job(JobId("1"), nodes="node01")
    world.cycle()
    path = tmp_path / "standings.json"
    body = json.loads(path.read_bytes())
    assert path.stat().st_mode & 0o777 == 0o644
    assert body["agents"]["risk"] == {"weight": "3/5", "next": [8, 8192, 2]}
    assert (body["tres"], body["capacity"]) == (["cpu", "mem", "gres/gpu"], [128, 524_288, 16])
    assert (body["at_s"], body["scale"], body["mode"]) == (world.now_s, SCALE, "enforce")


def test_standings_let_anybody_see_the_sla_memory_while_it_is_fresh(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    kept = world.cycle().plan.sla_memory
    assert kept
    assert read_sla_memory(tmp_path, now_s=world.now_s + 60, max_age_s=60.0) == kept
    assert read_sla_memory(tmp_path, now_s=world.now_s + 61, max_age_s=60.0) == ()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"at_s": 0, "sla_memory": [{"agent": "a", "factor": "1/0"}]}'])
def test_damaged_standings_hold_no_sla_memory(tmp_path: Path, content: bytes) -> None:
    assert read_sla_memory(tmp_path, now_s=0.0, max_age_s=60.0) == ()
    (tmp_path / "standings.json").write_bytes(content)
    assert read_sla_memory(tmp_path, now_s=0.0, max_age_s=60.0) == ()


def test_the_last_cycles_are_kept_as_snapshots(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    results = [world.cycle() for _ in range(KEEP + 3)]
    assert len(snapshot_paths(tmp_path)) == KEEP
    assert last_snapshot(tmp_path) == results[-1].snapshot


def test_history_tells_the_decision_the_job_and_the_cycle(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1, comment="agent=risk stage=train", user="alice"))
    result = world.cycle()
    query = world.rebalancer.history.query
    (cycle,) = query("SELECT * FROM cycles")
    (decision,) = query("SELECT * FROM decisions")
    (job,) = query("SELECT * FROM jobs")
    assert (cycle["cycle_id"], cycle["n_written"], cycle["plan_digest"]) == (result.cycle_id, 1, result.digest)
    assert (decision["job_id"], decision["new"], decision["outcome"]) == ("1", SCALE, "written")
    assert (job["agent"], job["source"], job["site_factor"]) == ("risk", "tag", SCALE)
    assert json.loads(job["flags"]) == {"agent": "risk", "stage": "train"}


def test_history_closes_a_job_that_ended_even_while_we_were_dead(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.finish_job(JobId("1"))
    world.restart()
    world.cycle()
    (job,) = world.rebalancer.history.query("SELECT state, end_s FROM jobs")
    assert job == {"state": "GONE", "end_s": world.now_s}


def test_observe_mode_tells_a_repeated_decision_once(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), mode="observe")
    world.cycle()
    world.cycle()
    (row,) = world.rebalancer.history.query("SELECT outcome FROM decisions")
    assert row["outcome"] == "not_enforced"


def test_a_damaged_history_never_stops_the_cycle(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"no database" * 1000)
    world = World(tmp_path, make_job(1))
    assert world.cycle().outcome is Outcome.OK
    assert world.factor(1) == SCALE
    errors = world.rebalancer.metrics.registry.get_sample_value("fairgpu_history_errors_total")
    assert errors is not None
    assert errors > 0


def test_without_a_disk_a_foreign_factor_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"no database" * 1000)
    world = World(tmp_path, make_job(1, site_factor=-7))
    assert _outcomes(world.cycle()) == [EnactOutcome.UNJOURNALLED]
    assert world.factor(1) == -7


def test_a_full_run_directory_is_counted_and_the_cycle_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    (tmp_path / "standings.json").mkdir()
    assert world.cycle().outcome is Outcome.OK
    get = world.rebalancer.metrics.registry.get_sample_value
    assert get("fairgpu_output_errors_total", {"file": "standings"}) == 1


def test_one_log_line_per_cycle_and_one_per_written_decision(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, make_job(1))
    with caplog.at_level(logging.INFO):
        result = world.cycle()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" ")[0] for line in lines] == ["event=site_factor", "event=cycle"]
    assert all(f"cycle={result.cycle_id}" in line for line in lines)
    assert "outcome=ok mode=enforce jobs=1 pending=1 decisions=1 written=1" in lines[1]


def test_no_schedulable_node_gives_a_plan_and_no_crash(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    for number in range(1, 5):
        world.slurm.set_node_state(NodeName(f"node{number:02d}"), "down")
    assert world.cycle().outcome is Outcome.OK
