"""A Slurm for tests: it stores jobs and nodes and answers like the real one; it schedules nothing.

The test says what happens (a job starts, ends, is requeued) and what goes wrong (updates lost, late or
refused, the controller away). The contract test runs on it and on recordings of real clusters alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from policies.quota.names import is_borrowed_qos
from policies.records import JobId, JobRecord, JobState, NodeName, NodeRecord, Observation, QosRecord
from slurm_plugin.client.job_ids import job_order
from slurm_plugin.client.nodes import is_out, is_schedulable
from slurm_plugin.client.protocol import UpdateOutcome, UpdateStatus
from slurm_plugin.errors import SlurmAuthError, SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEUE_DELAY_S = 121
"""Seconds until a requeued job is eligible again, Slurm's default."""

_DEFAULT_CONFIG = {
    "PriorityType": "priority/multifactor",
    "SelectType": "select/cons_tres",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
}


@dataclass(slots=True, kw_only=True)
class _Faults:
    unavailable: int = 0
    lost: int = 0
    late: int = 0
    rejected: dict[JobId, str] = field(default_factory=dict)
    is_denied: bool = False


_Update = tuple[JobId, str, int | str]
"""A job, the name of its record's field, the value."""


class FakeSlurm:
    """A cluster in memory; implements :class:`~slurm_plugin.client.protocol.SlurmClient`.

    Parameters
    ----------
    now_s : float
        The cluster's clock, moved by :meth:`advance`.
    """

    def __init__(self, *, cluster: str = "fake", release: str = "25.11.7", now_s: float = 0.0) -> None:
        self._cluster = cluster
        self._release = release
        self._now_s = now_s
        self._jobs: dict[JobId, JobRecord] = {}
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._faults = _Faults()
        self._qos: dict[str, QosRecord] = {}
        self._pinned: set[JobId] = set()
        self._late: list[_Update] = []
        self._written: list[tuple[JobId, int]] = []
        self._moved: list[tuple[JobId, str]] = []
        self._started: list[JobId] = []
        self.config: dict[str, str] = {"ClusterName": cluster, "SLURM_VERSION": release, **_DEFAULT_CONFIG}
        self.diag: dict[str, str] = {}
        self.is_acting = True

    @classmethod
    def from_observation(cls, seen: Observation) -> FakeSlurm:
        """Cluster with the jobs and nodes that somebody saw."""
        fake = cls(cluster=seen.cluster, release=seen.slurm_version, now_s=seen.at_s)
        for job in seen.jobs:
            fake.add_job(job)
        for node in seen.nodes:
            fake.add_node(node)
        for qos in seen.qos:
            fake.set_qos(qos)
        return fake

    # What a test does to the cluster.

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self._now_s += seconds

    def add_node(self, node: NodeRecord) -> None:
        """Add a node or put another in its place."""
        self._nodes[node.name] = node

    def set_node_state(self, name: NodeName, state: str) -> None:
        """Change a node's state (``"idle"``, ``"allocated+drain"``); whether it is schedulable or out follows."""
        self._nodes[name] = replace(
            self._nodes[name],
            state=state,
            is_schedulable=is_schedulable(state),
            out_since_s=int(self._now_s) if is_out(state) else None,
        )

    def set_qos(self, qos: QosRecord) -> None:
        """Add a QOS or put another in its place, as ``sacctmgr`` does."""
        self._qos[qos.name] = qos

    def qos(self, name: str) -> QosRecord:
        """Give a QOS as the controller knows it."""
        return self._qos[name]

    def add_job(self, job: JobRecord) -> None:
        """Add a job; its ``site_factor`` is what was written so far, ``None`` counts as 0."""
        self._jobs[job.job_id] = replace(job, site_factor=job.site_factor or 0)

    def job(self, job_id: JobId) -> JobRecord:
        """Give a job as the controller knows it, with a site factor that ``sprio`` may not show."""
        return self._jobs[job_id]

    def start_job(self, job_id: JobId, *, nodes: str = "") -> None:
        """Let a job run."""
        job, start_s = self._jobs[job_id], int(self._now_s)
        self._jobs[job_id] = replace(job, state=JobState.RUNNING, start_s=start_s, nodes=nodes, reason="")

    def start_task(self, job_id: JobId, task_id: int, *, nodes: str = "") -> JobId:
        """Let one task of an unsplit array run: it becomes a record of its own, whose id comes back."""
        meta = self._jobs[job_id]
        split_id = JobId(f"{job_id}_{task_id}")
        self._jobs[split_id] = replace(
            meta, job_id=split_id, array_job_id=job_id, array_task_id=str(task_id), n_tasks=1
        )
        if meta.n_tasks == 1:
            del self._jobs[job_id]
        else:
            self._jobs[job_id] = replace(meta, n_tasks=meta.n_tasks - 1)
        self.start_job(split_id, nodes=nodes)
        return split_id

    def finish_job(self, job_id: JobId) -> None:
        """Let a job end; it is seen no more."""
        del self._jobs[job_id]

    def requeue_job(self, job_id: JobId, *, delay_s: int = REQUEUE_DELAY_S) -> None:
        """Put a running job back; its site factor and what it held stay in the record, as in Slurm."""
        job, now_s = self._jobs[job_id], int(self._now_s)
        self._jobs[job_id] = replace(
            job,
            state=JobState.PENDING,
            reason="BeginTime",
            submit_s=now_s,
            eligible_s=now_s + delay_s,
            start_s=None,
            nodes="",
            restarts=job.restarts + 1,
        )

    def set_requeueable(self, job_id: JobId, *, is_requeueable: bool) -> None:
        """Change whether Slurm may requeue a job, as its user does with ``scontrol update requeue=``."""
        self._jobs[job_id] = replace(self._jobs[job_id], is_requeueable=is_requeueable)

    def suspend_job(self, job_id: JobId) -> None:
        """Suspend a running job; it keeps what it holds."""
        self._jobs[job_id] = replace(self._jobs[job_id], state=JobState.SUSPENDED, priority=0)

    def hold_job(self, job_id: JobId) -> None:
        """Hold a pending job."""
        self._jobs[job_id] = replace(self._jobs[job_id], priority=0, reason="JobHeldUser")

    def release_job(self, job_id: JobId, *, priority: int = 1) -> None:
        """Release a held job."""
        self._jobs[job_id] = replace(self._jobs[job_id], priority=priority, reason="Priority")

    # What goes wrong.

    def be_unavailable(self, n_calls: int) -> None:
        """Let the next calls fail with ``SlurmUnavailable``."""
        self._faults.unavailable = n_calls

    def lose_updates(self, n_updates: int) -> None:
        """Answer the next updates with ok and forget them."""
        self._faults.lost = n_updates

    def delay_updates(self, n_updates: int) -> None:
        """Answer the next updates with ok; they are in force only after the next observation."""
        self._faults.late = n_updates

    def reject_updates(self, job_id: JobId, text: str) -> None:
        """Refuse each update of one job with this message."""
        self._faults.rejected[job_id] = text

    def pin_priority(self, job_id: JobId, *, is_pinned: bool = True) -> None:
        """Show site factor 0 whatever is stored, as ``sprio`` does while ``scontrol update priority=`` holds."""
        (self._pinned.add if is_pinned else self._pinned.discard)(job_id)

    def deny_updates(self, *, is_denied: bool = True) -> None:
        """Treat the caller as no operator."""
        self._faults.is_denied = is_denied

    @property
    def written(self) -> tuple[tuple[JobId, int], ...]:
        """Every site factor that was asked for, in order, whatever became of it."""
        return tuple(self._written)

    @property
    def moved(self) -> tuple[tuple[JobId, str], ...]:
        """Every QOS that was asked for, in order, whatever became of it."""
        return tuple(self._moved)

    @property
    def started_now(self) -> tuple[JobId, ...]:
        """Every job whose delay was to be lifted, in order, whatever became of it."""
        return tuple(self._started)

    # What a client asks.

    def observe(self) -> Observation:
        """Jobs and nodes as they are now; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        self._be_reached()
        seen = Observation(
            at_s=self._now_s,
            cluster=self._cluster,
            slurm_version=self._release,
            jobs=tuple(self._shown(self._jobs[job_id]) for job_id in sorted(self._jobs, key=job_order)),
            nodes=tuple(self._nodes[name] for name in sorted(self._nodes)),
        )
        late, self._late = self._late, []
        for update in late:
            self._store(update)
        return seen

    def set_site_factors(self, changes: Sequence[tuple[JobId, int]]) -> Sequence[UpdateOutcome]:
        """Outcome of each change; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        self._written.extend(changes)
        return self._update_all([(job_id, "site_factor", value) for job_id, value in changes])

    def set_job_qos(self, changes: Sequence[tuple[JobId, str]]) -> Sequence[UpdateOutcome]:
        """Outcome of each move; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        self._moved.extend(changes)
        return self._update_all([(job_id, "qos", name) for job_id, name in changes])

    def start_now(self, job_ids: Sequence[JobId]) -> Sequence[UpdateOutcome]:
        """Outcome of each; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        self._started.extend(job_ids)
        return self._update_all([(job_id, "eligible_s", int(self._now_s)) for job_id in job_ids])

    def fetch_qos(self) -> tuple[Sequence[QosRecord], Sequence[tuple[str, int]]]:
        """QOSes as they are now; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        self._be_reached()
        return tuple(self._qos[name] for name in sorted(self._qos)), ()

    def fetch_config(self) -> Mapping[str, str]:
        """Give the attribute ``config``, which a test may change."""
        self._be_reached()
        return dict(self.config)

    def fetch_diag(self) -> Mapping[str, str]:
        """Give the attribute ``diag``, which a test may change."""
        self._be_reached()
        return dict(self.diag)

    def version(self) -> str:
        """Give the release that the test chose."""
        return self._release

    def is_primary(self) -> bool:
        """Give the attribute ``is_acting``, which a test may change."""
        self._be_reached()
        return self.is_acting

    def _be_reached(self) -> None:
        if self._faults.unavailable > 0:
            self._faults.unavailable -= 1
            raise SlurmUnavailable("Unable to contact slurm controller (connect failure)")

    def _update_all(self, changes: Sequence[_Update]) -> list[UpdateOutcome]:
        self._be_reached()
        if self._faults.is_denied and any(job_id in self._jobs for job_id, _, _ in changes):
            raise SlurmAuthError("scontrol update: Access/permission denied")
        return [self._update(change) for change in changes]

    def _update(self, change: _Update) -> UpdateOutcome:
        job_id, name, value = change
        if job_id not in self._jobs:
            return UpdateOutcome(job_id=job_id, status=UpdateStatus.GONE, text="Invalid job id specified")
        if name != "site_factor" and not self._jobs[job_id].state.is_pending:
            return UpdateOutcome(job_id=job_id, status=UpdateStatus.GONE, text="Job is no longer pending execution")
        if name == "qos" and self._qos and value not in self._qos:
            return UpdateOutcome(job_id=job_id, status=UpdateStatus.REJECTED, text="Invalid qos specification")
        if text := self._faults.rejected.get(job_id, ""):
            return UpdateOutcome(job_id=job_id, status=UpdateStatus.REJECTED, text=text)
        if self._faults.lost > 0:
            self._faults.lost -= 1
        elif self._faults.late > 0:
            self._faults.late -= 1
            self._late.append(change)
        else:
            self._store(change)
        return UpdateOutcome(job_id=job_id, status=UpdateStatus.OK)

    def _store(self, change: _Update) -> None:
        job_id, name, value = change
        job = self._jobs.get(job_id)
        if job is None or (name != "site_factor" and not job.state.is_pending):
            return
        match name, value:
            case "site_factor", int():
                job = replace(job, site_factor=value)
            case "qos", str():
                job = replace(job, qos=value, is_requeueable=job.is_requeueable or is_borrowed_qos(value))
            case "eligible_s", int():
                job = replace(job, eligible_s=value, reason="Priority" if job.reason == "BeginTime" else job.reason)
        self._jobs[job_id] = job

    def _shown(self, job: JobRecord) -> JobRecord:
        is_eligible = job.eligible_s is not None and job.eligible_s <= self._now_s
        if job.state.is_pending and job.priority > 0 and is_eligible:
            return replace(job, site_factor=0) if job.job_id in self._pinned else job
        return replace(job, site_factor=None)
