"""What is left alone for a while: Slurm refused the update, or updates change nothing that one sees.

A pause is of one kind of decision about one job or QOS, so that a refused move does not keep a job from its rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.plan import SetQos, SetSiteFactor
from policies.records import JobId
from slurm_plugin.rebalancer.decision_view import Key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policies.records import JobRecord

PAUSE_S: Final = 60.0

HELPER_REST_S: Final = 30.0
"""How long a QOS helper that kept us waiting, or whose slurmdbd is away, is not asked: the cycle goes on without."""

MAX_IDLE_WRITES: Final = 3
"""Updates in a row that Slurm accepted without showing another factor: the job's priority is pinned, most likely."""


@dataclass(slots=True)
class Pauses:
    """What is remembered between cycles.

    Attributes
    ----------
    until_s : dict of Key to float
        When a decision may be tried again, seconds since the epoch.
    idle : dict of JobId to (int or None, int)
        Jobs whose factor we wrote: the one that Slurm showed before, and how many writes in a row found it so.
    helper_until_s : float
        When the QOS helper may be asked again, seconds since the epoch.
    pinned : dict of JobId to int
        Priority of jobs that are paused because writes have no effect; another one ends the pause at once.
    """

    until_s: dict[Key, float] = field(default_factory=dict)
    idle: dict[JobId, tuple[int | None, int]] = field(default_factory=dict)
    pinned: dict[JobId, int] = field(default_factory=dict)
    helper_until_s: float = float("-inf")

    def __contains__(self, key: object) -> bool:
        """Return whether this kind of decision about this job or QOS is to be left alone."""
        return key in self.until_s

    def refresh(self, wrong: Collection[JobId], jobs: Mapping[JobId, JobRecord], *, now_s: float) -> None:
        """Drop what is over; ``wrong`` are the jobs that do not show the factor that we want.

        A pause that would last longer than ``PAUSE_S`` from now began before the clock was set back: it is over, too.
        """
        released = {job_id for job_id, prio in self.pinned.items() if _priority(jobs.get(job_id)) != prio}
        ended = {factor_key(job_id) for job_id in released}
        last_s = now_s + PAUSE_S
        self.until_s = {
            key: until_s for key, until_s in self.until_s.items() if now_s < until_s <= last_s and key not in ended
        }
        for job_id in (self.idle.keys() - wrong) | released:
            self.idle.pop(job_id, None)
            self.pinned.pop(job_id, None)

    def note_refused(self, key: Key, *, now_s: float) -> None:
        """Slurm or the QOS helper refused an update."""
        self.until_s[key] = now_s + PAUSE_S

    def rest_helper(self, *, now_s: float) -> None:
        """The QOS helper or its slurmdbd did not answer in time."""
        self.helper_until_s = now_s + HELPER_REST_S

    def is_helper_resting(self, *, now_s: float) -> bool:
        """Return whether the QOS helper is not to be asked now."""
        return 0 < self.helper_until_s - now_s <= HELPER_REST_S

    def note_written(self, job: JobRecord, shown: int | None, *, now_s: float) -> bool:
        """Slurm accepted a factor for a job that showed ``shown``; return whether the job is paused for it."""
        before, n_writes = self.idle.get(job.job_id, (None, 0))
        n_writes = n_writes + 1 if before == shown else 1
        self.idle[job.job_id] = (shown, n_writes)
        if n_writes < MAX_IDLE_WRITES:
            return False
        self.until_s[factor_key(job.job_id)] = now_s + PAUSE_S
        self.pinned[job.job_id] = job.priority
        return True


def factor_key(job_id: JobId) -> Key:
    """Return the key of what is written to a job's site factor."""
    return SetSiteFactor.__name__, job_id


def move_key(job_id: JobId) -> Key:
    """Return the key of what is written to a job's QOS."""
    return SetQos.__name__, job_id


def _priority(job: JobRecord | None) -> int | None:
    return None if job is None else job.priority
