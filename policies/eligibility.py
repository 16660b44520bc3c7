"""Which pending jobs could start: Slurm's reason, the begin time, and whether any node could ever hold them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.plan import Finding
from policies.records import JobState
from policies.room import PartitionRoom, can_hold, compute_rooms
from policies.startability import ReasonReading, Startability, read_reason
from policies.state import STARTABILITIES, STARTABLE_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from policies.axes import Axes
    from policies.records import JobRecord, Observation, PartitionName

MAX_JOB_FINDINGS: Final = 50
"""Jobs that can never run are listed one by one up to this many; the rest are counted in one finding."""

_REASON: Final = attrgetter("reason")
_SHAPE: Final = attrgetter("tres", "requested_types", "partitions", "n_nodes")
_HELD_STATES: Final = frozenset({JobState.REQUEUE_HOLD, JobState.SPECIAL_EXIT, JobState.RESV_DEL_HOLD})
_NO_ROOM: Final = PartitionRoom()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Eligibility:
    """Startability of each job.

    Attributes
    ----------
    codes : (n,) int64
        Index into ``STARTABILITIES``.
    """

    codes: NDArray[np.int64]
    findings: tuple[Finding, ...]


def judge_jobs(jobs: Sequence[JobRecord], axes: Axes, observation: Observation) -> Eligibility:
    """Startability of managed pending jobs.

    Notes
    -----
    The first that applies: no node of its partitions can ever hold it; it is held (priority 0, a holding state or
    reason); Slurm's reason says so; its begin time lies ahead; only nodes that are down or drained could hold it.
    A het job starts as a whole: one component that cannot start keeps the others from starting.
    """
    reasons = list(map(_REASON, jobs))
    readings = {reason: read_reason(reason) for reason in dict.fromkeys(reasons)}
    fits = _judge_shapes(jobs, axes, observation)
    codes = _codes(jobs, [readings[reason] for reason in reasons], fits, observation.at_s)
    _spread_over_het_jobs(jobs, codes)
    findings = [
        Finding(kind="unknown_reason", subject=reason, text=f"{reading.words}: {reasons.count(reason)} job(s)")
        for reason, reading in readings.items()
        if not reading.is_known
    ]
    return Eligibility(codes=codes, findings=tuple([*findings, *_unplaceable_findings(jobs, fits)]))


def _judge_shapes(jobs: Sequence[JobRecord], axes: Axes, observation: Observation) -> list[Startability]:
    rooms = compute_rooms(observation.nodes, axes.offered)
    keys = list(map(_SHAPE, jobs))
    verdicts = {}
    for key in dict.fromkeys(keys):
        tres, requested_types, partitions, n_nodes = key
        verdicts[key] = _judge_shape(rooms, axes.charged(tres, requested_types), partitions, n_nodes)
    return list(map(verdicts.__getitem__, keys))


def _judge_shape(
    rooms: Mapping[PartitionName, PartitionRoom],
    request: tuple[int, ...],
    partitions: tuple[PartitionName, ...],
    n_nodes: int,
) -> Startability:
    chosen = [rooms.get(name, _NO_ROOM) for name in partitions]
    if not any(can_hold(room.configured, request, n_nodes) for room in chosen):
        return Startability.UNPLACEABLE
    if not any(can_hold(room.schedulable, request, n_nodes) for room in chosen):
        return Startability.NODES_DOWN
    return Startability.STARTABLE


def _codes(
    jobs: Sequence[JobRecord], readings: Sequence[ReasonReading], fits: Sequence[Startability], at_s: float
) -> NDArray[np.int64]:
    code_of = {value: code for code, value in enumerate(STARTABILITIES)}
    codes = np.full(len(jobs), STARTABLE_CODE, dtype=np.int64)
    startable = Startability.STARTABLE
    pending = JobState.PENDING
    for row, (job, reading, fit) in enumerate(zip(jobs, readings, fits, strict=True)):
        if (
            reading.startability is not startable
            or fit is not startable
            or not job.priority
            or job.state is not pending
            or (job.eligible_s is not None and job.eligible_s > at_s)
        ):
            codes[row] = code_of[_judge(job, reading, fit, at_s=at_s)]
    return codes


def _judge(job: JobRecord, reading: ReasonReading, fit: Startability, *, at_s: float) -> Startability:
    if fit is Startability.UNPLACEABLE:
        return fit
    if not job.priority or job.state in _HELD_STATES:
        return Startability.HELD
    if reading.startability is not Startability.STARTABLE:
        return reading.startability
    if job.eligible_s is not None and job.eligible_s > at_s:
        return Startability.DELAYED
    return fit


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


def _unplaceable_findings(jobs: Sequence[JobRecord], fits: Sequence[Startability]) -> list[Finding]:
    never = [job for job, fit in zip(jobs, fits, strict=True) if fit is Startability.UNPLACEABLE]
    findings = [
        Finding(
            kind="unplaceable",
            subject=str(job.job_id),
            text=f"can never run: no {max(1, job.n_nodes)} node(s) of {','.join(job.partitions)} can give "
            + ",".join(f"{name}={amount}" for name, amount in job.tres),
        )
        for job in never[:MAX_JOB_FINDINGS]
    ]
    n_more = len(never) - len(findings)
    if n_more:
        findings.append(
            Finding(kind="unplaceable", subject="more jobs", text=f"{n_more} more job(s) can never run")
        )
    return findings
