"""From an observation to columns: who owns each job, what the agents share, which jobs could start.

Work that depends on few distinct values (owner, request, reason) is done once per value and spread by look-up, so
that 10,000 jobs cost a few map calls and not 10,000 objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.axes import Axes, compute_axes
from policies.capacity import compute_capacity, compute_node_sets
from policies.eligibility import Eligibility, judge_jobs
from policies.ownership import OwnerKey, Resolver, decide_all, refusal_findings
from policies.plan import Finding
from policies.records import JobState
from policies.site_policy import AgentPolicy, JobOrder
from policies.state import NO_FACTOR, ClusterState, PendingJobs, freeze

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy
    from policies.state import ExactArray
    from policies.submission.decision import SubmissionDecision

_REQUEST: Final = attrgetter("tres", "requested_types")
_NUMBER: Final = re.compile(r"\d+")
INF: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The managed jobs of one observation with the decisions about them, before they become columns."""

    axes: Axes
    agents: tuple[AgentPolicy, ...]
    decisions: Mapping[OwnerKey, SubmissionDecision]
    pending: tuple[JobRecord, ...]
    pending_keys: tuple[OwnerKey, ...]
    holding: tuple[JobRecord, ...]
    holding_agents: tuple[int, ...]
    capacity: tuple[int, ...]
    findings: tuple[Finding, ...]


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
    About 3 us per job at 10,000 jobs. Everything that could not be used is a finding.
    """
    census = take_census(observation, site_policy)
    eligibility = judge_jobs(census.pending, census.axes, observation)
    held, n_running = _sum_held(census)
    return ClusterState(
        at_s=observation.at_s,
        tres=census.axes.names,
        capacity=census.capacity,
        agents=census.agents,
        held=freeze(held),
        n_running=freeze(n_running),
        pending=_columns(census, eligibility),
        indicators=observation.indicators,
        findings=(*census.findings, *eligibility.findings),
    )


def take_census(observation: Observation, site_policy: SitePolicy) -> Census:
    """Who owns which job, and the capacity."""
    agents = tuple(sorted(site_policy.agents, key=lambda agent: agent.name))
    index = {agent.name: number for number, agent in enumerate(agents)}
    sets = compute_node_sets(observation.nodes, frozenset(site_policy.partitions))
    managed_nodes = [n for n in observation.nodes if not sets.partitions.isdisjoint(n.partitions)]
    axes = compute_axes(managed_nodes)
    resolver = Resolver.from_observation(observation, site_policy)

    waiting = [job for job in observation.jobs if job.state is JobState.PENDING or job.state.is_pending]
    waiting_keys = resolver.keys(waiting)
    holders = [j for j in observation.jobs if j.state is not JobState.PENDING and j.state.holds_resources]
    holder_keys = resolver.keys(holders)
    decisions = decide_all(resolver, [*waiting_keys, *holder_keys])

    owned = [(job, decisions[key].agent) for job, key in zip(holders, holder_keys, strict=True)]
    managed = [(job, index[agent]) for job, agent in owned if agent is not None]
    ours = [(j, k) for j, k in zip(waiting, waiting_keys, strict=True) if decisions[k].agent is not None]
    foreign = [job for job, agent in owned if agent is None]
    return Census(
        axes=axes,
        agents=agents,
        decisions=decisions,
        pending=tuple(job for job, _ in ours),
        pending_keys=tuple(key for _, key in ours),
        holding=tuple(job for job, _ in managed),
        holding_agents=tuple(agent for _, agent in managed),
        capacity=compute_capacity(axes, managed_nodes, sets, ([job for job, _ in managed], foreign)),
        findings=tuple([*_reader_findings(observation), *refusal_findings(decisions, waiting_keys)]),
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


def _columns(census: Census, eligibility: Eligibility) -> PendingJobs:
    jobs = census.pending
    index = {agent.name: number for number, agent in enumerate(census.agents)}
    agent_of = {key: index[d.agent] for key, d in census.decisions.items() if d.agent is not None}
    ids = tuple(job.job_id for job in jobs)
    major, minor = _id_columns(ids)
    submit_s = _ints(job.submit_s for job in jobs)
    return PendingJobs(
        job_ids=ids,
        agent=freeze(_ints(map(agent_of.__getitem__, census.pending_keys))),
        demand=freeze(_demand(jobs, census.axes)),
        n_tasks=freeze(_ints(job.n_tasks if job.n_tasks > 1 else 1 for job in jobs)),
        startability=freeze(eligibility.codes),
        nice=freeze(_ints(job.nice for job in jobs)),
        submit_s=freeze(submit_s),
        wait_from_s=freeze(_ints(j.submit_s if j.eligible_s is None else j.eligible_s for j in jobs)),
        deadline_s=freeze(submit_s + _deadlines(census)),
        site_factor=freeze(_ints(NO_FACTOR if j.site_factor is None else j.site_factor for j in jobs)),
        id_major=freeze(major),
        id_minor=freeze(minor),
    )


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _id_columns(ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        return _ints(map(int, ids)), np.full(len(ids), -1, dtype=np.int64)
    except ValueError:
        pairs = [split_job_id(job_id) for job_id in ids]
        return _ints(major for major, _ in pairs), _ints(minor for _, minor in pairs)


def _demand(jobs: Sequence[JobRecord], axes: Axes) -> ExactArray:
    keys = list(map(_REQUEST, jobs))
    rows = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    table = exact_array([axes.charged(*key) for key in rows]).reshape(len(rows), len(axes.names))
    return table[_ints(map(rows.__getitem__, keys))]


def _deadlines(census: Census) -> NDArray[np.float64]:
    by_name = {agent.name: agent for agent in census.agents}

    def wanted(decision: SubmissionDecision) -> float:
        agent = None if decision.agent is None else by_name[decision.agent]
        looks = agent is not None and agent.order is JobOrder.DEADLINE
        return decision.tags.deadline_s if looks and decision.tags.deadline_s is not None else INF

    durations = {key: wanted(decision) for key, decision in census.decisions.items()}
    return np.fromiter(map(durations.__getitem__, census.pending_keys), dtype=np.float64)


def _sum_held(census: Census) -> tuple[ExactArray, NDArray[np.int64]]:
    n_agents, n_tres = len(census.agents), len(census.axes.names)
    held = [[0] * n_tres for _ in range(n_agents)]
    n_running = np.zeros(n_agents, dtype=np.int64)
    for job, agent in zip(census.holding, census.holding_agents, strict=True):
        n_running[agent] += 1
        for axis, amount in enumerate(census.axes.charged(job.tres, job.requested_types)):
            held[agent][axis] += amount
    return exact_array(held).reshape(n_agents, n_tres), n_running


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
