"""Which jobs the bands may move, and which of them only wait for room in a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from policies.startability import Startability
from policies.state import STARTABILITIES, STARTABLE_CODE

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def waits_for_room(state: ClusterState, bands: BandState) -> NDArray[np.bool_]:
    """Which pending jobs could start, or are held back only by a limit of one of our QOSes, (n,) bool."""
    codes = state.pending.startability
    is_open: NDArray[np.bool_] = codes == STARTABLE_CODE
    verdicts: dict[str, bool] = {}
    for row in np.flatnonzero(codes == _OVER_LIMIT).tolist():
        job = bands.pending[row]
        if job.reason not in verdicts:
            verdicts[job.reason] = _is_qos_limit(job.reason)
        is_open[row] = job.qos in bands.place_of and verdicts[job.reason]
    return is_open


def delayed_victims(state: ClusterState, bands: BandState) -> NDArray[np.bool_]:
    """Which pending jobs wait out Slurm's delay after a requeue, (n,) bool."""
    is_victim: NDArray[np.bool_] = state.pending.startability == _DELAYED
    for row in np.flatnonzero(is_victim).tolist():
        job = bands.pending[row]
        is_victim[row] = (
            job.restarts > 0 and job.eligible_s is not None and job.eligible_s - job.submit_s <= MAX_REQUEUE_DELAY_S
        )
    return is_victim


def _is_qos_limit(reason: str) -> bool:
    return all(part.strip("() ").startswith(("QOSGrp", "QOSMax")) for part in reason.split(","))
