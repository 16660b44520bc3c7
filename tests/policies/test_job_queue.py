"""The global order and its site factors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.census import compute_state
from policies.fairness.site_factor import compute_site_factor
from policies.job_queue import JobQueue, order_jobs
from policies.records import AccountName, AgentName, JobRecord
from policies.site_policy import AgentPolicy, JobOrder
from tests.strategies import NOW, make_job, make_node, make_observation, make_running, make_site, make_tres

if TYPE_CHECKING:
    from policies.state import ClusterState

SCALE = 40_000


def queue_of(
    jobs: list[JobRecord], weights: dict[str, Any] | None = None, scale: int = SCALE
) -> tuple[ClusterState, JobQueue]:
    site = make_site(weights or {"a": "1/2", "b": "1/2"})
    state = compute_state(make_observation(jobs), site)
    base = [Fraction(agent.base_weight) for agent in state.agents]
    return state, order_jobs(state, base, scale=scale)


def ids(jobs: list[JobRecord], weights: dict[str, Any] | None = None) -> list[str]:
    state, queue = queue_of(jobs, weights)
    return [str(state.pending.job_ids[row]) for row in queue.rows.tolist()]


def test_smallest_tag_first() -> None:
    # b holds 2 of 8 GPUs, so a's first two jobs (tags 0 and 1/4 < 1/2) come before b's.
    running = make_running("1", "b", tres=make_tres(gpu=2))
    jobs = [running, make_job("10", "b"), make_job("11", "a"), make_job("12", "a")]
    assert ids(jobs) == ["11", "12", "10"]


def test_weight_stretches_the_share() -> None:
    # a (weight 3/4) starts at 0, 1/6, 1/3; b (1/4) at 0, 1/2.
    jobs = [make_job(str(10 + n), "a") for n in range(3)] + [make_job(str(20 + n), "b") for n in range(2)]
    assert ids(jobs, {"a": "3/4", "b": "1/4"}) == ["10", "20", "11", "12", "21"]


def test_tie_goes_to_the_agent_with_the_older_oldest_job_then_to_the_name() -> None:
    young, old = make_job("10", "a"), make_job("11", "b", submit_s=int(NOW) - 200)
    assert ids([young, old]) == ["11", "10"]
    assert ids([young, replace(old, submit_s=young.submit_s)]) == ["10", "11"]


def test_oldest_job_that_cannot_start_does_not_count_for_the_tie() -> None:
    held = make_job("9", "b", submit_s=0, priority=0)
    assert ids([make_job("10", "a"), make_job("11", "b"), held])[0] == "10"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"nice": 0, "submit_s": 9}, {"nice": 1, "submit_s": 5}),
        ({"submit_s": 5}, {"submit_s": 9}),
        ({"comment": "deadline=1h"}, {"comment": "deadline=2h"}),
        ({"comment": "deadline=1h"}, {"comment": ""}),
    ],
)
def test_own_order_of_an_agent(first: dict[str, Any], second: dict[str, Any]) -> None:
    agent = AgentPolicy(
        name=AgentName("a"), accounts=(AccountName("a"),), base_weight=Fraction(1), order=JobOrder.DEADLINE
    )
    assert ids([make_job("10", "a", **second), make_job("20", "a", **first)], {"a": agent}) == ["20", "10"]


def test_job_ids_compare_as_numbers() -> None:
    assert ids([make_job("100", "a"), make_job("99", "a"), make_job("99_2", "a"), make_job("99_10", "a")]) == [
        "99",
        "99_2",
        "99_10",
        "100",
    ]


def test_array_has_the_tag_of_its_first_task_and_later_jobs_see_all() -> None:
    state, queue = queue_of([make_job("10", "a", n_tasks=3), make_job("11", "a")], {"a": 1})
    tags = {str(state.pending.job_ids[r]): queue.tags.tag(t) for r, t in zip(queue.rows, queue.tag_rows, strict=True)}
    assert tags == {"10": 0, "11": Fraction(3, 8)}


def test_het_components_are_tagged_in_sequence() -> None:
    jobs = [make_job("13+1", "a", het_job_id="13"), make_job("13+0", "a", het_job_id="13")]
    state, queue = queue_of(jobs, {"a": 1})
    assert [str(state.pending.job_ids[row]) for row in queue.rows] == ["13+0", "13+1"]
    assert [queue.tags.tag(row) for row in queue.tag_rows.tolist()] == [0, Fraction(1, 8)]


def test_job_that_cannot_start_moves_nobody() -> None:
    # facts/bands.md 14: an 8-GPU job that fits no node must not push its agent's other jobs back.
    jobs = [make_job("10", "a", tres=make_tres(gpu=9)), make_job("11", "a"), make_job("12", "b")]
    _, queue = queue_of(jobs)
    assert [queue.tags.tag(row) for row in queue.tag_rows.tolist()] == [0, 0, 0]
    assert queue.is_startable.sum() == 2


def test_weight_zero_comes_last_by_unweighted_share() -> None:
    jobs = [
        make_running("1", "y"),
        make_job("10", "y"),
        make_job("11", "z"),
        *[make_job(str(20 + n), "a") for n in range(3)],
    ]
    got = ids(jobs, {"a": 1, "y": 0, "z": 0})
    assert got == ["20", "21", "22", "11", "10"]
    _, queue = queue_of(jobs, {"a": 1, "y": 0, "z": 0})
    assert queue.factors.tolist()[-2:] == [1, 1]


def test_equal_factors_are_separated_only_where_slurm_would_swap_them() -> None:
    # Three agents with one job each, all at tag 0; b's job is the oldest, so it comes first although its id is highest.
    jobs = [make_job("10", "a"), make_job("11", "c"), make_job("12", "b", submit_s=1)]
    state, queue = queue_of(jobs, {"a": 1, "b": 1, "c": 1})
    got = [(str(state.pending.job_ids[r]), f) for r, f in zip(queue.rows, queue.factors.tolist(), strict=True)]
    assert got == [("12", 40_000), ("10", 39_999), ("11", 39_999)]


def test_separating_ties_stops_at_one_percent_and_at_one() -> None:
    accounts = [f"x{n:02}" for n in range(30)]
    jobs = [make_job(str(100 - n), name, submit_s=n + 1) for n, name in enumerate(accounts)]
    weights = dict.fromkeys(accounts, 1)
    _, queue = queue_of(jobs, weights, scale=1000)
    assert queue.factors.tolist() == [1000 - min(n, 10) for n in range(30)]
    _, tiny = queue_of(jobs, weights, scale=1)
    assert tiny.factors.tolist() == [1] * 30


def test_deep_jobs_keep_the_factor_of_their_tag() -> None:
    job = make_job("5", "a", tres=make_tres(gpu=8))
    jobs = [job, replace(job, job_id="4", nice=1), make_job("90", "b", submit_s=1)]  # type: ignore[arg-type]
    state, queue = queue_of(jobs)
    factors = dict(zip((str(state.pending.job_ids[r]) for r in queue.rows), queue.factors.tolist(), strict=True))
    assert factors["4"] == compute_site_factor(Fraction(2), SCALE)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=12))
def test_slurms_rule_on_our_factors_gives_the_global_order(rows: list[tuple[str, int]]) -> None:
    jobs = [make_job(str(50 - n), name, tres=make_tres(gpu=gpu)) for n, (name, gpu) in enumerate(rows)]
    state, queue = queue_of(jobs, {"a": "0.5", "b": "0.3", "c": "0.2"}, scale=10**6)
    is_near = queue.tags.is_near[queue.tag_rows]
    wanted = [int(row) for row, near in zip(queue.rows, is_near, strict=True) if near]
    factor = dict(zip(queue.rows.tolist(), queue.factors.tolist(), strict=True))
    slurm = sorted(wanted, key=lambda row: (-factor[row], int(state.pending.job_ids[row])))
    assert slurm == wanted


def test_no_jobs() -> None:
    _, queue = queue_of([])
    assert queue.rows.tolist() == []


def test_amounts_beyond_int64_are_ordered_exactly() -> None:
    node = make_node(tres=make_tres(cpu=10**30, gpu=4))
    jobs = [make_job("10", "a", tres=make_tres(cpu=10**29)), make_job("11", "a"), make_job("12", "b")]
    state = compute_state(make_observation(jobs, [node]), make_site({"a": 1, "b": 1}))
    queue = order_jobs(state, [Fraction(1, 2)] * 2, scale=SCALE)
    assert [queue.tags.tag(row) for row in queue.tag_rows.tolist()] == [0, 0, Fraction(1, 5)]
