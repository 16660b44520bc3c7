"""How often each job was taken back: counted from Slurm's restart counts between two observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.plan import BandMemory
from policies.quota.amounts import exceeded
from policies.quota.names import BORROWED, Band
from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policies.quota.band_state import BandState
    from policies.records import JobRecord
    from policies.site_policy import BandPolicy
    from policies.state import ClusterState


def count_reclaims(
    state: ClusterState, bands: BandState, memory: Sequence[BandMemory], policy: BandPolicy
) -> dict[JobId, BandMemory]:
    """What is remembered of the jobs in sight, with this observation counted.

    Notes
    -----
    A restart of a job that waits or runs in a borrowed band counts as a reclaim: Slurm's job table does not tell it
    from a failed node or a requeue by hand, and a job that restarts for any reason is better off on its own quota. A
    job is forgotten when it runs on the guaranteed band, when it is gone, or when it has left the borrowed bands and
    the window is over. A barred job that exceeds its guaranteed quota is barred for the window only, else it
    could never run. A reclaim after this observation's time was noted before the clock was set back: it counts as of
    now.
    """
    before = {item.job_id: item for item in memory}
    seen: dict[JobId, BandMemory] = {}
    for agent, job, is_running in _jobs(state, bands, before):
        old = before.get(job.job_id) or _of_its_array(before, job)
        if not is_running and old is not None and _is_untouched(old, job) and policy.max_reclaims > 0:
            seen[job.job_id] = old
        elif not (is_running and bands.band_of(agent, job) is Band.GUARANTEED):
            is_kept_barred = old is not None and old.is_barred and _fits(bands, agent, job)
            seen[job.job_id] = _count(old, job, state.at_s, policy=policy, is_kept_barred=is_kept_barred)
    return seen


def keep_memory(
    seen: Mapping[JobId, BandMemory], waiting: Mapping[JobId, JobRecord], running: frozenset[JobId]
) -> tuple[BandMemory, ...]:
    """What the next cycle gets, by job id.

    Parameters
    ----------
    waiting : mapping of JobId to JobRecord
        Pending jobs that are in a borrowed band after this cycle's moves.
    running : frozenset of JobId
        Jobs that run in one.
    """
    result = {
        job_id: item
        for job_id, item in seen.items()
        if item.reclaimed_s or item.is_barred or job_id in waiting or job_id in running
    }
    for job_id, job in waiting.items():
        if job_id not in result:
            result[job_id] = BandMemory(job_id=job_id, restarts=job.restarts)
    return tuple(result[job_id] for job_id in sorted(result))


def _count(
    old: BandMemory | None, job: JobRecord, at_s: float, *, policy: BandPolicy, is_kept_barred: bool
) -> BandMemory:
    """What is remembered of one job now."""
    n_new = 0 if old is None else max(0, job.restarts - old.restarts)
    noted = () if old is None else (min(at, at_s) for at in old.reclaimed_s)
    kept = tuple(at for at in noted if at > at_s - policy.window_s)
    times = (*kept, *(at_s,) * n_new)
    is_barred = len(times) >= policy.max_reclaims or is_kept_barred
    return BandMemory(job_id=job.job_id, restarts=job.restarts, reclaimed_s=times, is_barred=is_barred)


def _is_untouched(old: BandMemory, job: JobRecord) -> bool:
    """Whether the job was never taken back and still is not: nearly every one."""
    return old.restarts == job.restarts and not old.reclaimed_s and not old.is_barred and old.job_id == job.job_id


def _jobs(
    state: ClusterState, bands: BandState, before: Mapping[JobId, BandMemory]
) -> Iterator[tuple[int, JobRecord, bool]]:
    """Jobs that wait or run in a borrowed band of their agent, or are remembered, with whether they run."""
    owner = {name: agent for name, (agent, band) in bands.place_of.items() if band in BORROWED}
    known = before.keys()
    for agent, job in zip(state.pending.agent.tolist(), bands.pending, strict=True):
        if job.job_id in known or owner.get(job.qos) == agent or _is_remembered(job, before):
            yield agent, job, False
    for agent, job in bands.running:
        if owner.get(job.qos) == agent or _is_remembered(job, before):
            yield agent, job, True


def _is_remembered(job: JobRecord, before: Mapping[JobId, BandMemory]) -> bool:
    return job.job_id in before or bool(job.array_task_id and job.array_job_id in before)


def _of_its_array(before: Mapping[JobId, BandMemory], job: JobRecord) -> BandMemory | None:
    """A task that was split off its array since: it has never been seen, so it starts from the array's count."""
    return before.get(JobId(job.array_job_id)) if job.array_task_id else None


def _fits(bands: BandState, agent: int, job: JobRecord) -> bool:
    own = bands.agents[agent]
    return own is not None and not exceeded(own.guaranteed.grp_tres, job.tres)
