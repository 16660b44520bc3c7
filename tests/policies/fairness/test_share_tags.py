"""Vectorised tags equal the plain formula, in int64 and in Python integers, and order jobs as Algorithm 1 does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness.share import standing_tag
from policies.fairness.share_tags import ShareTags, as_exact, share_tags
from policies.fairness.site_factor import compute_site_factor
from policies.fairness.whole_jobs import fill_whole_jobs
from tests.strategies import DrfInstance, drf_instances


def tags_of(instance: DrfInstance, *, unit: int = 1, implementation: Any = share_tags) -> ShareTags:
    """Tags of the instance's jobs on an empty cluster; axis amounts in ``unit``."""
    demand = [task for own in instance.jobs for task in own]
    agent = [i for i, own in enumerate(instance.jobs) for _ in own]
    n_axes = len(instance.capacity)
    dtype: Any = object if unit > 10**6 else np.int64
    tags: ShareTags = implementation(
        np.zeros((len(instance.demand), n_axes), dtype=dtype),
        np.array(demand, dtype=dtype).reshape(len(demand), n_axes) * unit,
        agent=np.array(agent, dtype=np.int64),
        weights=instance.weights,
        capacity=tuple(cap * unit for cap in instance.capacity),
    )
    return tags


def start_order(instance: DrfInstance, tags: ShareTags) -> list[int]:
    """Agents in the order of starts by smallest tag, first agent on ties, when a blocked head stops its agent."""
    agent = [i for i, own in enumerate(instance.jobs) for _ in own]
    rows = sorted(range(len(agent)), key=lambda row: (tags.tag(row), row))
    left = list(instance.capacity)
    stopped: set[int] = set()
    order = []
    for who in (agent[row] for row in rows):
        task = instance.demand[who]
        if who in stopped or any(ask > free for ask, free in zip(task, left, strict=True)):
            stopped.add(who)
            continue
        left = [free - ask for ask, free in zip(task, left, strict=True)]
        order.append(who)
    return order


def check_order_is_algorithm_1(instance: DrfInstance, implementation: Any = share_tags) -> None:
    expected = [who for who, _ in fill_whole_jobs(instance.jobs, instance.capacity, weights=instance.weights).order]
    assert start_order(instance, tags_of(instance, implementation=implementation)) == expected


@given(drf_instances())
def test_smallest_tag_first_is_algorithm_1(instance: DrfInstance) -> None:
    check_order_is_algorithm_1(instance)


@given(drf_instances(), st.sampled_from([1, 10**3, 10**30]))
def test_tags_equal_the_plain_formula(instance: DrfInstance, unit: int) -> None:
    tags = tags_of(instance, unit=unit)
    capacity = [cap * unit for cap in instance.capacity]
    row = 0
    for task, weight, n in zip(instance.demand, instance.weights, instance.n_tasks, strict=True):
        for k in range(n):
            expected = standing_tag([k * ask * unit for ask in task], capacity, weight)
            assert tags.tag(row) == expected
            assert tags.site_factors(40_000)[row] == compute_site_factor(expected, 40_000)
            row += 1


def test_small_numbers_stay_int64_and_large_ones_do_not_overflow() -> None:
    instance = DrfInstance(capacity=(9, 18), demand=((1, 4),), weights=(Fraction(1),), n_tasks=(3,))
    assert tags_of(instance).numerator.dtype == np.int64
    assert tags_of(instance, unit=10**30).start.dtype == object
    assert tags_of(instance, unit=10**30).tag(2) == Fraction(4, 9)


def test_weight_zero_has_no_tag_and_keeps_the_unweighted_share() -> None:
    tags = share_tags(
        np.array([[2], [2]]),
        np.array([[1], [1]]),
        agent=np.array([0, 1]),
        weights=(Fraction(0), Fraction(1, 2)),
        capacity=(8,),
    )
    assert tags.tag(0) is None
    assert Fraction(int(tags.numerator[0]), tags.denominator) == Fraction(1, 4)
    assert tags.tag(1) == Fraction(1, 2)
    assert tags.site_factors(100).tolist() == [1, 66]


def test_all_weights_zero() -> None:
    tags = share_tags(np.array([[2]]), np.array([[1]]), agent=np.array([0]), weights=(Fraction(0),), capacity=(8,))
    assert (tags.tag(0), tags.site_factors(100).tolist()) == (None, [1])


def test_near_means_within_one_capacity_unweighted() -> None:
    tags = share_tags(
        np.array([[0]]),
        np.array([[4], [4], [4]]),
        agent=np.array([0, 0, 0]),
        weights=(Fraction(1, 10),),
        capacity=(8,),
    )
    assert tags.is_near.tolist() == [True, True, False]


def test_axis_without_capacity_and_use_does_not_matter() -> None:
    tags = share_tags(
        np.array([[1, 0]]), np.array([[1, 0]]), agent=np.array([0]), weights=(Fraction(1),), capacity=(4, 0)
    )
    assert tags.tag(0) == Fraction(1, 4)


def test_no_jobs() -> None:
    nothing = np.zeros((0, 1), dtype=np.int64)
    tags = share_tags(nothing, nothing, agent=np.zeros(0, dtype=np.int64), weights=(), capacity=(1,))
    assert tags.site_factors(100).tolist() == []


def test_as_exact_keeps_values() -> None:
    assert as_exact(np.array([1, 2]), 2**70).dtype == object
    assert as_exact(np.array([1, 2]), 2).tolist() == [1, 2]
