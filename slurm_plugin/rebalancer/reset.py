"""Jobs get their former site factor back: all that carry one of ours when the kill switch is off, and strays.

A stray is a job that was ours and is not any more: its user moved it to a partition or account of no agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.ownership import Resolver
from policies.records import JobId
from slurm_plugin.client import UpdateStatus
from slurm_plugin.rebalancer.history import FILE_NAME, History
from slurm_plugin.rebalancer.journal import Restore, compute_restores, find_entry, is_alive
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.rebalancer.store import TouchedJob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy
    from slurm_plugin.client import SlurmClient, UpdateOutcome
    from slurm_plugin.site import SiteFile

CHUNK: Final = 500
"""Restores per command; there is no rate limit here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReport:
    """What a reset did.

    Attributes
    ----------
    restored : tuple of (JobId, int)
        Jobs and the factor they have again.
    gone : tuple of JobId
        Jobs that ended meanwhile.
    failed : tuple of (JobId, str)
        Jobs that Slurm refused to change, with its message.
    """

    restored: tuple[tuple[JobId, int], ...] = ()
    gone: tuple[JobId, ...] = ()
    failed: tuple[tuple[JobId, str], ...] = ()

    @property
    def n_touched(self) -> int:
        """How many jobs were not yet as they should be."""
        return len(self.restored) + len(self.gone) + len(self.failed)


def reset_factors(site: SiteFile, client: SlurmClient, *, history: History | None = None) -> ResetReport:
    """Give every job its former site factor back and return what was done. Doing it again changes nothing.

    Pending jobs of agents are known by the factor that ``sprio`` shows. Held, running and suspended ones show
    none: for them, and for strays, the undo journal and the history say whether we set one.

    Parameters
    ----------
    history : History, optional
        The open history; default: the one in the site's state directory.

    Raises
    ------
    SlurmUnavailable
        Slurm went away; what was done so far is noted, call again.
    SlurmAuthError
        This user may not change jobs of others.
    """
    if history is not None:
        return _reset(site, client, history)
    own = History(site.paths.state_dir / FILE_NAME)
    try:
        return _reset(site, client, own)
    finally:
        own.close()


def find_strays(seen: Observation, policy: SitePolicy, history: History) -> tuple[Restore, ...]:
    """Return what to write so that no waiting job of no agent keeps a site factor of ours."""
    # With a pinned priority 0 is shown, whatever was written.
    waiting = [
        job
        for job in seen.jobs
        if job.state.is_pending
        and job.site_factor is not None
        and (job.site_factor or find_entry(job, history.journal))
    ]
    owners = Resolver.from_observation(seen, policy).decide_all(waiting)
    is_stray = owners.spread(lambda decision: decision.agent is None, bool).tolist()
    return _find_restores([job for job, stray in zip(waiting, is_stray, strict=True) if stray], policy, history)


def apply_restores(restores: Sequence[Restore], client: SlurmClient, history: History, *, at_s: float) -> ResetReport:
    """Write restores and note them in the journal.

    Raises
    ------
    SlurmUnavailable, SlurmAuthError
        As :func:`reset_factors`.
    """
    answers: list[UpdateOutcome] = []
    for start in range(0, len(restores), CHUNK):
        chunk = restores[start : start + CHUNK]
        got = client.set_site_factors([(restore.job.job_id, restore.value) for restore in chunk])
        _note_restored(history, chunk, got, at_s=at_s)
        answers.extend(got)
    return _report(restores, answers)


def _reset(site: SiteFile, client: SlurmClient, history: History) -> ResetReport:
    seen = observe(client, site, GroupCache())
    resolver = Resolver.from_observation(seen, site.policy)
    restores = _find_restores(
        seen.jobs, site.policy, history, is_managed=lambda job: resolver.decide_one(job).agent is not None
    )
    return apply_restores(restores, client, history, at_s=seen.at_s)


def _find_restores(
    jobs: Sequence[JobRecord],
    policy: SitePolicy,
    history: History,
    *,
    is_managed: Callable[[JobRecord], bool] = lambda _: False,
) -> tuple[Restore, ...]:
    doubtful = [job for job in jobs if is_alive(job) and (job.site_factor is None or not is_managed(job))]
    return compute_restores(
        jobs,
        history.journal,
        scale=policy.factor_scale,
        is_managed=is_managed,
        known_factors=history.known_factors(doubtful),
    )


def _note_restored(
    history: History, chunk: Sequence[Restore], answers: Sequence[UpdateOutcome], *, at_s: float
) -> None:
    done = {answer.job_id for answer in answers if answer.status is UpdateStatus.OK}
    restored = [restore for restore in chunk if restore.job.job_id in done]
    entries = []
    for restore in restored:
        known = find_entry(restore.job, history.journal)
        # A hidden job that only the history knows gets a line too, so that it is not written again.
        if known is not None or restore.job.site_factor is None:
            entries.append(
                TouchedJob(
                    job_id=restore.job.job_id,
                    submit_s=restore.job.submit_s,
                    former=restore.value,
                    last_written=restore.value,
                    at_s=at_s,
                )
            )
    history.touch(entries)


def _report(restores: Sequence[Restore], answers: Sequence[UpdateOutcome]) -> ResetReport:
    wanted = {restore.job.job_id: restore.value for restore in restores}
    by_status = {status: [a for a in answers if a.status is status] for status in UpdateStatus}
    return ResetReport(
        restored=tuple((a.job_id, wanted[JobId(a.job_id)]) for a in by_status[UpdateStatus.OK]),
        gone=tuple(a.job_id for a in by_status[UpdateStatus.GONE]),
        failed=tuple((a.job_id, a.text) for a in by_status[UpdateStatus.REJECTED]),
    )
