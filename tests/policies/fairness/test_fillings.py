"""Corners of the two fillings that random small problems rarely meet."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from policies.fairness.progressive_filling import progressive_filling
from policies.fairness.whole_jobs import FillStatus, fill_whole_jobs


def test_demand_met_when_nothing_is_scarce() -> None:
    filling = progressive_filling(
        np.array([[1.0], [2.0]]), np.array([100.0]), np.ones(2), max_tasks=np.array([3.0, 4.0])
    )
    assert filling.tasks.tolist() == [3.0, 4.0]
    assert (filling.status, filling.residual) == (FillStatus.DEMAND_MET, 0.0)


def test_weight_zero_gets_what_the_others_leave_in_equal_parts() -> None:
    # 10 units: the weighted agent wants 4; the two of weight 0 share the other 6.
    filling = progressive_filling(
        np.ones((3, 1)), np.array([10.0]), np.array([1.0, 0.0, 0.0]), max_tasks=np.array([4.0, 9.0, 9.0])
    )
    assert filling.tasks.tolist() == [4.0, 3.0, 3.0]
    assert filling.weighted_share.tolist() == [0.4, np.inf, np.inf]


def test_task_that_asks_for_nothing_or_the_impossible_gets_nothing() -> None:
    filling = progressive_filling(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([4.0, 0.0]), np.ones(3))
    assert filling.tasks.tolist() == [0.0, 0.0, 4.0]
    assert filling.status is FillStatus.BLOCKED


def test_no_agents() -> None:
    filling = progressive_filling(np.zeros((0, 2)), np.ones(2), np.zeros(0))
    assert (filling.status, filling.iterations) == (FillStatus.DEMAND_MET, 0)


def test_at_most_one_round_per_resource() -> None:
    rng = np.random.default_rng(1)
    demand = rng.integers(0, 8, (300, 4)).astype(float)
    filling = progressive_filling(demand, demand.sum(axis=0) * [1, 2, 3, 4], rng.uniform(0.1, 2, 300))
    assert filling.iterations <= 4
    assert filling.residual < 1e-12


def test_results_are_read_only() -> None:
    filling = progressive_filling(np.ones((1, 1)), np.ones(1), np.ones(1))
    with pytest.raises(ValueError, match="read-only"):
        filling.tasks[0] = 2.0


def test_whole_jobs_start_from_what_is_held() -> None:
    one = Fraction(1)
    filling = fill_whole_jobs([[(1,)] * 4, [(1,)] * 4], (6,), weights=[one, one], held=[(2,), (0,)])
    assert [agent for agent, _ in filling.order] == [1, 1, 0, 1]
    assert filling.allocation == ((3,), (3,))
    assert (filling.status, filling.residual) == (FillStatus.BLOCKED, (0,))


def test_blocked_agent_stops_and_the_others_go_on() -> None:
    filling = fill_whole_jobs([[(5,)], [(1,)] * 3], (4,), weights=[Fraction(1)] * 2)
    assert filling.n_started == (0, 3)
    assert filling.status is FillStatus.BLOCKED


def test_whole_jobs_of_weight_zero_come_last_and_share_equally() -> None:
    zero = Fraction(0)
    filling = fill_whole_jobs([[(1,)] * 2, [(1,)] * 2, [(1,)] * 2], (6,), weights=[zero, Fraction(1), zero])
    assert [agent for agent, _ in filling.order] == [1, 1, 0, 2, 0, 2]
    assert filling.status is FillStatus.DEMAND_MET


def test_agent_that_holds_something_without_capacity_sorts_last() -> None:
    filling = fill_whole_jobs([[(0, 1)], [(0, 1)]], (0, 2), weights=[Fraction(1)] * 2, held=[(1, 0), (0, 0)])
    assert [agent for agent, _ in filling.order] == [1, 0]
