"""Each property rejects an implementation with a small mistake (STYLE.md H.40: a test that cannot fail shows nothing).

Every mutant is one line away from the real thing. Problems are drawn from a fixed seed, so this never flakes.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from policies.cycle import decide
from policies.fairness.progressive_filling import DivisibleFilling, progressive_filling
from policies.fairness.share_tags import ShareTags, share_tags
from policies.fairness.sla_weight import update_sla_factor
from policies.fairness.whole_jobs import WholeJobFilling, fill_whole_jobs
from tests.policies.fairness import drf_checks as checks
from tests.policies.fairness.contrast import ceei_of_two
from tests.policies.fairness.test_share_tags import check_order_is_algorithm_1
from tests.policies.fairness.test_sla_weight import check_does_not_flap
from tests.policies.test_cycle import check_replay
from tests.strategies import DrfInstance, make_job, make_observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.plan import Plan, SlaMemory


@cache
def problems(n_agents: int = 3, n_axes: int = 2) -> tuple[DrfInstance, ...]:
    rng = random.Random(2011)  # noqa: S311 - test problems, no secrets

    def one() -> DrfInstance:
        return DrfInstance(
            capacity=tuple(rng.randint(3, 20) for _ in range(n_axes)),
            demand=tuple(tuple(rng.randint(1, 4) for _ in range(n_axes)) for _ in range(n_agents)),
            weights=tuple(Fraction(rng.randint(1, 6), 3) for _ in range(n_agents)),
            n_tasks=tuple(rng.randint(1, 8) for _ in range(n_agents)),
        )

    return tuple(one() for _ in range(150))


def rejects(check: Callable[..., None], *arguments: Any, count: int = 150, **problem: int) -> bool:
    """Whether the check fails on some problem; it must pass on all of them for the real implementation."""
    for instance in problems(**problem)[:count]:
        try:
            check(instance, *arguments)
        except AssertionError:
            return True
    return False


def forgets_last_axis(jobs: Any, capacity: Any, **rest: Any) -> WholeJobFilling:
    full = fill_whole_jobs(jobs, (*capacity[:-1], 10**6), **rest)
    used = sum(row[-1] for row in full.allocation)
    return replace(full, residual=(*full.residual[:-1], capacity[-1] - used))


def returns_at_the_first_block(jobs: Any, capacity: Any, **rest: Any) -> WholeJobFilling:
    """The paper's Algorithm 1 to the letter: "the cluster is full" when one user's next task does not fit."""
    n = 0
    while True:
        cut = [own[:n] for own in jobs]
        if n == max(map(len, jobs)) or any(
            len(own) > started
            for own, started in zip(cut, fill_whole_jobs(cut, capacity, **rest).n_started, strict=True)
        ):
            return fill_whole_jobs([own[: max(0, n - 1)] for own in jobs], capacity, **rest)
        n += 1


def ignores_weights(jobs: Any, capacity: Any, **rest: Any) -> WholeJobFilling:
    return fill_whole_jobs(jobs, capacity, **(rest | {"weights": [Fraction(1)] * len(jobs)}))


def adds_raw_amounts(jobs: Any, capacity: Any, **rest: Any) -> WholeJobFilling:
    """Shares from amounts that were never divided by the capacity."""
    filling = fill_whole_jobs(jobs, [10**6] * len(capacity), **rest)
    left = list(capacity)
    order = []
    for agent, job in filling.order:
        if all(ask <= free for ask, free in zip(jobs[agent][job], left, strict=True)):
            left = [free - ask for ask, free in zip(jobs[agent][job], left, strict=True)]
            order.append((agent, job))
    return replace(filling, order=tuple(order))


def settles_ties_backwards(jobs: Any, capacity: Any, **rest: Any) -> WholeJobFilling:
    weights = list(rest["weights"])
    filling = fill_whole_jobs(list(jobs)[::-1], capacity, weights=weights[::-1])
    return replace(filling, order=tuple((len(weights) - 1 - agent, job) for agent, job in filling.order))


def with_tasks(change: Callable[[Any, Any, Any, Any], Any]) -> Callable[..., DivisibleFilling]:
    """A divisible filling that answers ``change(demand, capacity, weights, wanted)``."""

    def mutant(demand: Any, capacity: Any, weights: Any, *, max_tasks: Any) -> DivisibleFilling:
        real = progressive_filling(demand, capacity, weights, max_tasks=max_tasks)
        return replace(real, tasks=change(demand, capacity, weights, max_tasks))

    return mutant


def stops_when_the_first_resource_is_full(demand: Any, capacity: Any, weights: Any, wanted: Any) -> Any:
    rate = weights / (demand / capacity).max(axis=1)
    return np.minimum(wanted, rate * (capacity / (rate @ demand)).min())


def equal_tasks_instead_of_equal_shares(demand: Any, capacity: Any, weights: Any, wanted: Any) -> Any:
    return np.minimum(wanted, weights * (capacity / (weights @ demand)).min())


def favours_the_first(demand: Any, capacity: Any, weights: Any, wanted: Any) -> Any:
    skewed = weights * np.array([2.0] + [1.0] * (len(weights) - 1))
    return progressive_filling(demand, capacity, skewed, max_tasks=wanted).tasks


def equal_incomes(demand: Any, capacity: Any, weights: Any, wanted: Any) -> Any:
    del weights, wanted
    rows = tuple(tuple(int(ask) for ask in task) for task in demand)
    return np.array([float(n) for n in ceei_of_two(tuple(int(c) for c in capacity), (rows[0], rows[1]))])


def counts_only_what_runs(held: Any, demand: Any, **rest: Any) -> ShareTags:
    """Tags without the agent's earlier pending jobs."""
    return share_tags(held, demand * 0, **rest)


