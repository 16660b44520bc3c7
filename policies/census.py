"""From an observation to columns: who owns each job, what the agents share, which jobs could start.

Work that depends on few distinct values (owner, request, reason) is done once per value and spread by look-up, so
that 10,000 jobs cost a few map calls and not 10,000 objects.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.axes import Axes, compute_axes
from policies.capacity import ManagedNodes, compute_capacity
from policies.eligibility import judge_jobs
from policies.interning import Interned
from policies.ownership import Owners, Resolver
from policies.plan import Finding
from policies.quota.band_state import compute_band_state, is_managed_qos
from policies.records import JobState
from policies.site_policy import JobOrder
from policies.state import NO_FACTOR, ClusterState, PendingJobs, freeze

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from policies.eligibility import Eligibility
    from policies.records import AgentName, JobRecord, Observation
    from policies.site_policy import AgentPolicy, SitePolicy
    from policies.state import ExactArray

    Agents = tuple[AgentPolicy, ...]
    Ints = NDArray[np.int64]

INF: Final = float("inf")

FOREIGN: Final = -1
"""Agent index of a job that belongs to no agent."""

_REQUEST: Final = attrgetter("tres", "requested_types")
_QOS: Final = attrgetter("qos")
_NUMBER: Final = re.compile(r"\d+")


def compute_state(observation: Observation, site_policy: SitePolicy) -> ClusterState:
    """The cluster as columns.

    Parameters
    ----------
    observation : Observation
        One read of Slurm.
    site_policy : SitePolicy
        Says which partitions are managed and whose job each one is.

    Returns
    -------
    ClusterState
        Agents by name, managed pending jobs in the order of the observation. Jobs of no agent (foreign jobs) only
        lower the capacity.

    Notes
    -----
    2-3 us per job at 10,000 jobs. Everything that could not be used is a finding.
    """
    agents = tuple(sorted(site_policy.agents, key=lambda agent: agent.name))
    managed = ManagedNodes.of(observation.nodes, frozenset(site_policy.partitions))
    axes = compute_axes(managed.nodes)
    resolver = Resolver.from_observation(observation, site_policy)
    holding = [j for j in observation.jobs if j.state is not JobState.PENDING and j.state.holds_resources]
    holders = _agent_indices(resolver.decide_all(holding), agents, holding, site_policy)
    ours = [job for job, agent in zip(holding, holders.tolist(), strict=True) if agent != FOREIGN]
    foreign = [job for job, agent in zip(holding, holders.tolist(), strict=True) if agent == FOREIGN]
    held = _sum_by_agent(_demand(ours, axes), holders[holders != FOREIGN], len(agents))
    waiting, pending, findings = _pending_jobs(observation, resolver, axes, agents)
    bands = None
    if site_policy.bands is not None:
        running = tuple(zip(holders[holders != FOREIGN].tolist(), ours, strict=True))
        jobs = (tuple(waiting), running, tuple(foreign))
        bands = compute_band_state(observation, site_policy, agents, jobs=jobs, nodes=managed.nodes)
    return ClusterState(
        at_s=observation.at_s,
        tres=axes.names,
        capacity=compute_capacity(axes, managed, held=[int(n) for n in held.sum(axis=0)], ours=ours, foreign=foreign),
        agents=agents,
        held=freeze(held),
        n_running=freeze(np.bincount(holders[holders != FOREIGN], minlength=len(agents)).astype(np.int64)),
        pending=pending,
        indicators=observation.indicators,
        findings=(*_reader_findings(observation), *findings, *(bands.findings if bands else ())),
        bands=bands,
    )


def split_job_id(job_id: str) -> tuple[int, int]:
    """A job id as numbers that sort as Slurm's ids do: ``12`` -> 12, -1; ``12_3`` and ``12+3`` -> 12, 3."""
    numbers = [int(digits) for digits in _NUMBER.findall(job_id)]
    return (numbers[0] if numbers else 0, numbers[1] if len(numbers) > 1 else -1)


