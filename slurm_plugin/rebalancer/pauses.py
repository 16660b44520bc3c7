"""Jobs that are left alone for a while: Slurm refused their update, or its updates change nothing that one sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policies.records import JobRecord

PAUSE_S: Final = 60.0

MAX_IDLE_WRITES: Final = 3
"""Updates in a row that Slurm accepted without showing another factor: the job's priority is pinned, most likely."""


@dataclass(slots=True)
class Pauses:
    """What is remembered between cycles.

    Attributes
    ----------
    until_s : dict of JobId to float
        When a job may be tried again, seconds since the epoch.
    idle : dict of JobId to (int or None, int)
        Jobs that we wrote: the factor that Slurm showed before, and how many writes in a row found it so.
    pinned : dict of JobId to int
        Priority of jobs that are paused because writes have no effect; another one ends the pause at once.
    """

    until_s: dict[JobId, float] = field(default_factory=dict)
    idle: dict[JobId, tuple[int | None, int]] = field(default_factory=dict)
    pinned: dict[JobId, int] = field(default_factory=dict)

    def __contains__(self, job_id: object) -> bool:
        """Return whether the job is to be left alone."""
        return job_id in self.until_s

    def refresh(self, wrong: Collection[JobId], jobs: Mapping[JobId, JobRecord], *, now_s: float) -> None:
        """Drop what is over; ``wrong`` are the jobs that do not show what we want."""
        released = {job_id for job_id, prio in self.pinned.items() if _priority(jobs.get(job_id)) != prio}
        self.until_s = {
            job_id: until_s for job_id, until_s in self.until_s.items() if until_s > now_s and job_id not in released
        }
        for job_id in (self.idle.keys() - wrong) | released:
            self.idle.pop(job_id, None)
            self.pinned.pop(job_id, None)

    def note_refused(self, job_id: JobId, *, now_s: float) -> None:
        """Slurm refused an update."""
        self.until_s[job_id] = now_s + PAUSE_S

    def note_written(self, job: JobRecord, shown: int | None, *, now_s: float) -> bool:
        """Slurm accepted an update of a job that showed ``shown``; return whether the job is paused for it."""
        before, n_writes = self.idle.get(job.job_id, (None, 0))
        n_writes = n_writes + 1 if before == shown else 1
        self.idle[job.job_id] = (shown, n_writes)
        if n_writes < MAX_IDLE_WRITES:
            return False
        self.until_s[job.job_id] = now_s + PAUSE_S
        self.pinned[job.job_id] = job.priority
        return True


def _priority(job: JobRecord | None) -> int | None:
    return None if job is None else job.priority
