"""The SLA factor follows the worst known indicator, smoothly, and does not flap."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness.sla_weight import IndicatorReading, read_indicators, update_sla_factor
from policies.plan import SlaMemory
from policies.records import AgentName
from policies.site_policy import SlaTargets, SlaTuning
from tests.strategies import NOW, make_sample

if TYPE_CHECKING:
    from collections.abc import Sequence

RISK = AgentName("risk")
TUNING = SlaTuning(bound=Fraction(2), smoothing_s=60.0, hysteresis_frac=0.1, max_age_s=60.0)


def reading(ratio: float | None) -> IndicatorReading:
    return IndicatorReading(name="x", value=ratio, target=1.0, ratio=ratio)


def run(ratios: Sequence[float | None], *, step_s: float = 5.0, update: Any = update_sla_factor) -> list[Fraction]:
    """Factors over cycles ``step_s`` apart."""
    memory = SlaMemory(agent=RISK, smoothed=0.0, factor=Fraction(1), at_s=NOW)
    factors = []
    for cycle, ratio in enumerate(ratios, start=1):
        memory = update(RISK, [reading(ratio)], memory=memory, tuning=TUNING, now=NOW + cycle * step_s)
        factors.append(memory.factor)
    return factors


def read(targets: SlaTargets, *samples: Any, wait_s: float | None = None) -> dict[str, IndicatorReading]:
    readings = read_indicators(targets, samples, queue_wait_s=wait_s, max_age_s=60.0, now=NOW)
    return {reading.name: reading for reading in readings}


def test_nothing_promised_reads_nothing() -> None:
    assert read(SlaTargets(), make_sample("risk", "p99_latency_s", 1.0), wait_s=5.0) == {}


def test_each_promise_is_read_against_its_target() -> None:
    targets = SlaTargets(queue_wait_s=60.0, p99_latency_s=0.2, error_rate_frac=0.01)
    readings = read(
        targets,
        make_sample("risk", "p99_latency_s", 0.3),
        make_sample("risk", "p99_latency_s", 9.0, at_s=NOW - 1),
        make_sample("risk", "error_rate_frac", 0.005),
        wait_s=30.0,
    )
    assert [readings[name].ratio for name in readings] == pytest.approx([0.5, 1.5, 0.5])


@pytest.mark.parametrize("at_s", [NOW - 61, NOW + 61])
def test_stale_sample_is_unknown_not_zero(at_s: float) -> None:
    got = read(SlaTargets(p99_latency_s=0.2), make_sample("risk", "p99_latency_s", 0.4, at_s=at_s))
    assert (got["p99_latency_s"].ratio, got["p99_latency_s"].note) == (None, "stale")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_nonsense_sample_is_unknown(value: float) -> None:
    got = read(SlaTargets(error_rate_frac=0.1), make_sample("risk", "error_rate_frac", value))
    assert got["error_rate_frac"].ratio is None


def test_empty_queue_and_missing_sample_are_unknown() -> None:
    got = read(SlaTargets(queue_wait_s=60.0, p99_latency_s=0.2))
    assert [got[name].note for name in got] == ["nothing startable waits", "no sample"]


def test_first_cycle_starts_at_one_whatever_the_ratio() -> None:
    memory = update_sla_factor(RISK, [reading(9.0)], memory=None, tuning=TUNING, now=NOW)
    assert (memory.factor, memory.smoothed, memory.at_s) == (Fraction(1), 0.0, NOW)


def test_broken_promise_raises_the_factor_to_the_bound() -> None:
    factors = run([5.0] * 100)
    assert factors == sorted(factors)
    assert factors[-1] > Fraction(18, 10)  # within the hysteresis of 2


def test_worst_known_indicator_counts_and_unknown_is_ignored() -> None:
    start = SlaMemory(agent=RISK, smoothed=0.0, factor=Fraction(1), at_s=NOW)
    readings = [reading(None), reading(0.1), reading(2.0)]
    memory = update_sla_factor(RISK, readings, memory=start, tuning=TUNING, now=NOW + 60)
    # ln 2 * (1 - 1/e) after one time constant; e^0.438 = 1.55
    assert memory.smoothed == pytest.approx(math.log(2) * (1 - math.exp(-1)))
    assert memory.factor == Fraction(155, 100)


def test_kept_promise_lowers_the_factor_and_no_known_indicator_lets_it_drift_back() -> None:
    factors = run([0.0] * 60 + [None] * 200)
    assert factors[59] < Fraction(6, 10)
    assert abs(factors[-1] - 1) <= Fraction(1, 10)


def test_bound_one_switches_it_off() -> None:
    memory = SlaMemory(agent=RISK, smoothed=0.5, factor=Fraction(3, 2), at_s=NOW)
    off = SlaTuning(bound=Fraction(1))
    assert update_sla_factor(RISK, [reading(9.0)], memory=memory, tuning=off, now=NOW + 5).factor == 1


def test_no_smoothing_jumps_and_the_bound_need_not_be_a_hundredth() -> None:
    at_once = SlaTuning(bound=Fraction(3), smoothing_s=0.0)
    start = SlaMemory(agent=RISK, smoothed=0.0, factor=Fraction(1), at_s=NOW)
    assert update_sla_factor(RISK, [reading(0.0)], memory=start, tuning=at_once, now=NOW).factor == Fraction(1, 3)


def test_clock_that_runs_backwards_moves_nothing() -> None:
    start = SlaMemory(agent=RISK, smoothed=0.2, factor=Fraction(6, 5), at_s=NOW)
    assert update_sla_factor(RISK, [reading(9.0)], memory=start, tuning=TUNING, now=NOW - 100).factor == Fraction(6, 5)


def check_does_not_flap(ratios: list[float], update: Any = update_sla_factor) -> None:
    """A signal inside a band narrower than the hysteresis changes the factor at most once after it settled."""
    factors = run([1.5] * 200 + list(ratios), update=update)[199:]
    assert sum(one != other for one, other in pairwise(factors)) <= 1


in_band = st.lists(st.floats(1.47, 1.53), max_size=100)


@given(in_band)
def test_noise_inside_the_band_does_not_flap(ratios: list[float]) -> None:
    check_does_not_flap(ratios)


@given(st.floats(0.0, 10.0))
def test_steady_signal_moves_the_factor_one_way_and_then_never_again(ratio: float) -> None:
    factors = run([ratio] * 150)
    assert factors in (sorted(factors), sorted(factors, reverse=True))
    assert len(set(factors[100:])) == 1


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1e300)), max_size=40))
def test_factor_stays_in_its_bounds(ratios: list[float | None]) -> None:
    assert all(Fraction(1, 2) <= factor <= 2 and (factor * 100).denominator == 1 for factor in run(ratios))
