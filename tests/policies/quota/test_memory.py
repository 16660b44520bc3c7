"""How often a job was taken back, and when it borrows no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.plan import BandMemory
from policies.records import JobId, JobRecord
from tests.policies.quota.band_cases import moves, plan_of, running, starts, victim, waiting
from tests.strategies import NOW, make_job

FULL = [running(str(n)) for n in range(1, 5)]


def _memory(restarts: int = 0, *times: float, job: str = "10", is_barred: bool = False) -> tuple[BandMemory, ...]:
    return (BandMemory(job_id=JobId(job), restarts=restarts, reclaimed_s=times, is_barred=is_barred),)


def test_restart_in_a_borrowed_band_counts_as_a_reclaim() -> None:
    plan = plan_of([*FULL, waiting("10", band="_borrow", restarts=1)], memory=_memory(0))
    assert plan.band_memory == _memory(1, NOW)


def test_first_sight_is_no_reclaim() -> None:
    assert plan_of([*FULL, waiting("10", band="_borrow", restarts=7)]).band_memory == _memory(7)


def test_move_out_starts_the_count_so_that_a_quick_reclaim_is_seen() -> None:
    memory = plan_of([*FULL, waiting("10", restarts=2)]).band_memory
    assert memory == _memory(2)
    assert plan_of([*FULL, waiting("10", band="_borrow", restarts=3)], memory=memory).band_memory == _memory(3, NOW)


def test_third_reclaim_in_the_window_ends_borrowing() -> None:
    # facts/bands.md 7 and 8: the same job is Slurm's victim again and again
    memory = _memory(2, NOW - 3000, NOW - 20)
    plan = plan_of([*FULL, waiting("10", band="_borrow", restarts=3)], memory=memory)
    assert moves(plan) == {"10": "a"}
    assert plan.band_memory == _memory(3, NOW - 3000, NOW - 20, NOW, is_barred=True)


def test_reclaims_before_the_window_are_forgotten() -> None:
    memory = _memory(2, NOW - 3601, NOW - 20)
    plan = plan_of([*FULL, waiting("10", band="_borrow", restarts=3)], memory=memory)
    assert plan.band_memory == _memory(3, NOW - 20, NOW)


def test_reclaims_of_the_future_were_noted_before_the_clock_was_set_back() -> None:
    memory = _memory(3, NOW + 3600, NOW + 3601)
    plan = plan_of([*FULL, waiting("10", band="_borrow", restarts=3)], memory=memory)
    assert plan.band_memory == _memory(3, NOW, NOW)


def test_barred_job_stays_barred_after_the_window_until_it_has_run() -> None:
    memory = _memory(3, is_barred=True)
    plan = plan_of([*FULL, waiting("10", restarts=3)], memory=memory)
    assert (moves(plan), plan.band_memory) == ({}, memory)
    assert plan_of([*FULL[:3], running("10", restarts=3)], memory=memory).band_memory == ()


def test_barred_job_that_only_fits_beyond_its_quota_is_barred_for_the_window() -> None:
    memory = _memory(3, is_barred=True)
    plan = plan_of([waiting("10", gpus=5, restarts=3)], memory=memory)
    assert moves(plan) == {"10": "a_opp"}


@pytest.mark.parametrize(
    ("job", "is_kept"),
    [
        (waiting("10", priority=0), False),
        (waiting("10", band="_opp", priority=0), True),
        (running("10", band="_opp"), True),
    ],
    ids=["back home", "waits", "runs"],
)
def test_job_without_reclaims_is_remembered_while_it_borrows(job: JobRecord, *, is_kept: bool) -> None:
    assert bool(plan_of([*FULL, job], memory=_memory(0)).band_memory) is is_kept


def test_job_that_is_gone_is_forgotten() -> None:
    assert plan_of(FULL, memory=_memory(1, NOW)).band_memory == ()


def test_task_split_from_an_array_starts_from_the_arrays_count() -> None:
    memory = _memory(0, job="12")
    task = replace(running("12_3", band="_opp", restarts=1), array_job_id="12", array_task_id="3")
    plan = plan_of([task], memory=memory)
    assert plan.band_memory == _memory(1, NOW, job="12_3")


def test_restarts_of_jobs_of_agents_without_bands_are_not_counted() -> None:
    assert plan_of([make_job("10", "a", qos="normal", restarts=1)], ()).band_memory == ()


def test_barred_victim_goes_home_even_while_it_waits_out_the_delay() -> None:
    plan = plan_of([*FULL, victim("10", restarts=3)], memory=_memory(2, NOW - 9, NOW - 5))
    assert (moves(plan), starts(plan)) == ({"10": "a"}, [])
