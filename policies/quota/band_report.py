"""The bands in numbers for ``fairgpu status``, and what an operator should see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.plan import BandStanding, Finding
from policies.quota.amounts import add_tres, as_tres, format_tres
from policies.quota.band_state import BORROWED
from policies.quota.names import Band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.quota.band_state import AgentBands, BandState
    from policies.quota.overflow import Overflow
    from policies.quota.steering import AgentUse
    from policies.state import ClusterState

MAX_FINDINGS: Final = 20
"""Jobs that exceed every band are listed one by one up to this many; the rest are counted."""

_NAMED: Final = 3


def band_findings(state: ClusterState, bands: BandState, overflow: Overflow) -> tuple[Finding, ...]:
    """Jobs that can never run, GPUs that only caps keep idle, and reservations."""
    return (*_never(bands, overflow), *_idle(bands, overflow), *_reservations(state, overflow))


def band_standings(
    state: ClusterState,
    bands: BandState,
    overflow: Overflow,
    uses: Sequence[AgentUse],
) -> tuple[BandStanding | None, ...]:
    """Each agent's bands in numbers; ``None`` for an agent without bands."""
    n_out = [0] * len(bands.agents)
    for row, wish in overflow.wishes.items():
        if wish.band in BORROWED:
            n_out[int(state.pending.agent[row])] += max(1, bands.pending[row].n_tasks)
    return tuple(
        None if own is None else _standing(agent, own, overflow, uses=uses, n_moved_out=n_out[agent])
        for agent, own in enumerate(bands.agents)
    )


def _standing(
    agent: int,
    own: AgentBands,
    overflow: Overflow,
    *,
    uses: Sequence[AgentUse],
    n_moved_out: int,
) -> BandStanding:
    used = overflow.used[agent]
    outside = dict(uses[agent].total)
    for amounts in used.values():
        add_tres(outside, tuple(amounts.items()), -1)
    lent = {
        name: min(max(0, limit - uses[agent].total.get(name, 0)), sum(use.over.get(name, 0) for use in uses))
        for name, limit in own.guaranteed.grp_tres
    }
    return BandStanding(
        nominal=own.guaranteed.grp_tres,
        borrow_cap=() if own.borrow is None else own.borrow.grp_tres,
        guaranteed=as_tres(used[Band.GUARANTEED]),
        borrow=as_tres(used[Band.BORROW]),
        opportunistic=as_tres(used[Band.OPPORTUNISTIC]),
        outside=as_tres({name: max(0, amount) for name, amount in outside.items()}),
        claim=as_tres(overflow.claims[agent]),
        over=as_tres(uses[agent].over),
        lent=as_tres(lent),
        n_moved_out=n_moved_out,
    )


def _never(bands: BandState, overflow: Overflow) -> list[Finding]:
    findings = [
        Finding(
            kind="exceeds_bands",
            subject=str(bands.pending[row].job_id),
            text=f"can never run: {format_tres(bands.pending[row].tres)} is more than any band it may use admits",
        )
        for row in overflow.never[:MAX_FINDINGS]
    ]
    n_more = len(overflow.never) - len(findings)
    if n_more:
        text = f"{n_more} more job(s) ask for more than any band they may use admits"
        findings.append(Finding(kind="exceeds_bands", subject="more jobs", text=text))
    return findings


def _idle(bands: BandState, overflow: Overflow) -> list[Finding]:
    if not overflow.idle_gpus:
        return []
    n_jobs = len(overflow.idle_rows)
    shown = "; ".join(
        f"{bands.pending[row].job_id}: {overflow.wishes[row].reason}" for row in overflow.idle_rows[:_NAMED]
    )
    text = f"{overflow.idle_gpus} GPU(s) are idle while {n_jobs} job(s) wait because of caps ({shown})"
    return [Finding(kind="idle_by_policy", subject="gpus", text=text)]


def _reservations(state: ClusterState, overflow: Overflow) -> list[Finding]:
    return [
        Finding(
            kind="reservation",
            subject=str(kept.job_id),
            text=f"has waited {kept.waited_s} s for room in the guaranteed band of {state.agents[agent].name}: "
            "later jobs of the agent leave it the band until it starts",
        )
        for agent, kept in sorted(overflow.reservations.items())
    ]
