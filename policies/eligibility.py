"""Which pending jobs could start: Slurm's reason, the begin time, and whether any node could ever hold them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from policies.interning import Interned
from policies.plan import Finding
from policies.records import JobState
from policies.room import PartitionRoom, can_hold, compute_rooms
from policies.startability import Startability, read_reason
from policies.state import STARTABILITIES, STARTABLE_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.axes import Axes
    from policies.records import JobRecord, Observation, PartitionName, Tres

    Shape = tuple[Tres, tuple[str, ...], tuple[PartitionName, ...], int]

MAX_JOB_FINDINGS: Final = 50
"""Jobs that can never run are listed one by one up to this many; the rest are counted in one finding."""

CODES: Final = {value: code for code, value in enumerate(STARTABILITIES)}
"""Meaning -> code of ``PendingJobs.startability``."""

_PRIORITY: Final = attrgetter("priority")
_REASON: Final = attrgetter("reason")
_SHAPE: Final = attrgetter("tres", "requested_types", "partitions", "n_nodes")
_HELD_STATES: Final = (JobState.REQUEUE_HOLD, JobState.SPECIAL_EXIT, JobState.RESV_DEL_HOLD)
_NO_ROOM: Final = PartitionRoom()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eligibility:
    """Startability of each job.

    Attributes
    ----------
    codes : (n,) int64
        Index into ``STARTABILITIES``.
    shape : (n,) int64
        Number of what each job asks for and where, without gaps.
    """

    codes: NDArray[np.int64]
    shape: NDArray[np.int64]
    findings: tuple[Finding, ...]


def judge_jobs(jobs: Sequence[JobRecord], axes: Axes, observation: Observation) -> Eligibility:
    """Startability of managed pending jobs.

    Notes
    -----
    The first that applies: no node of its partitions can ever hold it; it is held (priority 0, a holding state or
    reason); Slurm's reason says so; its begin time lies ahead; only nodes that are down or drained could hold it.
    A het job starts as a whole: one component that cannot start keeps the others from starting.
    """
    reasons = Interned(map(_REASON, jobs))
    readings = {reason: read_reason(reason) for reason in reasons.values}
    rooms = compute_rooms(observation.nodes, axes.offered)
    shapes = Interned(map(_SHAPE, jobs))
    fits = shapes.spread(lambda shape: CODES[_judge_shape(rooms, axes, shape)])
    said = reasons.spread(lambda reason: CODES[readings[reason].startability])
    codes = _combine(jobs, fits, said, at_s=observation.at_s)
    _spread_over_het_jobs(jobs, codes)
    findings = [
        Finding(kind="unknown_reason", subject=reason, text=f"{readings[reason].words}: {n_jobs} job(s)")
        for reason, n_jobs in zip(reasons.values, reasons.counts(), strict=True)
        if not readings[reason].is_known
    ]
    return Eligibility(codes=codes, shape=shapes.codes, findings=(*findings, *_unplaceable_findings(jobs, fits)))


def _judge_shape(rooms: Mapping[PartitionName, PartitionRoom], axes: Axes, shape: Shape) -> Startability:
    tres, requested_types, partitions, n_nodes = shape
    request = axes.charged(tres, requested_types)
    chosen = [rooms.get(name, _NO_ROOM) for name in partitions]
    if not any(can_hold(room.configured, request, n_nodes) for room in chosen):
        return Startability.UNPLACEABLE
    if not any(can_hold(room.schedulable, request, n_nodes) for room in chosen):
        return Startability.NODES_DOWN
    return Startability.STARTABLE


def _combine(
    jobs: Sequence[JobRecord], fits: NDArray[np.int64], said: NDArray[np.int64], *, at_s: float
) -> NDArray[np.int64]:
    n_jobs = len(jobs)
    has_priority = np.fromiter(map(_PRIORITY, jobs), dtype=np.bool_, count=n_jobs)
    is_held_state = np.fromiter((j.state in _HELD_STATES for j in jobs), dtype=np.bool_, count=n_jobs)
    begin_s = np.fromiter((j.eligible_s or 0 for j in jobs), dtype=np.int64, count=n_jobs)
    return np.select(
        [
            fits == CODES[Startability.UNPLACEABLE],
            ~has_priority | is_held_state,
            said != STARTABLE_CODE,
            begin_s > at_s,
        ],
        [fits, CODES[Startability.HELD], said, CODES[Startability.DELAYED]],
        default=fits,
    ).astype(np.int64)


def _spread_over_het_jobs(jobs: Sequence[JobRecord], codes: NDArray[np.int64]) -> None:
    rows_of: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        if job.het_job_id:
            rows_of.setdefault(job.het_job_id, []).append(row)
    for rows in rows_of.values():
        blocking = [code for code in codes[rows].tolist() if code != STARTABLE_CODE]
        for row in rows:
            if blocking and codes[row] == STARTABLE_CODE:
                codes[row] = blocking[0]


def _unplaceable_findings(jobs: Sequence[JobRecord], fits: NDArray[np.int64]) -> list[Finding]:
    rows = np.flatnonzero(fits == CODES[Startability.UNPLACEABLE]).tolist()
    findings = [
        Finding(kind="unplaceable", subject=str(jobs[row].job_id), text=describe_unplaceable(jobs[row]))
        for row in rows[:MAX_JOB_FINDINGS]
    ]
    n_more = len(rows) - len(findings)
    if n_more:
        text = f"{n_more} more job(s) can never run"
        findings.append(Finding(kind="unplaceable", subject="more jobs", text=text))
    return findings


def describe_unplaceable(job: JobRecord) -> str:
    """Why the job can never run, in one line."""
    amounts = ",".join(f"{name}={amount}" for name, amount in job.tres)
    return f"can never run: no {max(1, job.n_nodes)} node(s) of {','.join(job.partitions)} can give {amounts}"
