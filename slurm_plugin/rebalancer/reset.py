"""The kill switch's effect: every job gets back the site factor and the QOS that it had before us.

The full Preempt lists and the ranks of ``apply`` come back, too. A running job's QOS cannot change; it keeps its band
until it ends. The same restores serve strays (see :mod:`slurm_plugin.rebalancer.strays`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from policies.ownership import Resolver
from policies.records import JobId
from slurm_plugin.client import UpdateStatus
from slurm_plugin.rebalancer.history import FILE_NAME, History
from slurm_plugin.rebalancer.journal import Restore, compute_restores, find_entry, is_alive
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.preempt_lists import ListReport, restore_lists
from slurm_plugin.rebalancer.qos_journal import QosRestore, compute_qos_restores
from slurm_plugin.rebalancer.store import TouchedJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from policies.records import JobRecord
    from policies.site_policy import SitePolicy
    from slurm_plugin.client import SlurmClient, UpdateOutcome
    from slurm_plugin.qos_helper.client import QosHelper
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
    moved : tuple of (JobId, str)
        Pending jobs and the QOS they wait in again.
    lists : ListReport
        What became of the Preempt lists and borrow ranks.
    """

    restored: tuple[tuple[JobId, int], ...] = ()
    gone: tuple[JobId, ...] = ()
    failed: tuple[tuple[JobId, str], ...] = ()
    moved: tuple[tuple[JobId, str], ...] = ()
    lists: ListReport = field(default_factory=ListReport)

    @property
    def n_touched(self) -> int:
        """How many jobs, lists and ranks were not yet as they should be; one that could not be written counts, too."""
        n_lists = len(self.lists.restored) + len(self.lists.ranks) + len(self.lists.failed)
        return len(self.restored) + len(self.gone) + len(self.failed) + len(self.moved) + n_lists

    def plus(self, moves: ResetReport) -> ResetReport:
        """Return one report for site factors (this one) and ``moves``."""
        return replace(self, moved=moves.moved, gone=self.gone + moves.gone, failed=self.failed + moves.failed)


def reset_effects(
    site: SiteFile, client: SlurmClient, *, helper: QosHelper, history: History | None = None
) -> ResetReport:
    """Give every job its former site factor and QOS back and return what was done. Doing it again changes nothing.

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
    used = history or History(site.paths.state_dir / FILE_NAME)
    try:
        seen = observe(client, site, GroupCache())
        resolver = Resolver.from_observation(seen, site.policy)
        restores = find_restores(
            seen.jobs, site.policy, used, is_managed=lambda job: resolver.decide_one(job).agent is not None
        )
        report = apply_restores(restores, client, used, at_s=seen.at_s)
        moves = compute_qos_restores(seen.jobs, used.moves.lines, OwnQos.from_policy(site.policy))
        report = report.plus(apply_moves(moves, client))
        return replace(report, lists=restore_lists(site.policy, client, helper))
    finally:
        if history is None:
            used.close()


def apply_restores(restores: Sequence[Restore], client: SlurmClient, history: History, *, at_s: float) -> ResetReport:
    """Write restores of site factors and note them in the journal.

    Raises
    ------
    SlurmUnavailable, SlurmAuthError
        As :func:`reset_effects`.
    """
    answers: list[UpdateOutcome] = []
    for start in range(0, len(restores), CHUNK):
        chunk = restores[start : start + CHUNK]
        got = client.set_site_factors([(restore.job.job_id, restore.value) for restore in chunk])
        _note_restored(history, chunk, got, at_s=at_s)
        answers.extend(got)
    return _report(restores, answers)


def apply_moves(restores: Sequence[QosRestore], client: SlurmClient) -> ResetReport:
    """Write restores of QOSes.

    The journal is left as it is: what slurmctld answered may be lost with it, and then the job still waits where we put
    it. Its line goes when the job is gone.

    Raises
    ------
    SlurmUnavailable, SlurmAuthError
        As :func:`reset_effects`.
    """
    wanted = {restore.job.job_id: restore for restore in restores}
    answers: list[UpdateOutcome] = []
    for start in range(0, len(restores), CHUNK):
        chunk = restores[start : start + CHUNK]
        got = client.set_job_qos([(restore.job.job_id, restore.qos) for restore in chunk])
        answers.extend(got)
    by_status = {status: [a for a in answers if a.status is status] for status in UpdateStatus}
    return ResetReport(
        moved=tuple((a.job_id, wanted[a.job_id].qos) for a in by_status[UpdateStatus.OK]),
        gone=tuple(a.job_id for a in by_status[UpdateStatus.GONE]),
        failed=tuple((a.job_id, a.text) for a in by_status[UpdateStatus.REJECTED]),
    )


def find_restores(
    jobs: Iterable[JobRecord],
    policy: SitePolicy,
    history: History,
    *,
    is_managed: Callable[[JobRecord], bool] = lambda _: False,
) -> tuple[Restore, ...]:
    """Return what to write so that none of these jobs keeps a site factor of ours."""
    alive = list(filter(is_alive, jobs))
    doubtful = [job for job in alive if job.site_factor is None or not is_managed(job)]
    return compute_restores(
        alive,
        history.factors.lines,
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
        known = find_entry(restore.job, history.factors.lines)
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
    history.factors.touch(entries)


def _report(restores: Sequence[Restore], answers: Sequence[UpdateOutcome]) -> ResetReport:
    wanted = {restore.job.job_id: restore.value for restore in restores}
    by_status = {status: [a for a in answers if a.status is status] for status in UpdateStatus}
    return ResetReport(
        restored=tuple((a.job_id, wanted[JobId(a.job_id)]) for a in by_status[UpdateStatus.OK]),
        gone=tuple(a.job_id for a in by_status[UpdateStatus.GONE]),
        failed=tuple((a.job_id, a.text) for a in by_status[UpdateStatus.REJECTED]),
    )
