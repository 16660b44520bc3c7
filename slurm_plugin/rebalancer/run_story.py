"""What a recorded run tells: which jobs started, ended or were taken back when, each agent's jobs and exact DRF."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.axes import Axes
from policies.fairness.whole_jobs import fill_whole_jobs
from policies.ownership import Resolver
from policies.plan import BandStanding, SetSiteFactor
from policies.records import AgentName, JobId
from policies.startability import Startability, read_reason
from slurm_plugin.rebalancer.replay import Replayed, replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import JobRecord
    from slurm_plugin.snapshot import Snapshot

MAX_TASKS: Final = 10_000
"""Tasks of one array that are looked at: no cluster of a demo holds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCount:
    """One agent in one cycle: jobs that run, and that would run under exact DRF of all its present jobs; its bands."""

    agent: AgentName
    n_running: int
    n_fair: int
    n_pending: int
    bands: BandStanding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One cycle of the run.

    Attributes
    ----------
    after_s : float
        Seconds since the first cycle.
    started, ended, taken_back : tuple of (JobId, AgentName)
        Since the cycle before, by job id. A job that was requeued waits for its next start and has not ended.
    decided : tuple of (str, int)
        Decisions of the cycle other than site factors, counted by kind.
    """

    after_s: float
    started: tuple[tuple[JobId, AgentName], ...]
    ended: tuple[tuple[JobId, AgentName], ...]
    taken_back: tuple[tuple[JobId, AgentName], ...]
    decided: tuple[tuple[str, int], ...]
    counts: tuple[AgentCount, ...]
    replayed: Replayed


def tell_run(snapshots: Sequence[Snapshot]) -> tuple[Moment, ...]:
    """Return the moments of a run, each decided again."""
    moments: list[Moment] = []
    running: dict[JobId, AgentName] = {}
    restarts: dict[JobId, int] = {}
    for snapshot in snapshots:
        owned = _owned_jobs(snapshot)
        now = {job.job_id: agent for job, agent in owned if job.state.holds_resources}
        waiting = {job.job_id: agent for job, agent in owned if job.state.is_pending}
        again = {job.job_id for job, _ in owned if job.restarts > restarts.get(job.job_id, job.restarts)}
        taken = {job_id: agent for job_id, agent in running.items() if job_id in again}
        moments.append(
            Moment(
                after_s=snapshot.now_s - snapshots[0].now_s,
                started=_missing(now, running),
                ended=_missing(running, now | waiting),
                taken_back=_missing(taken, {}),
                decided=_decided(snapshot),
                counts=_count(snapshot, owned),
                replayed=replay(snapshot),
            )
        )
        running = now
        restarts = {job.job_id: job.restarts for job, _ in owned}
    return tuple(moments)


def _decided(snapshot: Snapshot) -> tuple[tuple[str, int], ...]:
    kinds = Counter(type(one).__name__ for one in snapshot.plan.decisions if not isinstance(one, SetSiteFactor))
    return tuple(sorted(kinds.items()))


def _owned_jobs(snapshot: Snapshot) -> list[tuple[JobRecord, AgentName]]:
    resolver = Resolver.from_observation(snapshot.observation, snapshot.site_policy)
    pairs = ((job, resolver.decide_one(job).agent) for job in snapshot.observation.jobs)
    return [(job, agent) for job, agent in pairs if agent is not None]


def _missing(jobs: dict[JobId, AgentName], others: dict[JobId, AgentName]) -> tuple[tuple[JobId, AgentName], ...]:
    gone = (job_id for job_id in jobs if job_id not in others)
    return tuple((job_id, jobs[job_id]) for job_id in sorted(gone, key=lambda text: (len(text), text)))


def _count(snapshot: Snapshot, owned: Sequence[tuple[JobRecord, AgentName]]) -> tuple[AgentCount, ...]:
    plan = snapshot.plan
    axes = Axes(names=plan.tres)
    demands: list[list[tuple[int, ...]]] = []
    for standing in plan.standings:
        own = [job for job, agent in owned if agent == standing.agent and _counts(job)]
        own.sort(key=lambda job: not job.state.holds_resources)
        demands.append([d for job in own for d in [_charged(axes, job)] * min(job.n_tasks, MAX_TASKS)])
    filling = fill_whole_jobs(demands, plan.capacity, weights=[standing.weight for standing in plan.standings])
    return tuple(
        AgentCount(
            agent=standing.agent,
            n_running=standing.n_running,
            n_fair=n_fair,
            n_pending=standing.n_pending,
            bands=standing.bands,
        )
        for standing, n_fair in zip(plan.standings, filling.n_started, strict=True)
    )


def _counts(job: JobRecord) -> bool:
    if job.state.holds_resources:
        return True
    return job.state.is_pending and read_reason(job.reason).startability is Startability.STARTABLE


def _charged(axes: Axes, job: JobRecord) -> tuple[int, ...]:
    return tuple(axes.charged(job.tres, job.requested_types))
