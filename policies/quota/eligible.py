"""Which jobs the bands may move, and which of them only wait for room in a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from policies.startability import Startability
from policies.state import STARTABILITIES, STARTABLE_CODE

if TYPE_CHECKING:
    from policies.quota.band_state import BandState
    from policies.records import JobRecord
    from policies.state import ClusterState

MAX_REQUEUE_DELAY_S: Final = 300
"""Slurm delays a requeued job by 121 s at its defaults; a begin time further ahead is the user's own."""

_OVER_LIMIT: Final = STARTABILITIES.index(Startability.OVER_LIMIT)
_DELAYED: Final = STARTABILITIES.index(Startability.DELAYED)


def may_borrow(job: JobRecord) -> bool:
    """Whether the job survives being taken back: a batch job that Slurm may requeue, and no part of a het job."""
    return job.is_batch and job.is_requeueable and not job.het_job_id


def why_not_borrow(job: JobRecord, *, is_barred: bool) -> str:
    """What keeps the job from borrowing, in plain words; empty if nothing does."""
    if not job.is_batch:
        return "only batch jobs borrow: srun and salloc die when they are preempted"
    if not job.is_requeueable:
        return "only jobs that may be requeued borrow (--no-requeue)"
    if job.het_job_id:
        return "components of a het job do not borrow"
    return "it was taken back too often and borrows no more until it has run" if is_barred else ""


def waits_for_room(state: ClusterState, bands: BandState) -> list[bool]:
    """Which pending jobs could start, or are held back only by a limit of one of our QOSes; by row."""
    codes = state.pending.startability
    open_rows = codes == STARTABLE_CODE
    for row in np.flatnonzero(codes == _OVER_LIMIT).tolist():
        job = bands.pending[row]
        open_rows[row] = job.qos in bands.place_of and _is_qos_limit(job.reason)
    result: list[bool] = open_rows.tolist()
    return result


def is_delayed_victim(state: ClusterState, row: int, job: JobRecord) -> bool:
    """Whether the job waits out Slurm's delay after a requeue."""
    return (
        int(state.pending.startability[row]) == _DELAYED
        and job.restarts > 0
        and job.eligible_s is not None
        and job.eligible_s - job.submit_s <= MAX_REQUEUE_DELAY_S
    )


def _is_qos_limit(reason: str) -> bool:
    return all(part.strip("() ").startswith(("QOSGrp", "QOSMax")) for part in reason.split(","))
