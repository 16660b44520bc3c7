"""From wanted site factors to a plan: only the changes that matter, most urgent first.

Each update costs slurmctld its write lock, so a job deep in its agent's queue is written only when it has no factor
yet or when its factor is too high; one that is too low cannot harm anybody and is corrected near the head (ADR 0004).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from policies.fairness.share import dominant_axis
from policies.job_queue import JobQueue, order_jobs
from policies.plan import BandMemory, Plan, SetSiteFactor, SlaMemory
from policies.quota.band_plan import BandPlan, plan_bands
from policies.site_policy import SitePolicy
from policies.standings import compute_standings, count_by_quota
from policies.state import NO_FACTOR
from policies.weights import AgentWeight, compute_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from policies.state import ClusterState

DEEP_SLACK: Final = 100
"""A deep job's factor may be too high by scale / DEEP_SLACK (1 %) before it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParams:
    """What every scheduling policy gets besides the state: the agreement and what was remembered."""

    site: SitePolicy
    sla_memory: tuple[SlaMemory, ...] = ()
    band_memory: tuple[BandMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FactorTargets:
    """What a policy wants, in the queue's order.

    Attributes
    ----------
    factors : (n,) int64
        In [1, scale].
    is_exact : (n,) bool
        Whether any difference is written; elsewhere only a missing or clearly too high factor is.
    """

    factors: NDArray[np.int64]
    is_exact: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """Weights and queue of one cycle: what a plan is made from and an explanation prints."""

    weights: tuple[AgentWeight, ...]
    queue: JobQueue


def rank_jobs(state: ClusterState, params: PolicyParams, *, now: float) -> Ranking:
    """Weights of the agents and the order of their jobs."""
    weights = compute_weights(state, params.site, params.sla_memory, now=now)
    queue = order_jobs(state, [weight.weight for weight in weights], scale=params.site.factor_scale)
    return Ranking(weights=weights, queue=queue)


def plan_factors(
    state: ClusterState,
    params: PolicyParams,
    *,
    name: str,
    rule: Callable[[JobQueue, SitePolicy], FactorTargets],
    now: float,
) -> Plan:
    """Plan that brings the site factors to what ``rule`` wants, and the bands to where they belong."""
    ranking = rank_jobs(state, params, now=now)
    targets = rule(ranking.queue, params.site)
    changes = np.flatnonzero(needs_write(state, ranking.queue, targets, scale=params.site.factor_scale))
    factors = tuple(
        make_decision(state, ranking, position, new=int(targets.factors[position]), name=name)
        for position in changes.tolist()
    )
    plan = Plan(
        at_s=now,
        policy=name,
        decisions=factors,
        standings=compute_standings(state, ranking.weights),
        tres=state.tres,
        capacity=state.capacity,
        sla_memory=tuple(weight.memory for weight in ranking.weights),
        findings=state.findings,
    )
    bands = rank_bands(state, ranking, params)
    return plan if bands is None else _with_bands(plan, state, bands)


def rank_bands(state: ClusterState, ranking: Ranking, params: PolicyParams) -> BandPlan | None:
    """What the bands decide in this cycle; ``None`` where the site file has none."""
    if state.bands is None or params.site.bands is None:
        return None
    order = ranking.queue.rows.tolist()
    return plan_bands(state, state.bands, params.site.bands, order=order, memory=params.band_memory)


def _with_bands(plan: Plan, state: ClusterState, bands: BandPlan) -> Plan:
    standings = count_by_quota(plan.standings, state, bands.overflow.wishes.has_quota)
    return replace(
        plan,
        decisions=(*bands.urgent, *plan.decisions, *bands.deferred),
        standings=tuple(replace(standing, bands=own) for standing, own in zip(standings, bands.standings, strict=True)),
        findings=(*plan.findings, *bands.findings),
        band_memory=bands.memory,
    )


def needs_write(state: ClusterState, queue: JobQueue, targets: FactorTargets, *, scale: int) -> NDArray[np.bool_]:
    """Which jobs of the queue get an update, (n,) bool, in queue order.

    A job that cannot start and shows no factor at all (held, not yet eligible) is left until it shows one.
    """
    old = state.pending.site_factor[queue.rows]
    is_unset = old == 0
    is_hidden = old == NO_FACTOR
    is_too_high = ~is_hidden & (old > targets.factors + scale // DEEP_SLACK)
    is_exact = targets.is_exact & queue.is_startable & (old != targets.factors)
    result: NDArray[np.bool_] = is_exact | is_unset | (is_hidden & queue.is_startable) | is_too_high
    return result


def make_decision(state: ClusterState, ranking: Ranking, position: int, *, new: int, name: str) -> SetSiteFactor:
    """The decision for the job at a position of the queue, with the numbers behind it."""
    queue = ranking.queue
    row, tag_row = int(queue.rows[position]), int(queue.tag_rows[position])
    weight = ranking.weights[int(state.pending.agent[row])]
    shown = int(state.pending.site_factor[row])
    start = [int(amount) for amount in queue.tags.start[tag_row]]
    return SetSiteFactor(
        job_id=state.pending.job_ids[row],
        agent=weight.agent,
        old=None if shown == NO_FACTOR else shown,
        new=new,
        tag=queue.tags.tag(tag_row),
        is_adoption=shown in (0, NO_FACTOR),
        reason=f"{name}: {_arithmetic(state, start, weight.weight)}",
    )


def _arithmetic(state: ClusterState, start: Sequence[int], weight: Fraction) -> str:
    axis = dominant_axis(start, state.capacity)
    if axis is None:
        return f"nothing held or queued before it, weight {weight}"
    return f"{start[axis]} of {state.capacity[axis]} {state.tres[axis]} held or queued before it, weight {weight}"
