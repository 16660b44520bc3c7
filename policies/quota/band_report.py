"""The bands in numbers for ``fairgpu status``, and what an operator should see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.census import split_job_id
from policies.plan import BandStanding, Finding
from policies.quota.amounts import GPU, add_tres, as_tres, format_tres
from policies.quota.apportionment import apportion
from policies.quota.names import BORROWED, Band, may_be_preempted_by
from policies.quota.steering import preempting_bands
from policies.records import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.quota.band_state import AgentBands, BandState
    from policies.quota.overflow import Overflow
    from policies.quota.steering import AgentUse
    from policies.records import AgentName, JobRecord
    from policies.state import ClusterState

MAX_FINDINGS: Final = 20
"""Jobs that exceed every band are listed one by one up to this many; the rest are counted."""

_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Per agent: what it lends; how many tasks wait outside the guaranteed band."""

    lent: tuple[Mapping[str, int], ...]
    n_moved_out: tuple[int, ...]


def band_findings(state: ClusterState, bands: BandState, overflow: Overflow) -> tuple[Finding, ...]:
    """What an operator should see.

    Jobs that can never run, GPUs that only caps keep idle, reservations, use on the wrong side of a band, running jobs
    that would die when they are taken back, and Preempt lists that nobody steers any more.
    """
    return (
        *_never(bands, overflow),
        *_idle(bands, overflow),
        *_reservations(state, overflow),
        *_elsewhere(state, bands),
        *_outside(state, bands),
        *_would_die(state, bands),
        *_foreign_in_lists(state, bands),
    )


def band_standings(
    state: ClusterState,
    bands: BandState,
    overflow: Overflow,
    uses: Sequence[AgentUse],
) -> tuple[BandStanding | None, ...]:
    """Each agent's bands in numbers; ``None`` for an agent without bands."""
    is_out = overflow.columns.here > 0
    n_out = np.zeros(len(bands.agents), dtype=np.int64)
    np.add.at(n_out, state.pending.agent[is_out], state.pending.n_tasks[is_out])
    totals = _Totals(lent=_lent(bands, uses), n_moved_out=tuple(n_out.tolist()))
    return tuple(
        None if own is None else _standing(agent, own, overflow, use=uses[agent], totals=totals)
        for agent, own in enumerate(bands.agents)
    )


def _lent(bands: BandState, uses: Sequence[AgentUse]) -> tuple[dict[str, int], ...]:
    """What each agent lends: the use above nominal quotas, split over the idle ones in proportion, exactly.

    Nobody lends more than is idle of its quota, since one unit more to split takes no unit from anybody and all that is
    idle goes back to its owners. What is used above nominal beyond all idle quota is lent by nobody.
    """
    over: dict[str, int] = {}
    for use in uses:
        add_tres(over, tuple(use.over.items()))
    lent: tuple[dict[str, int], ...] = tuple({} for _ in uses)
    limits = [{} if own is None else dict(own.guaranteed.grp_tres) for own in bands.agents]
    for name, amount in sorted(over.items()):
        idle = [max(0, own.get(name, 0) - use.total.get(name, 0)) for own, use in zip(limits, uses, strict=True)]
        for share, part in zip(lent, apportion(min(amount, sum(idle)), list(map(Fraction, idle))), strict=True):
            share[name] = part
    return lent