WHOLE = {
    "feasible": (checks.check_feasible, forgets_last_axis),
    "work-conserving": (checks.check_work_conserving, returns_at_the_first_block),
    "envy-free up to one job": (checks.check_envy_up_to_one_job, ignores_weights),
    "unit scaling": (lambda instance, whole: checks.check_unit_scaling(instance, 7, whole), adds_raw_amounts),
    "whole oracle": (checks.check_whole_oracle, settles_ties_backwards),
}
DIVISIBLE = {
    "Pareto": (checks.check_pareto, stops_when_the_first_resource_is_full),
    "sharing incentive": (checks.check_sharing_incentive, equal_tasks_instead_of_equal_shares),
    "envy-free": (checks.check_envy_freeness, favours_the_first),
    "permutation": (checks.check_permutation, favours_the_first),
    "divisible oracle": (checks.check_divisible_oracle, favours_the_first),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_property_rejects_its_mutant_and_accepts_the_real_one(name: str) -> None:
    check, mutant = WHOLE[name]
    assert rejects(check, mutant)
    assert not rejects(check, fill_whole_jobs)


@pytest.mark.parametrize("name", DIVISIBLE)
def test_divisible_property_rejects_its_mutant_and_accepts_the_real_one(name: str) -> None:
    check, mutant = DIVISIBLE[name]
    assert rejects(check, with_tasks(mutant))
    assert not rejects(check, progressive_filling)


def test_no_gain_by_lying_rejects_equal_incomes() -> None:
    """CEEI is not strategy-proof (NSDI'11 section 5): the same check that DRF passes must fail for it."""
    equal = [
        replace(i, weights=(Fraction(1),) * 2)
        for i in problems(n_agents=2)
        if i.demand[0][0] * i.demand[1][1] != i.demand[0][1] * i.demand[1][0]
    ]
    lies = [lie for lie in itertools.product(range(3), repeat=2) if any(lie)]

    def gains(divisible: Callable[..., DivisibleFilling]) -> bool:
        for instance, lie in itertools.product(equal, lies):
            claimed = [ask + extra for ask, extra in zip(instance.demand[0], lie, strict=True)]
            if claimed[0] * instance.demand[1][1] == claimed[1] * instance.demand[1][0]:
                continue
            try:
                checks.check_no_gain_by_over_asking(instance, lie, divisible)
            except AssertionError:
                return True
        return False

    assert gains(with_tasks(equal_incomes))
    assert not gains(progressive_filling)


def test_order_rejects_tags_that_forget_the_queue() -> None:
    assert rejects(check_order_is_algorithm_1, counts_only_what_runs)
    assert not rejects(check_order_is_algorithm_1)


def test_replay_rejects_a_policy_with_a_memory() -> None:
    counter = itertools.count()

    def forgetful(*arguments: Any, now: float) -> Plan:
        return replace(decide(*arguments, now=now), at_s=now + next(counter))

    observation = make_observation([make_job("1"), make_job("2", "b")])
    check_replay(observation)
    with pytest.raises(AssertionError):
        check_replay(observation, forgetful)


def test_no_flapping_rejects_a_factor_without_hysteresis() -> None:
    def twitchy(*arguments: Any, tuning: Any, **rest: Any) -> SlaMemory:
        return update_sla_factor(*arguments, tuning=replace(tuning, hysteresis_frac=0.0), **rest)

    ratios = ([1.47] * 40 + [1.53] * 40) * 2
    check_does_not_flap(ratios)
    with pytest.raises(AssertionError):
        check_does_not_flap(ratios, update=twitchy)
