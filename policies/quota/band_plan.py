"""One cycle of the bands: moves, ranks, Preempt lists, and what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.plan import BandMemory, BandStanding, Decision, Finding, SetPreemptList, SetQos, StartNow
from policies.quota.amounts import add_tres, excess
from policies.quota.band_report import band_findings, band_standings
from policies.quota.band_state import BandState
from policies.quota.memory import count_reclaims, keep_memory
from policies.quota.names import BORROWED
from policies.quota.overflow import Overflow, plan_overflow
from policies.quota.steering import AgentUse, agent_uses, occupied_bands, steer_lists, steer_ranks
from policies.quota.wishes import NO_BAND
from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.site_policy import BandPolicy
    from policies.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BandPlan:
    """What the bands decide, and the numbers behind it for explanations.

    Attributes
    ----------
    urgent : tuple of Decision
        Preempt lists and ranks, moves back, starts, moves of jobs that could start: before the site factors.
    deferred : tuple of Decision
        Moves that only keep the guaranteed band free: after them.
    uses : tuple of AgentUse
        Per agent.
    seen : mapping of JobId to BandMemory
        Reclaims counted so far.
    lists : tuple of SetPreemptList
        Those among ``urgent``.
    bands : BandState
        What it was decided from.
    """

    urgent: tuple[Decision, ...]
    deferred: tuple[Decision, ...]
    standings: tuple[BandStanding | None, ...]
    findings: tuple[Finding, ...]
    memory: tuple[BandMemory, ...]
    overflow: Overflow
    uses: tuple[AgentUse, ...]
    seen: Mapping[JobId, BandMemory]
    lists: tuple[SetPreemptList, ...]
    bands: BandState


def plan_bands(
    state: ClusterState, bands: BandState, policy: BandPolicy, *, order: Sequence[int], memory: Sequence[BandMemory]
) -> BandPlan:
    """Decide for the bands.

    Parameters
    ----------
    order : sequence of int
        Pending rows, first to start first.
    memory : sequence of BandMemory
        Of the cycle before.
    """
    seen = count_reclaims(state, bands, memory, policy)
    barred = frozenset(job_id for job_id, item in seen.items() if item.is_barred)
    overflow = plan_overflow(state, bands, order, policy=policy, barred=barred)
    uses = agent_uses(bands)
    back, out, parked = _moves(state, bands, overflow, order)
    occupied = occupied_bands(bands, (move.new for move in (*back, *out, *parked)))
    lists = tuple(steer_lists(state, bands, uses, occupied))
    ranks = steer_ranks(state, bands, uses, overflow.claims)
    return BandPlan(
        urgent=(*lists, *ranks, *back, *_starts(state, bands, overflow, uses), *out),
        deferred=tuple(parked),
        standings=band_standings(state, bands, overflow, uses),
        findings=band_findings(state, bands, overflow),
        memory=_remember(bands, overflow, seen),
        overflow=overflow,
        uses=uses,
        seen=seen,
        lists=lists,
        bands=bands,
    )


def make_move(state: ClusterState, bands: BandState, overflow: Overflow, row: int) -> SetQos | None:
    """The move of one pending job, if it should wait in another QOS than it does."""
    wish = overflow.wishes.get(row)
    agent, job = int(state.pending.agent[row]), bands.pending[row]
    own = bands.agents[agent]
    record = None if own is None or wish is None else own.qos(wish.band)
    if wish is None or record is None or record.name == job.qos:
        return None
    return SetQos(job_id=job.job_id, agent=state.agents[agent].name, old=job.qos, new=record.name, reason=wish.reason)


def _moves(
    state: ClusterState, bands: BandState, overflow: Overflow, order: Sequence[int]
) -> tuple[list[SetQos], list[SetQos], list[SetQos]]:
    """Back to guaranteed; out to where they could start; out of a reserved guaranteed band."""
    wishes = overflow.wishes
    rows = np.array(order, dtype=np.int64)
    is_elsewhere = (wishes.band != NO_BAND) & (wishes.band != overflow.columns.here)
    rows = rows[is_elsewhere[rows]]
    is_parked = wishes.is_parked[rows]
    is_back = (wishes.band[rows] == 0) & ~is_parked
    back, out, parked = (
        [move for row in rows[chosen].tolist() if (move := make_move(state, bands, overflow, row)) is not None]
        for chosen in (is_back, ~is_back & ~is_parked, is_parked)
    )
    return back, out, parked


def _starts(state: ClusterState, bands: BandState, overflow: Overflow, uses: Sequence[AgentUse]) -> list[StartNow]:
    """Victims whose agent stays at or below nominal when they start."""
    starts = []
    used = [dict(use.total) for use in uses]
    for row in overflow.victims:
        agent, job = int(state.pending.agent[row]), bands.pending[row]
        own = bands.agents[agent]
        after = dict(used[agent])
        add_tres(after, job.tres)
        if own is not None and not excess(own.guaranteed.grp_tres, after):
            used[agent] = after
            reason = "it was taken back, and its agent is below its nominal quota: no delay after the requeue"
            starts.append(StartNow(job_id=job.job_id, agent=state.agents[agent].name, reason=reason))
    return starts


def _remember(bands: BandState, overflow: Overflow, seen: Mapping[JobId, BandMemory]) -> tuple[BandMemory, ...]:
    wanted = overflow.wishes.band
    rows = np.flatnonzero(np.where(wanted == NO_BAND, overflow.columns.here, wanted) > 0)
    waiting = {bands.pending[row].job_id: bands.pending[row] for row in rows.tolist()}
    running = frozenset(job.job_id for agent, job in bands.running if bands.band_of(agent, job) in BORROWED)
    return keep_memory(seen, waiting, running)
