"""Properties of DRF as checks of an implementation, so that mutants can be shown to fail them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from policies.fairness.progressive_filling import DivisibleFilling, progressive_filling
from policies.fairness.whole_jobs import WholeJobFilling, fill_whole_jobs
from tests.strategies import Amounts, DrfInstance

WholeFill = Callable[..., WholeJobFilling]
DivisibleFill = Callable[..., DivisibleFilling]
EPS = 1e-9


def fill(instance: DrfInstance, whole: WholeFill = fill_whole_jobs) -> WholeJobFilling:
    return whole(instance.jobs, instance.capacity, weights=instance.weights)


def pour(instance: DrfInstance, divisible: DivisibleFill = progressive_filling, **changes: Any) -> np.ndarray:
    """Tasks per agent."""
    arguments = {
        "demand": np.array(instance.demand, dtype=float),
        "capacity": np.array(instance.capacity, dtype=float),
        "weights": np.array([float(w) for w in instance.weights]),
        "max_tasks": np.array(instance.n_tasks, dtype=float),
    } | changes
    return divisible(
        arguments["demand"], arguments["capacity"], arguments["weights"], max_tasks=arguments["max_tasks"]
    ).tasks


def dominant(task: Amounts, capacity: Amounts) -> Fraction:
    return max(Fraction(ask, cap) for ask, cap in zip(task, capacity, strict=True))


def check_feasible(instance: DrfInstance, whole: WholeFill = fill_whole_jobs) -> None:
    filling = fill(instance, whole)
    used = [sum(row[axis] for row in filling.allocation) for axis in range(len(instance.capacity))]
    assert all(u <= cap for u, cap in zip(used, instance.capacity, strict=True))
    assert filling.residual == tuple(cap - u for cap, u in zip(instance.capacity, used, strict=True))
    assert all(n <= most for n, most in zip(filling.n_started, instance.n_tasks, strict=True))


def check_work_conserving(instance: DrfInstance, whole: WholeFill = fill_whole_jobs) -> None:
    """No waiting job fits into what is left (there are no limits in this issue)."""
    filling = fill(instance, whole)
    for task, n, wanted in zip(instance.demand, filling.n_started, instance.n_tasks, strict=True):
        fits = all(ask <= free for ask, free in zip(task, filling.residual, strict=True))
        assert n == wanted or not fits


def check_pareto(instance: DrfInstance, divisible: DivisibleFill = progressive_filling) -> None:
    """Each agent has all it wants or needs a resource that is used up."""
    tasks = pour(instance, divisible)
    used = tasks @ np.array(instance.demand, dtype=float)
    full = used >= np.array(instance.capacity) * (1 - EPS)
    assert (used <= np.array(instance.capacity) * (1 + EPS)).all()
    for task, n, wanted in zip(instance.demand, tasks, instance.n_tasks, strict=True):
        assert n >= wanted * (1 - EPS) or any(is_full and ask for is_full, ask in zip(full, task, strict=True))


def check_sharing_incentive(instance: DrfInstance, divisible: DivisibleFill = progressive_filling) -> None:
    """No agent is worse off than with its weight's part of every resource (NSDI'11 section 3)."""
    tasks = pour(instance, divisible)
    total = sum(instance.weights)
    for task, weight, n, wanted in zip(instance.demand, instance.weights, tasks, instance.n_tasks, strict=True):
        alone = float(weight / total / dominant(task, instance.capacity))
        assert n >= min(wanted, alone) * (1 - EPS)


def check_envy_freeness(instance: DrfInstance, divisible: DivisibleFill = progressive_filling) -> None:
    """Nobody could run more with another's bundle, scaled by the weights' ratio (NSDI'11 section 3)."""
    tasks = pour(instance, divisible)
    demand = np.array(instance.demand, dtype=float)
    weights = np.array([float(w) for w in instance.weights])
    for i, own in enumerate(demand):
        for j, bundle in enumerate(tasks[:, None] * demand):
            asked = own > 0
            swapped = (bundle[asked] / own[asked]).min() * weights[i] / weights[j]
            assert tasks[i] >= min(instance.n_tasks[i], swapped) * (1 - EPS)


def check_envy_up_to_one_job(instance: DrfInstance, whole: WholeFill = fill_whole_jobs) -> None:
    """At its last start, an agent would not run more with another's weighted bundle less one job."""
    filling = fill(instance, whole)
    running: Counter[int] = Counter()
    for agent, _ in filling.order:
        for other, n_jobs in running.items():
            if other != agent:
                ratio = instance.weights[agent] / instance.weights[other]
                bundle = [ask * (n_jobs - 1) * ratio for ask in instance.demand[other]]
                swapped = min(b / ask for b, ask in zip(bundle, instance.demand[agent], strict=True) if ask)
                assert swapped <= running[agent]
        running[agent] += 1


def check_no_gain_by_over_asking(
    instance: DrfInstance, lie: Amounts, divisible: DivisibleFill = progressive_filling
) -> None:
    """Agent 0 claims more per task than it needs and never runs more real tasks (NSDI'11 section 3)."""
    endless = np.full(len(instance.demand), np.inf)
    honest = pour(instance, divisible, max_tasks=endless)[0]
    claimed = np.array(instance.demand, dtype=float)
    claimed[0] += lie
    lying = pour(instance, divisible, demand=claimed, max_tasks=endless)[0]
    given, needed = lying * claimed[0], np.array(instance.demand[0], dtype=float)
    useful = (given[needed > 0] / needed[needed > 0]).min()
    assert useful <= honest * (1 + EPS)


def check_unit_scaling(instance: DrfInstance, factor: int, whole: WholeFill = fill_whole_jobs) -> None:
    """Counting axis 0 in smaller units changes no decision."""

    def scaled(amounts: Amounts) -> Amounts:
        return (amounts[0] * factor, *amounts[1:])

    other = DrfInstance(
        capacity=scaled(instance.capacity),
        demand=tuple(map(scaled, instance.demand)),
        weights=instance.weights,
        n_tasks=instance.n_tasks,
    )
    assert fill(other, whole).order == fill(instance, whole).order


def check_permutation(instance: DrfInstance, divisible: DivisibleFill = progressive_filling) -> None:
    """Agents have no names: listed backwards they get the same."""
    backwards = DrfInstance(
        capacity=instance.capacity,
        demand=instance.demand[::-1],
        weights=instance.weights[::-1],
        n_tasks=instance.n_tasks[::-1],
    )
    np.testing.assert_allclose(pour(backwards, divisible)[::-1], pour(instance, divisible), rtol=EPS, atol=EPS)


def check_whole_oracle(instance: DrfInstance, whole: WholeFill = fill_whole_jobs) -> None:
    assert [agent for agent, _ in fill(instance, whole).order] == naive_algorithm_1(instance)


def check_divisible_oracle(instance: DrfInstance, divisible: DivisibleFill = progressive_filling) -> None:
    expected = [float(tasks) for tasks in exact_filling(instance)]
    np.testing.assert_allclose(pour(instance, divisible), expected, rtol=EPS, atol=EPS)


def naive_algorithm_1(instance: DrfInstance) -> list[int]:
    """NSDI'11 Algorithm 1 written down as directly as possible; a blocked agent stops, ties to the first."""
    axes = range(len(instance.capacity))
    consumed = [0 for _ in axes]
    given = [0 for _ in instance.demand]
    blocked: set[int] = set()
    order: list[int] = []
    while True:
        best: int | None = None
        for i, task in enumerate(instance.demand):
            if i in blocked or given[i] == instance.n_tasks[i]:
                continue
            share = given[i] * dominant(task, instance.capacity) / instance.weights[i]
            if (
                best is None
                or share < given[best] * dominant(instance.demand[best], instance.capacity) / instance.weights[best]
            ):
                best = i
        if best is None:
            return order
        if all(consumed[r] + instance.demand[best][r] <= instance.capacity[r] for r in axes):
            for r in axes:
                consumed[r] += instance.demand[best][r]
            given[best] += 1
            order.append(best)
        else:
            blocked.add(best)


def exact_filling(instance: DrfInstance) -> list[Fraction]:
    """Progressive filling in fractions, one event at a time: a resource is used up, or an agent has all it wants."""
    n = len(instance.demand)
    rate = [w / dominant(task, instance.capacity) for w, task in zip(instance.weights, instance.demand, strict=True)]
    tasks = [Fraction(0)] * n
    left = [Fraction(cap) for cap in instance.capacity]
    active = set(range(n))
    while active:
        flow = [sum(rate[i] * instance.demand[i][r] for i in active) for r in range(len(left))]
        steps = [(left[r] / flow[r]) for r in range(len(left)) if flow[r]]
        steps += [(instance.n_tasks[i] - tasks[i]) / rate[i] for i in active]
        step = min(steps)
        for i in active:
            tasks[i] += rate[i] * step
        left = [have - f * step for have, f in zip(left, flow, strict=True)]
        active = {
            i
            for i in active
            if tasks[i] < instance.n_tasks[i]
            and not any(ask and not left[r] for r, ask in enumerate(instance.demand[i]))
        }
    return tasks
