"""Exact shares, tags and site factors of one agent."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness.share import dominant_axis, dominant_share, standing_tag
from policies.fairness.site_factor import QUANTUM, compute_site_factor, quantise_tag

tags = st.fractions(min_value=0, max_value=1000)


def test_dominant_share_is_the_largest_over_the_axes() -> None:
    assert dominant_share((3, 12), (9, 18)) == Fraction(2, 3)
    assert dominant_axis((3, 12), (9, 18)) == 1


def test_first_axis_wins_a_tie() -> None:
    assert dominant_axis((3, 6), (9, 18)) == 0


def test_nothing_held_is_share_zero_on_no_axis() -> None:
    assert dominant_share((0, 0), (9, 18)) == 0
    assert dominant_axis((0, 0), (9, 18)) is None


def test_amount_without_capacity_is_infinite() -> None:
    assert dominant_axis((1, 5), (0, 1)) == 0
    assert dominant_share((1, 5), (0, 1)) is None
    assert standing_tag((1, 5), (0, 1), Fraction(1)) is None


def test_tag_divides_by_the_weight() -> None:
    assert standing_tag((3, 12), (9, 18), Fraction(3, 5)) == Fraction(10, 9)
    assert standing_tag((0, 0), (9, 18), Fraction(3, 5)) == 0


@pytest.mark.parametrize("amounts", [(0, 0), (1, 1)])
def test_weight_zero_sorts_last(amounts: tuple[int, int]) -> None:
    assert standing_tag(amounts, (9, 18), Fraction(0)) is None


@given(
    st.lists(st.tuples(st.integers(0, 10**20), st.integers(1, 10**20)), min_size=1, max_size=5),
    st.fractions(min_value=Fraction(1, 1000), max_value=2),
)
def test_tag_equals_the_formula_in_fractions(pairs: list[tuple[int, int]], weight: Fraction) -> None:
    amounts, capacity = zip(*pairs, strict=True)
    assert standing_tag(amounts, capacity, weight) == max(Fraction(a, c) for a, c in pairs) / weight


@given(tags, tags, st.integers(1, 10**6))
def test_site_factor_falls_as_the_tag_rises(one: Fraction, other: Fraction, scale: int) -> None:
    low, high = sorted((one, other))
    assert scale >= compute_site_factor(low, scale) >= compute_site_factor(high, scale) >= 1


def test_site_factor_of_no_tag_is_the_lowest_and_never_zero() -> None:
    assert compute_site_factor(None, 40_000) == 1
    assert compute_site_factor(Fraction(10**12), 40_000) == 1


@given(tags)
def test_quantised_tag_gives_the_same_factor(tag: Fraction) -> None:
    assert tag - Fraction(1, QUANTUM) < quantise_tag(tag) <= tag
    assert compute_site_factor(quantise_tag(tag), 40_000) == compute_site_factor(tag, 40_000)
