"""DRF's properties hold for whole and divisible jobs (STYLE.md H.40)."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.policies.fairness import drf_checks as checks
from tests.strategies import DrfInstance, drf_instances


@given(drf_instances())
def test_whole_filling_is_feasible(instance: DrfInstance) -> None:
    checks.check_feasible(instance)


@given(drf_instances())
def test_whole_filling_leaves_nothing_that_fits(instance: DrfInstance) -> None:
    checks.check_work_conserving(instance)


@given(drf_instances())
def test_divisible_filling_is_pareto_optimal(instance: DrfInstance) -> None:
    checks.check_pareto(instance)


@given(drf_instances())
def test_divisible_filling_gives_sharing_incentive(instance: DrfInstance) -> None:
    checks.check_sharing_incentive(instance)


@given(drf_instances())
def test_divisible_filling_is_envy_free(instance: DrfInstance) -> None:
    checks.check_envy_freeness(instance)


@given(drf_instances())
def test_whole_filling_is_envy_free_up_to_one_job(instance: DrfInstance) -> None:
    checks.check_envy_up_to_one_job(instance)


@given(drf_instances(max_axes=2), st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_nobody_gains_by_over_asking(instance: DrfInstance, lie: tuple[int, int]) -> None:
    checks.check_no_gain_by_over_asking(instance, lie[: len(instance.capacity)])


@given(drf_instances(), st.integers(2, 1_000_000))
def test_units_do_not_matter(instance: DrfInstance, factor: int) -> None:
    checks.check_unit_scaling(instance, factor)


@given(drf_instances())
def test_order_of_agents_does_not_matter(instance: DrfInstance) -> None:
    checks.check_permutation(instance)


@given(drf_instances())
def test_whole_filling_equals_the_paper_written_down_naively(instance: DrfInstance) -> None:
    checks.check_whole_oracle(instance)


@given(drf_instances())
def test_divisible_filling_equals_exact_event_by_event_filling(instance: DrfInstance) -> None:
    checks.check_divisible_oracle(instance)


@given(drf_instances())
def test_only_the_ratio_of_weights_matters(instance: DrfInstance) -> None:
    thirds = tuple(weight * Fraction(7, 3) for weight in instance.weights)
    other = DrfInstance(capacity=instance.capacity, demand=instance.demand, weights=thirds, n_tasks=instance.n_tasks)
    assert checks.fill(other).order == checks.fill(instance).order