def _standing(agent: int, own: AgentBands, overflow: Overflow, *, use: AgentUse, totals: _Totals) -> BandStanding:
    used = overflow.used[agent]
    outside = dict(use.total)
    for amounts in used.values():
        add_tres(outside, tuple(amounts.items()), -1)
    return BandStanding(
        nominal=own.guaranteed.grp_tres,
        borrow_cap=() if own.borrow is None else own.borrow.grp_tres,
        guaranteed=as_tres(used[Band.GUARANTEED]),
        borrow=as_tres(used[Band.BORROW]),
        opportunistic=as_tres(used[Band.OPPORTUNISTIC]),
        outside=as_tres({name: max(0, amount) for name, amount in outside.items()}),
        claim=as_tres(overflow.claims[agent]),
        over=as_tres(use.over),
        lent=as_tres(totals.lent[agent]),
        n_moved_out=totals.n_moved_out[agent],
        has_borrow=own.borrow is not None,
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
    wishes = [(row, overflow.wishes.get(row)) for row in overflow.idle_rows[:_NAMED]]
    shown = "; ".join(f"{bands.pending[row].job_id}: {wish.reason}" for row, wish in wishes if wish is not None)
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


def _would_die(state: ClusterState, bands: BandState) -> list[Finding]:
    """Running jobs on borrowed quota that Slurm cannot requeue, whoever put them there."""
    mortal = [
        (state.agents[owner].name, job)
        for owner, job in bands.counted()
        if bands.place_of.get(job.qos, (owner, Band.GUARANTEED))[1] in BORROWED
        and not (job.is_batch and job.is_requeueable)
    ]
    mortal.sort(key=lambda found: split_job_id(found[1].job_id))
    findings = [
        Finding(kind="would_die", subject=str(job.job_id), text=_mortal(agent, job))
        for agent, job in mortal[:MAX_FINDINGS]
    ]
    if n_more := len(mortal) - len(findings):
        text = f"{n_more} more job(s) run on borrowed quota and die when it is taken back"
        findings.append(Finding(kind="would_die", subject="more jobs", text=text))
    return findings


def _mortal(agent: AgentName, job: JobRecord) -> str:
    what = f"runs in {job.qos}, on borrowed quota of agent {agent}, and dies when that is taken back: "
    if job.is_batch:
        return f"{what}it may not be requeued; scontrol update jobid={job.job_id} requeue=1 saves it"
    return (
        f"{what}it is no batch job; ask {job.user} to end it and to submit it with sbatch, or without --qos, "
        "and see with fairgpu doctor why the submit hook let it pass"
    )


def _foreign_in_lists(state: ClusterState, bands: BandState) -> list[Finding]:
    """Preempt lists with a name that the QOS helper refuses: the whole list stays as it is."""
    return [
        Finding(
            kind="foreign_in_list",
            subject=record.name,
            text=f"its Preempt list names {', '.join(foreign[:_NAMED])}, which FairGPU may not list there: the helper "
            f"refuses to steer this list of agent {state.agents[agent].name}; 'fairgpu apply' writes it without",
        )
        for agent, record, band in preempting_bands(bands)
        if (foreign := [name for name in record.preempt if not may_be_preempted_by(bands.cluster, band, name)])
    ]


def _elsewhere(state: ClusterState, bands: BandState) -> list[Finding]:
    """One finding per agent whose bands are charged for jobs that are not looked after here."""
    charged: dict[int, list[JobRecord]] = {}
    for agent, job in bands.charged_elsewhere():
        charged.setdefault(agent, []).append(job)
    return [_charged(state.agents[agent].name, jobs) for agent, jobs in sorted(charged.items())]


def _charged(agent: AgentName, jobs: Sequence[JobRecord]) -> Finding:
    total: dict[str, int] = {}
    for job in jobs:
        add_tres(total, job.tres)
    gpus = total.get(GPU, 0)
    amount = f"{gpus} GPU(s)" if gpus else format_tres(as_tres(total))
    text = (
        f"{amount} of its bands are used outside the managed partitions or by users without an agent "
        f"({_listed(jobs)}): Slurm charges them to its QOSes"
    )
    return Finding(kind="charged_elsewhere", subject=f"agent {agent}", text=text)


def _outside(state: ClusterState, bands: BandState) -> list[Finding]:
    """One finding per agent with bands whose managed jobs hold GPUs in a QOS that is no band of anybody."""
    found: dict[int, list[JobRecord]] = {}
    for agent, job in bands.running:
        is_outside = bands.agents[agent] is not None and job.qos not in bands.place_of
        if is_outside and job.state is not JobState.COMPLETING and _gpus(job):
            found.setdefault(agent, []).append(job)
    return [
        Finding(
            kind="outside_bands",
            subject=f"agent {state.agents[agent].name}",
            text=f"{sum(map(_gpus, jobs))} GPU(s) run outside its bands in QOS "
            f"{', '.join(sorted({job.qos or '(none)' for job in jobs}))} ({_listed(jobs)}): nobody can take them back",
        )
        for agent, jobs in sorted(found.items())
    ]


def _gpus(job: JobRecord) -> int:
    return dict(job.tres).get(GPU, 0)


def _listed(jobs: Sequence[JobRecord]) -> str:
    ids = sorted((job.job_id for job in jobs), key=split_job_id)
    more = f" and {len(ids) - _NAMED} more" if ids[_NAMED:] else ""
    return f"jobs {', '.join(ids[:_NAMED])}{more}"
