"""Whose loans Slurm recalls: Preempt lists and borrow ranks, from who is above nominal quota.

Slurm does the reclaim itself; these two say what it may choose from and in which order. An agent at or below its
nominal quota is in nobody else's list; of the others the one furthest above, with its own waiting claim counted, has
the lowest rank and is recalled first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from policies.plan import SetBorrowRank, SetPreemptList
from policies.quota.amounts import add_tres, excess, format_tres
from policies.quota.layout import LOWEST_BORROW_PRIORITY, N_BORROW_RANKS
from policies.quota.names import Band

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from policies.quota.band_state import BandState
    from policies.records import QosRecord
    from policies.state import ClusterState

_NAMED: Final = 5
"""This many agents are named in a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUse:
    """What one agent's jobs use, in its bands and outside them, and what foreign jobs use of its bands.

    Attributes
    ----------
    over : mapping of str to int
        By how much that is above nominal, per limited TRES; empty at or below nominal, and without bands.
    """

    total: Mapping[str, int]
    over: Mapping[str, int]


def agent_uses(bands: BandState) -> tuple[AgentUse, ...]:
    """Use of each agent."""
    used: list[dict[str, int]] = [{} for _ in bands.agents]
    for agent, job in bands.counted():
        add_tres(used[agent], job.tres)
    return tuple(
        AgentUse(total=total, over={} if own is None else excess(own.guaranteed.grp_tres, total))
        for own, total in zip(bands.agents, used, strict=True)
    )


def steer_ranks(
    state: ClusterState, bands: BandState, uses: Sequence[AgentUse], claims: Sequence[Mapping[str, int]]
) -> list[SetBorrowRank]:
    """Changes of the borrow QOSes' priorities."""
    capacity = dict(zip(state.tres, state.capacity, strict=True))
    changes = []
    for agent, own in enumerate(bands.agents):
        if own is None or own.borrow is None:
            continue
        wanted = dict(uses[agent].total)
        add_tres(wanted, tuple(claims[agent].items()))
        over = excess(own.guaranteed.grp_tres, wanted)
        new = LOWEST_BORROW_PRIORITY + rank_class(over, capacity)
        if new != own.borrow.priority:
            claim = f", {format_tres(sorted(claims[agent].items()))} of it claimed" if claims[agent] else ""
            reason = f"{format_tres(sorted(over.items()))} above its nominal quota{claim}"
            changes.append(
                SetBorrowRank(
                    qos=own.borrow.name,
                    agent=state.agents[agent].name,
                    old=own.borrow.priority,
                    new=new,
                    reason=reason,
                )
            )
    return changes


def rank_class(over: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """Class of an agent that is ``over`` its nominal quota: 0 for the furthest, 7 for none at all.

    Notes
    -----
    By the largest part of the cluster that it is above nominal, in halves: more than a half is class 0, more than a
    quarter class 1, and so on. Agents within a factor of two share a class, so that Slurm's preference for smaller jobs
    decides between them.

    Examples
    --------
    >>> rank_class({"gres/gpu": 5}, {"gres/gpu": 16}), rank_class({}, {})
    (1, 7)
    """
    shares = [Fraction(amount, capacity[name]) for name, amount in over.items() if capacity.get(name)]
    if not over:
        return N_BORROW_RANKS - 1
    share, rank, bound = max(shares, default=Fraction(1)), 0, Fraction(1, 2)
    while share <= bound and rank < N_BORROW_RANKS - 2:
        rank, bound = rank + 1, bound / 2
    return rank


def steer_lists(
    state: ClusterState, bands: BandState, uses: Sequence[AgentUse], occupied: Collection[str]
) -> list[SetPreemptList]:
    """Changes of the Preempt lists: agents at or below nominal leave the others' lists.

    Parameters
    ----------
    occupied : collection of str
        QOSes that hold a running job, or a pending one before or after this cycle's moves.

    Notes
    -----
    An agent's own loans stay in its own lists. A band of its own that no job is in is left out: it has nothing to take
    back, and so most lists are equal, which Slurm is told in one command per value. Equal lists are neighbours here,
    for the same reason. A name in a list that is not a band of an agent here is left where it is.

    A borrow QOS never gets an empty list: slurmdbd 22.05 keeps a wrong one in memory instead, and until it is restarted
    refuses every list that names this QOS ("QOS Preemption loop detected"). An opportunistic QOS that no job is in
    stands for "nothing", the same one for all.
    """
    above = [agent for agent, use in enumerate(uses) if use.over]
    shared = {band: frozenset(name for agent in above for name in _takeable(bands, agent, band)) for band in Band}
    names = [state.agents[agent].name for agent in above]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if names[_NAMED:] else "")
    nothing = _unoccupied(bands, occupied)
    changes = []
    for agent, record, band in preempting_bands(bands):
        own = frozenset(occupied).intersection(_takeable(bands, agent, band)) - shared[band]
        foreign = {name for name in record.preempt if name not in bands.place_of}
        new = tuple(sorted(foreign | shared[band] | own)) or (nothing if band is Band.BORROW else ())
        if new != record.preempt:
            reason = f"loans of agents above nominal: {listed or 'none now'}" + ("; and its own" if own else "")
            changes.append(
                SetPreemptList(
                    qos=record.name, agent=state.agents[agent].name, old=record.preempt, new=new, reason=reason
                )
            )
    return sorted(changes, key=lambda change: (change.new, change.qos))


def occupied_bands(bands: BandState, wished: Iterable[str]) -> frozenset[str]:
    """QOSes of ours that a job is in or, by ``wished``, will be in."""
    jobs = (job.qos for _, job in bands.counted())
    names = {*jobs, *(job.qos for job in bands.foreign), *(job.qos for job in bands.pending), *wished}
    return frozenset(part for name in names for part in name.split(",") if part in bands.place_of)


def _unoccupied(bands: BandState, occupied: Collection[str]) -> tuple[str, ...]:
    """The first opportunistic QOS that no job is in, as a list; empty if there is none."""
    names = (name for name, (_, band) in bands.place_of.items() if band is Band.OPPORTUNISTIC)
    return tuple(sorted(set(names).difference(occupied))[:1])


def preempting_bands(bands: BandState) -> Iterator[tuple[int, QosRecord, Band]]:
    """QOSes with a Preempt list, each with the index of its agent and its band."""
    for agent, own in enumerate(bands.agents):
        for band in (Band.GUARANTEED, Band.BORROW) if own is not None else ():
            record = None if own is None else own.qos(band)
            if record is not None:
                yield agent, record, band


def _takeable(bands: BandState, agent: int, band: Band) -> list[str]:
    """QOSes of the agent that a band may preempt: borrow only by guaranteed, opportunistic by both."""
    own = bands.agents[agent]
    kinds = {Band.GUARANTEED: (Band.BORROW, Band.OPPORTUNISTIC), Band.BORROW: (Band.OPPORTUNISTIC,)}.get(band, ())
    records = [None if own is None else own.qos(kind) for kind in kinds]
    return [record.name for record in records if record is not None]