def exact_array(values: Sequence[Any]) -> ExactArray:
    """Whole numbers as ``int64``, or as an object array where one does not fit."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array(values, dtype=object)


def _pending_jobs(
    observation: Observation, resolver: Resolver, axes: Axes, agents: Agents
) -> tuple[list[JobRecord], PendingJobs, list[Finding]]:
    waiting = [job for job in observation.jobs if job.state is JobState.PENDING or job.state.is_pending]
    owners = resolver.decide_all(waiting)
    owner_of = _agent_indices(owners, agents, waiting, resolver.site)
    deadlines = _deadlines(owners, owner_of, agents)
    is_ours = owner_of != FOREIGN
    if not is_ours.all():
        waiting = [job for job, keep in zip(waiting, is_ours.tolist(), strict=True) if keep]
        owner_of, deadlines = owner_of[is_ours], deadlines[is_ours]
    eligibility = judge_jobs(waiting, axes, observation)
    columns = _columns(waiting, axes, owner_of, deadlines, eligibility)
    return waiting, columns, [*owners.refusals(), *eligibility.findings]


def _deadlines(owners: Owners, owner_of: Ints, agents: Agents) -> NDArray[np.float64]:
    asked = np.array([tags.deadline_s or INF for tags in owners.tags], dtype=np.float64)
    # One more for FOREIGN, which is the last.
    is_by_deadline = np.array([*(agent.order is JobOrder.DEADLINE for agent in agents), False])
    return np.where(is_by_deadline[owner_of], asked, INF)


def _columns(
    jobs: Sequence[JobRecord], axes: Axes, owner_of: Ints, deadlines: NDArray[np.float64], eligibility: Eligibility
) -> PendingJobs:
    ids = tuple(map(attrgetter("job_id"), jobs))
    major, minor = _id_columns(ids)
    submit_s = _ints(map(attrgetter("submit_s"), jobs))
    return PendingJobs(
        job_ids=ids,
        agent=freeze(owner_of),
        demand=freeze(_demand(jobs, axes)),
        n_tasks=freeze(np.maximum(1, _ints(map(attrgetter("n_tasks"), jobs)))),
        startability=freeze(eligibility.codes),
        shape=freeze(eligibility.shape),
        nice=freeze(_ints(map(attrgetter("nice"), jobs))),
        submit_s=freeze(submit_s),
        wait_from_s=freeze(_ints(j.submit_s if j.eligible_s is None else j.eligible_s for j in jobs)),
        deadline_s=freeze(submit_s + deadlines),
        site_factor=freeze(_ints(NO_FACTOR if j.site_factor is None else j.site_factor for j in jobs)),
        id_major=freeze(major),
        id_minor=freeze(minor),
    )


def _agent_indices(owners: Owners, agents: Agents, jobs: Sequence[JobRecord], site: SitePolicy) -> Ints:
    index: dict[AgentName | None, int] = {agent.name: number for number, agent in enumerate(agents)}
    indices: Ints = owners.spread(lambda decision: index.get(decision.agent, FOREIGN), np.int64)
    if site.bands is None:
        return indices
    is_managed = Interned(map(_QOS, jobs)).spread(lambda qos: is_managed_qos(site, qos))
    return np.where(is_managed == 1, indices, FOREIGN)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _id_columns(ids: Sequence[str]) -> tuple[Ints, Ints]:
    if all(map(str.isdecimal, ids)):
        return _ints(map(int, ids)), np.full(len(ids), -1, dtype=np.int64)
    pairs = [split_job_id(job_id) for job_id in ids]
    return _ints(major for major, _ in pairs), _ints(minor for _, minor in pairs)


def _demand(jobs: Sequence[JobRecord], axes: Axes) -> ExactArray:
    requests = Interned(map(_REQUEST, jobs))
    table = exact_array([axes.charged(*request) for request in requests.values])
    return table.reshape(len(requests.values), len(axes.names))[requests.codes]


def _sum_by_agent(amounts: ExactArray, agent: Ints, n_agents: int) -> ExactArray:
    total = np.zeros((n_agents, amounts.shape[1]), dtype=object)
    np.add.at(total, agent, amounts.astype(object))
    return exact_array(total.tolist()).reshape(total.shape)


def _reader_findings(observation: Observation) -> list[Finding]:
    findings = [
        Finding(kind="reader", subject=subject, text=f"not understood, {count} time(s)")
        for subject, count in observation.problems
    ]
    unknown = [job.job_id for job in observation.jobs if job.state is JobState.UNKNOWN]
    if unknown:
        text = f"{len(unknown)} job(s) in a state that this release does not know are left alone: {unknown[0]}"
        findings.append(Finding(kind="unknown_state", subject="jobs", text=f"{text}, ..."))
    return findings
