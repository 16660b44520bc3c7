"""The SLA state's pull on an agent's weight: ``weight = base_weight * factor``, factor in [1/b, b].

The factor follows the worst known ratio of an indicator to its target (queue wait, P99 latency, error rate). It is
smoothed on a log scale, so that twice and half as much pull equally far, moves only by more than the hysteresis, and is
rounded to 1/100, so that weights stay exact. An unknown or stale indicator is ignored, never read as zero; with none
known the factor drifts back to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from policies.plan import SlaMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.records import AgentName, IndicatorSample
    from policies.site_policy import SlaTargets, SlaTuning

FACTOR_STEPS: Final = 100
"""Factors are whole multiples of 1/FACTOR_STEPS, except at a bound that is not."""

QUEUE_WAIT: Final = "queue_wait_s"
P99_LATENCY: Final = "p99_latency_s"
ERROR_RATE: Final = "error_rate_frac"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorReading:
    """One indicator against its target.

    Attributes
    ----------
    value : float or None
        ``None`` if no sample is known.
    ratio : float or None
        ``value / target``; above 1 the promise is broken; ``None`` if unknown or stale.
    note : str
        Why it is ignored, empty if it counts.
    """

    name: str
    value: float | None
    target: float
    ratio: float | None
    note: str = ""


def read_indicators(
    targets: SlaTargets,
    samples: Iterable[IndicatorSample],
    *,
    queue_wait_s: float | None,
    max_age_s: float,
    now: float,
) -> tuple[IndicatorReading, ...]:
    """Each promised indicator of one agent, in a fixed order.

    Parameters
    ----------
    targets : SlaTargets
    samples : iterable of IndicatorSample
        Of this agent; of several with one name the youngest counts.
    queue_wait_s : float or None
        Longest wait among its startable pending jobs; ``None`` if nothing waits, which is unknown and not zero.
    max_age_s, now : float
        A sample further than ``max_age_s`` from ``now``, past or future, is stale.
    """
    youngest = {sample.name: sample for sample in sorted(samples, key=lambda s: (s.at_s, s.value))}
    readings = []
    if targets.queue_wait_s:
        readings.append(_read(QUEUE_WAIT, queue_wait_s, targets.queue_wait_s, "nothing startable waits"))
    for name, target in ((P99_LATENCY, targets.p99_latency_s), (ERROR_RATE, targets.error_rate_frac)):
        if not target:
            continue
        sample = youngest.get(name)
        if sample is None:
            readings.append(_read(name, None, target, "no sample"))
        elif abs(now - sample.at_s) > max_age_s:
            readings.append(IndicatorReading(name=name, value=sample.value, target=target, ratio=None, note="stale"))
        else:
            readings.append(_read(name, sample.value, target, "no sample"))
    return tuple(readings)


def _read(name: str, value: float | None, target: float, why_unknown: str) -> IndicatorReading:
    if value is None:
        return IndicatorReading(name=name, value=None, target=target, ratio=None, note=why_unknown)
    if not math.isfinite(value) or value < 0:
        return IndicatorReading(name=name, value=value, target=target, ratio=None, note="not a number >= 0")
    return IndicatorReading(name=name, value=value, target=target, ratio=value / target)


def update_sla_factor(
    agent: AgentName,
    readings: Sequence[IndicatorReading],
    *,
    memory: SlaMemory | None,
    tuning: SlaTuning,
    now: float,
) -> SlaMemory:
    """What the SLA weight remembers after this cycle; ``factor`` is the one to use now.

    Parameters
    ----------
    memory : SlaMemory or None
        From the cycle before; ``None`` starts at factor 1, so that a restart moves nothing at once.

    Returns
    -------
    SlaMemory
        ``smoothed`` is the natural logarithm of the smoothed ratio, in [-ln b, ln b].

    Notes
    -----
    ``x += (ln clamp(max ratio) - x) * (1 - exp(-dt / smoothing_s))``. The factor changes only when ``exp(x)`` differs
    from it by more than ``hysteresis_frac`` of it, so a signal that stays inside that band changes it at most once.
    """
    if memory is None:
        memory = SlaMemory(agent=agent, smoothed=0.0, factor=Fraction(1), at_s=now)
    if tuning.bound <= 1:
        return SlaMemory(agent=agent, smoothed=0.0, factor=Fraction(1), at_s=now)
    limit = math.log(tuning.bound)
    ratios = [reading.ratio for reading in readings if reading.ratio is not None]
    goal = _clamped_log(max(ratios), limit) if ratios else 0.0
    elapsed_s = max(0.0, now - memory.at_s)
    gain = 1.0 - math.exp(-elapsed_s / tuning.smoothing_s) if tuning.smoothing_s > 0 else 1.0
    before = min(limit, max(-limit, memory.smoothed))
    smoothed = before + (goal - before) * gain
    factor = _bounded(memory.factor, tuning.bound)
    if abs(math.exp(smoothed) / float(factor) - 1.0) > tuning.hysteresis_frac:
        factor = _bounded(Fraction(round(math.exp(smoothed) * FACTOR_STEPS), FACTOR_STEPS), tuning.bound)
    return SlaMemory(agent=agent, smoothed=smoothed, factor=factor, at_s=now)


def _clamped_log(ratio: float, limit: float) -> float:
    return min(limit, max(-limit, math.log(ratio))) if ratio > 0 else -limit


def _bounded(factor: Fraction, bound: Fraction) -> Fraction:
    return min(bound, max(1 / bound, factor))
