"""The rules of the undo journal: which site factor a job had before us, and what to write to give it back.

A factor in ``1..scale`` on a managed job is ours (the hook's or the rebalancer's), so its former value is 0.
Any other value that is not 0 was set by somebody else; it is kept and given back. A line stays until its job is
gone for a while; once restored, its ``last_written`` equals its ``former``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.records import JobId, JobRecord, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_plugin.rebalancer.store import Line, TouchedJob


GONE_AFTER_S: Final = 30.0
"""A slurmctld that was killed shows jobs again that ended less than 5 s before, when it had not saved that yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """One job to write back: ``value`` is its former site factor."""

    job: JobRecord
    value: int


@dataclass(slots=True)
class Absences:
    """Since when jobs with a line are missing."""

    since_s: dict[JobId, float] = field(default_factory=dict)

    def find_over(self, missing: Iterable[JobId], *, now_s: float) -> tuple[JobId, ...]:
        """Return which of the jobs that are missing now have been for ``GONE_AFTER_S``, in each observation since."""
        self.since_s = {job_id: min(self.since_s.get(job_id, now_s), now_s) for job_id in missing}
        return tuple(job_id for job_id, since_s in self.since_s.items() if now_s - since_s >= GONE_AFTER_S)


def find_entry(job: JobRecord, journal: Mapping[JobId, Line]) -> Line | None:
    """Return the journal line of a job; a split array task inherits its array's, a requeued job keeps its own."""
    for key in (job.job_id, JobId(job.array_job_id)):
        entry = journal.get(key)
        if entry is not None and (entry.submit_s == job.submit_s or job.restarts > 0):
            return entry
    return None


def former_factor(job: JobRecord, journal: Mapping[JobId, TouchedJob], *, scale: int) -> int:
    """Return the site factor to give back to ``job``, seen just before we write to it."""
    shown, entry = job.site_factor, find_entry(job, journal)
    if entry is not None and (shown is None or not _is_foreign(shown, entry, scale)):
        return entry.former
    return 0 if shown is None or 1 <= shown <= scale else shown


def find_gone(journal: Mapping[JobId, Line], jobs: Iterable[JobRecord]) -> tuple[JobId, ...]:
    """Return the lines whose jobs are gone: ended, or another job has the number now."""
    alive: set[JobId] = set()
    for job in jobs:
        entry = find_entry(job, journal) if is_alive(job) else None
        if entry is not None:
            alive.add(entry.job_id)
    return tuple(sorted(journal.keys() - alive))


def compute_restores(
    jobs: Iterable[JobRecord],
    journal: Mapping[JobId, TouchedJob],
    *,
    scale: int,
    is_managed: Callable[[JobRecord], bool],
    known_factors: Mapping[JobId, int],
) -> tuple[Restore, ...]:
    """Return what to write so that nothing of ours has effect any more.

    Parameters
    ----------
    jobs : iterable of JobRecord
        All that Slurm knows; held, running and suspended ones show no site factor.
    is_managed : callable
        Whether the site file gives the job to an agent.
    known_factors : mapping of JobId to int
        Last known factor of jobs that show none or belong to no agent (any more), from the history.
    """
    restores: list[Restore] = []
    for job in jobs:
        if not is_alive(job):
            continue
        entry, known = find_entry(job, journal), known_factors.get(job.job_id)
        if job.site_factor is None:
            is_ours = _is_hidden_ours(entry, known, scale) and (entry is not None or is_managed(job))
        elif entry is None:
            is_ours = 1 <= job.site_factor <= scale and (job.site_factor == known or is_managed(job))
        else:
            is_ours = _is_shown_ours(job.site_factor, entry, scale)
        former = entry.former if entry is not None else 0
        if is_ours and (job.site_factor != former or _is_masked(job, entry)):
            restores.append(Restore(job=job, value=former))
    return tuple(restores)


def is_alive(job: JobRecord) -> bool:
    """Whether Slurm may still schedule or run the job; a state that we do not know counts as alive."""
    return job.state.is_pending or job.state.holds_resources or job.state is JobState.UNKNOWN


def _is_foreign(shown: int, entry: TouchedJob, scale: int) -> bool:
    """Whether somebody else changed the factor after our last write."""
    if entry.last_written == entry.former:  # restored: what it shows now is its own, unless we wrote late
        return not 1 <= shown <= scale and shown != entry.former
    return shown != 0 and not 1 <= shown <= scale and shown != entry.last_written


def _is_shown_ours(shown: int, entry: TouchedJob, scale: int) -> bool:
    is_undone = entry.last_written == entry.former
    return 1 <= shown <= scale or (not is_undone and shown in {0, entry.last_written})


def _is_masked(job: JobRecord, entry: TouchedJob | None) -> bool:
    """Whether 0 may hide what we wrote: Slurm shows 0 while a priority is pinned and ours again afterwards."""
    return job.site_factor == 0 and entry is not None and entry.last_written != entry.former


def _is_hidden_ours(entry: TouchedJob | None, known: int | None, scale: int) -> bool:
    if entry is not None:
        return entry.last_written != entry.former
    return known is not None and 1 <= known <= scale
