"""Managed jobs as rows of the history's ``jobs`` table, only those that changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from policies.ownership import Resolver
from slurm_plugin.hook.recorder import flags_json
from slurm_plugin.rebalancer.journal import is_alive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.records import JobId, JobRecord, Observation
    from policies.site_policy import SitePolicy
    from policies.submission.decision import SubmissionDecision
    from slurm_plugin.rebalancer.history import History

GONE: Final = "GONE"
"""State of a job that is no longer shown; how it ended is Slurm's accounting to say."""

Row = dict[str, Any]
Key = tuple[str, int]


@dataclass(slots=True)
class JobRecorder:
    """Remembers what was written of each job, so that an unchanged job costs nothing."""

    written: dict[Key, Row] = field(default_factory=dict)
    is_primed: bool = False

    def record(self, history: History, seen: Observation, policy: SitePolicy, factors: Mapping[JobId, int]) -> None:
        """Write what changed; ``factors`` are the site factors that this cycle wrote.

        A failed write is tried again in the next cycle.
        """
        if not self.is_primed:
            self._prime(history)
        now = job_rows(seen, policy, factors)
        written = self.written
        changed = [row for key, row in now.items() if key not in written or _content(written[key]) != _content(row)]
        ended = [self._ended(key, seen.at_s) for key in self.written.keys() - now.keys()]
        if history.upsert_jobs([*changed, *ended]):
            self.written = now
            self.is_primed = True

    def _prime(self, history: History) -> None:
        # Jobs that ended while no rebalancer ran are closed by the first cycle.
        rows = history.query("SELECT * FROM jobs WHERE end_s IS NULL")
        self.written = {(row["job_id"], row["submit_s"]): row for row in rows}

    def _ended(self, key: Key, at_s: float) -> Row:
        return {**self.written[key], "state": GONE, "end_s": at_s, "changed_s": at_s}


def job_rows(seen: Observation, policy: SitePolicy, factors: Mapping[JobId, int]) -> dict[Key, Row]:
    """Return the rows of the managed jobs that Slurm shows, by job id and submit time."""
    resolver = Resolver.from_observation(seen, policy)
    alive = [job for job in seen.jobs if is_alive(job)]
    owners = resolver.decide_all(alive)
    flags = {tags: flags_json(tags) for tags in set(owners.tags)}
    rows = (
        _row(job, owners.decisions[code], flags[tags], factor=factors.get(job.job_id, job.site_factor), at_s=seen.at_s)
        for job, code, tags in zip(alive, owners.column.codes.tolist(), owners.tags, strict=True)
        if owners.decisions[code].agent is not None
    )
    return {(row["job_id"], row["submit_s"]): row for row in rows}


def _row(job: JobRecord, decision: SubmissionDecision, flags: str, *, factor: int | None, at_s: float) -> Row:
    return {
        "job_id": job.job_id,
        "submit_s": job.submit_s,
        "agent": decision.agent,
        "source": decision.source.value,
        "flags": flags,
        "user": job.user,
        "account": job.account,
        "partitions": ",".join(job.partitions),
        "state": job.state.value,
        "site_factor": factor,
        "start_s": None if job.state.is_pending else job.start_s,
        "end_s": None,
        "first_seen_s": at_s,
        "changed_s": at_s,
    }


_content = itemgetter("agent", "source", "flags", "partitions", "state", "site_factor", "start_s", "end_s")
"""What makes two rows differ."""
