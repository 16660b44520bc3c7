"""One job's band in plain words: where it waits, why, who may take it back, whom it takes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.plan import SetQos, StartNow
from policies.quota.amounts import describe_beyond
from policies.quota.band_plan import BandPlan, make_move
from policies.quota.eligible import why_not_borrow
from policies.quota.free_room import FreeRoom
from policies.quota.names import BORROWED, Band
from policies.quota.victims import list_loans, predict_victims
from policies.quota.wishes import BANDS
from policies.records import JobId, JobState

if TYPE_CHECKING:
    from policies.records import JobRecord, QosRecord
    from policies.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRoom:
    """Whether the bands have room for a pending job.

    Attributes
    ----------
    has_room : bool
        Whether by our count the band that it waits in admits it now, whatever Slurm said when it last looked.
    beyond : str
        What of its request is above its agent's quota itself, as ``12 gres/gpu of 8``; empty within the quota.
    takers : tuple of Band
        Borrowed bands that could take it at all.
    """

    has_room: bool = False
    beyond: str = ""
    takers: tuple[Band, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BandExplanation:
    """The bands' view of one job.

    Attributes
    ----------
    band : Band or None
        Its agent's band that its QOS is now, ``None`` for any other QOS.
    wanted : Band or None
        Where it should wait; ``None`` if it does not wait or is left alone.
    reason : str
        The rule behind ``wanted``, with its numbers; for a running job who may take it back.
    may_not_borrow : str
        What keeps it from borrowing, empty if nothing does.
    reclaimed_s : tuple of float
        When it was taken back within the window, seconds since the epoch.
    move, start_now : decision or None
        What this cycle does.
    takes_back : tuple of JobId
        Jobs that Slurm is expected to preempt for it, if it has to, besides those in ``ending``.
    ending : tuple of JobId
        Jobs that it may take from and that are ending now where it is expected to run.
    room : BandRoom
        Whether there is any; nothing of a running job.
    n_claims_before : int
        Waiting claims that come before this one. Slurm ends one job per node at a time, so they may hold it up.
    """

    band: Band | None
    wanted: Band | None
    reason: str
    may_not_borrow: str
    reclaimed_s: tuple[float, ...] = ()
    move: SetQos | None = None
    start_now: StartNow | None = None
    takes_back: tuple[JobId, ...] = ()
    ending: tuple[JobId, ...] = ()
    n_claims_before: int = 0
    room: BandRoom = BandRoom()


def explain_band(state: ClusterState, plan: BandPlan, job: JobRecord, agent: int) -> BandExplanation | None:
    """The bands' view of a job of an agent; ``None`` if the agent has no bands."""
    bands = plan.bands
    own = bands.agents[agent]
    if own is None:
        return None
    band = bands.band_of(agent, job)
    memory = plan.seen.get(job.job_id)
    barred = why_not_borrow(job, is_barred=memory is not None and memory.is_barred)
    reclaimed_s = () if memory is None else memory.reclaimed_s
    if job.job_id not in state.pending.job_ids:
        reason = _who_may_take(band, is_over=bool(plan.uses[agent].over))
        return BandExplanation(band=band, wanted=None, reason=reason, may_not_borrow=barred, reclaimed_s=reclaimed_s)
    row = state.pending.job_ids.index(job.job_id)
    wish = plan.overflow.wishes.get(row)
    claims = plan.overflow.claimants
    takes_back, ending = _takes_back(state, plan, job, own.guaranteed) if row in claims else ((), ())
    starts = [one for one in plan.urgent if isinstance(one, StartNow) and one.job_id == job.job_id]
    return BandExplanation(
        band=band,
        wanted=None if wish is None else wish.band,
        reason="it could not start now, so its band is left as it is" if wish is None else wish.reason,
        may_not_borrow=barred,
        reclaimed_s=reclaimed_s,
        move=make_move(state, bands, plan.overflow, row),
        start_now=starts[0] if starts else None,
        takes_back=takes_back,
        ending=ending,
        n_claims_before=claims.index(row) if row in claims else 0,
        room=_room(plan, row, own.guaranteed),
    )


def _room(plan: BandPlan, row: int, guaranteed: QosRecord) -> BandRoom:
    columns, wishes = plan.overflow.columns, plan.overflow.wishes
    return BandRoom(
        has_room=bool(wishes.is_admitted[row]) and int(wishes.band[row]) == int(columns.here[row]),
        beyond=describe_beyond(guaranteed.grp_tres, plan.bands.pending[row].tres),
        takers=tuple(band for band in BORROWED if columns.could_use[row, BANDS.index(band)]),
    )


def _who_may_take(band: Band | None, *, is_over: bool) -> str:
    if band not in BORROWED:
        return "nobody may take it back"
    others = " and of other agents, since its agent is above its nominal quota," if is_over else ""
    return f"it runs on borrowed resources: guaranteed jobs of its own agent{others} may take it back"


def _takes_back(
    state: ClusterState, plan: BandPlan, job: JobRecord, claimant: QosRecord
) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """Jobs that Slurm is expected to take for the claim, and those that are ending where it will run."""
    bands = plan.bands
    lists = {change.qos: change.new for change in plan.lists}
    preempt = lists.get(claimant.name, claimant.preempt)
    # Not by the list: a lender whose loans are ending may have left it already.
    ending = [
        one
        for agent, one in bands.running
        if one.state is JobState.COMPLETING and bands.band_of(agent, one) in BORROWED
    ]
    room = FreeRoom(bands.nodes, [one for _, one in bands.running] + list(bands.foreign))
    for one in ending:
        room.release(one)
    victims = predict_victims(job, list_loans(state, bands, preempt), room) or ()
    for loan in victims:
        room.release(loan.job)
    rows = frozenset(room.where(job) or ())
    here = (one.job_id for one in ending if not rows.isdisjoint(room.rows_of(one)))
    return tuple(loan.job.job_id for loan in victims), tuple(here)
