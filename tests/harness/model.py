"""A model of Slurm, as far as bands are concerned. It knows nothing of the core and shares no code with it.

One partition. A pass walks the pending jobs by priority (QOS first, then site factor, then job id). It skips those that
a limit of their QOS or a begin time holds back, starts those that fit, and tries preemption for the others: running
jobs of the QOSes in the Preempt list by QOS priority, then fewer nodes, then job id, taken out one by one until the
job fits; a second round begins with the last one. Those on the chosen nodes are requeued with a begin time ahead; what
cannot be requeued dies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REQUEUE_DELAY_S = 121.0
"""Slurm's default."""

GPU, CPU = "gres/gpu", "cpu"


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One job; ``gpus`` and ``cpus`` are per node."""

    job_id: int
    agent: str
    gpus: int
    cpus: int
    n_nodes: int = 1
    run_s: float
    is_requeueable: bool = True
    qos: str
    submit_s: float
    eligible_s: float
    factor: int = 0
    reason: str = "None"
    restarts: int = 0
    nodes: tuple[int, ...] = ()
    end_s: float = 0.0

    @property
    def amounts(self) -> dict[str, int]:
        """What it asks for in all."""
        return {CPU: self.cpus * self.n_nodes, GPU: self.gpus * self.n_nodes}


@dataclass(slots=True, kw_only=True, eq=False)
class Qos:
    """One QOS in slurmctld's memory."""

    priority: int
    limits: dict[str, int] = field(default_factory=dict)
    max_nodes: int | None = None
    preempt: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A job that started, with what was preempted for it."""

    at_s: float
    job: Job
    victims: tuple[Job, ...] = ()


class Slurm:
    """A cluster of equal nodes."""

    def __init__(self, n_nodes: int, gpus: int, cpus: int) -> None:
        self.shape = (gpus, cpus)
        self.free = [[gpus, cpus] for _ in range(n_nodes)]
        self.qos: dict[str, Qos] = {}
        self.pending: dict[int, Job] = {}
        self.running: dict[int, Job] = {}
        self.n_dead = 0
        self.requeue_delay_s = REQUEUE_DELAY_S

    def usage(self, qos: str) -> dict[str, int]:
        """What the running jobs of a QOS use."""
        return total(job for job in self.running.values() if job.qos == qos)

    def finish(self, now: float) -> None:
        """Jobs whose time has come end."""
        for job in [job for job in self.running.values() if job.end_s <= now]:
            self._give_back(job)

    def run_pass(self, now: float, watch: Callable[[Start], None]) -> None:
        """One look at the whole queue; ``watch`` is called right after each start."""
        for job in sorted(self.pending.values(), key=lambda job: (-self._priority(job), job.job_id)):
            qos = self.qos[job.qos]
            if job.eligible_s > now:
                job.reason = "BeginTime"
            elif not self._is_admitted(job, qos):
                job.reason = "QOSGrpGRES"
            else:
                job.reason = "Resources"
                start = self._try(job, qos, now)
                if start is not None:
                    watch(start)

    def place(self, free: list[list[int]], job: Job) -> tuple[int, ...] | None:
        """First nodes on which the job fits."""
        rows = [row for row, (gpus, cpus) in enumerate(free) if gpus >= job.gpus and cpus >= job.cpus]
        return tuple(rows[: job.n_nodes]) if len(rows) >= job.n_nodes else None

    def free_without(self, jobs: list[Job]) -> list[list[int]]:
        """Free amounts if these running jobs were gone."""
        free = [list(row) for row in self.free]
        for job in jobs:
            for row in job.nodes:
                free[row][0] += job.gpus
                free[row][1] += job.cpus
        return free

    def _priority(self, job: Job) -> int:
        return self.qos[job.qos].priority * 1_000_000 + job.factor

    def _is_admitted(self, job: Job, qos: Qos) -> bool:
        used = self.usage(job.qos)
        fits = all(
            used.get(name, 0) + amount <= qos.limits[name] for name, amount in job.amounts.items() if name in qos.limits
        )
        return fits and (qos.max_nodes is None or job.n_nodes <= qos.max_nodes)

    def _try(self, job: Job, qos: Qos, now: float) -> Start | None:
        nodes = self.place(self.free, job)
        victims: list[Job] = []
        if nodes is None:
            candidates = [other for other in self.running.values() if other.qos in qos.preempt]
            candidates.sort(key=lambda other: (self.qos[other.qos].priority, other.n_nodes, other.job_id))
            chosen = self._preempt(job, candidates)
            if chosen is None:
                return None
            nodes, victims = chosen
        for victim in victims:
            self._requeue(victim, now)
        del self.pending[job.job_id]
        self.running[job.job_id] = job
        job.nodes, job.end_s, job.reason = nodes, now + job.run_s, "None"
        for row in nodes:
            self.free[row][0] -= job.gpus
            self.free[row][1] -= job.cpus
        return Start(at_s=now, job=job, victims=tuple(victims))

    def _preempt(self, job: Job, candidates: list[Job]) -> tuple[tuple[int, ...], list[Job]] | None:
        first = self._remove_until_it_fits(job, candidates)
        if first is None:
            return None
        n_first = len(first)
        again = self._remove_until_it_fits(job, [candidates[n_first - 1], *candidates[: n_first - 1]])
        assert again is not None
        nodes = self.place(self.free_without(again), job)
        assert nodes is not None
        return nodes, [victim for victim in again if not set(nodes).isdisjoint(victim.nodes)]

    def _remove_until_it_fits(self, job: Job, candidates: list[Job]) -> list[Job] | None:
        for number in range(1, len(candidates) + 1):
            if self.place(self.free_without(candidates[:number]), job) is not None:
                return candidates[:number]
        return None

    def _requeue(self, victim: Job, now: float) -> None:
        self._give_back(victim)
        if not victim.is_requeueable:
            self.n_dead += 1
            return
        victim.nodes, victim.restarts = (), victim.restarts + 1
        victim.submit_s, victim.eligible_s, victim.reason = now, now + self.requeue_delay_s, "BeginTime"
        self.pending[victim.job_id] = victim

    def _give_back(self, job: Job) -> None:
        del self.running[job.job_id]
        for row in job.nodes:
            self.free[row][0] += job.gpus
            self.free[row][1] += job.cpus


def total(jobs: Iterable[Job]) -> dict[str, int]:
    """Sum of what jobs ask for or use."""
    amounts = {CPU: 0, GPU: 0}
    for job in jobs:
        for name, amount in job.amounts.items():
            amounts[name] += amount
    return amounts
