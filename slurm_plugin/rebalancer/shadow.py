"""Shadow: what fairness would say about a cluster that knows nothing of us. Accounts stand for agents."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from policies.census import compute_state
from policies.factor_plan import PolicyParams, rank_jobs
from policies.plan import AgentStanding
from policies.records import AccountName, AgentName, JobId
from policies.site_policy import AgentPolicy, SitePolicy, TagSource
from policies.standings import compute_standings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.factor_plan import Ranking
    from policies.records import JobRecord, Observation
    from policies.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowJob:
    """A startable pending job; ``tag`` is its share tag, ``priority`` Slurm's."""

    job_id: JobId
    account: AgentName
    tag: Fraction | None
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTres:
    """One TRES: what lies idle, and what waits for it.

    Attributes
    ----------
    n_waiting, wanted : int
        Startable jobs (tasks counted one by one) that ask for it, and how much they ask for in all.
    """

    tres: str
    capacity: int
    held: int
    n_waiting: int
    wanted: int

    @property
    def idle(self) -> int:
        """Capacity that no job holds."""
        return self.capacity - self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """What ``fairgpu shadow`` shows; both orders hold startable jobs, first to start first."""

    accounts: tuple[AgentStanding, ...]
    fair_order: tuple[ShadowJob, ...]
    slurm_order: tuple[ShadowJob, ...]
    idle: tuple[IdleTres, ...]


def shadow_policy(observation: Observation, weights: Mapping[str, Fraction]) -> SitePolicy:
    """Return a site policy with every account in sight as an agent.

    Parameters
    ----------
    weights : mapping of str to Fraction
        By account; an account that is not named gets the smallest named weight, all get 1 if none is named.
    """
    default = min(weights.values(), default=Fraction(1))
    accounts = sorted({job.account.lower() for job in observation.jobs} | {name.lower() for name in weights})
    by_name = {name.lower(): weight for name, weight in weights.items()}
    return SitePolicy(
        cluster=observation.cluster,
        partitions=tuple(sorted({partition for node in observation.nodes for partition in node.partitions})),
        agents=tuple(
            AgentPolicy(
                name=AgentName(name or "(no account)"),
                accounts=(AccountName(name),),
                base_weight=by_name.get(name, default),
            )
            for name in accounts
        ),
        tag_source=TagSource.ACCOUNT,
    )


def compute_shadow(observation: Observation, weights: Mapping[str, Fraction]) -> Shadow:
    """Return the fair order beside Slurm's, and what idles while others wait."""
    policy = shadow_policy(observation, weights)
    state = compute_state(observation, policy)
    ranking = rank_jobs(state, PolicyParams(site=policy), now=observation.at_s)
    jobs = {job.job_id: job for job in observation.jobs}
    fair = _fair_order(state, ranking, jobs)
    return Shadow(
        accounts=compute_standings(state, ranking.weights),
        fair_order=fair,
        # Slurm's own order: highest priority first, of equal ones the lower job id.
        slurm_order=tuple(sorted(fair, key=lambda one: (-one.priority, len(one.job_id), one.job_id))),
        idle=_idle(state),
    )


def _fair_order(state: ClusterState, ranking: Ranking, jobs: Mapping[JobId, JobRecord]) -> tuple[ShadowJob, ...]:
    queue = ranking.queue
    order = []
    for position in range(len(queue.rows)):
        if not queue.is_startable[position]:
            continue
        row = int(queue.rows[position])
        job_id = state.pending.job_ids[row]
        order.append(
            ShadowJob(
                job_id=job_id,
                account=state.agents[int(state.pending.agent[row])].name,
                tag=queue.tags.tag(int(queue.tag_rows[position])),
                priority=jobs[job_id].priority,
            )
        )
    return tuple(order)


def _idle(state: ClusterState) -> tuple[IdleTres, ...]:
    pending = state.pending
    rows = [row for row in range(len(pending)) if pending.is_startable[row]]
    found = []
    for axis, name in enumerate(state.tres):
        asks = [(int(pending.demand[row][axis]), int(pending.n_tasks[row])) for row in rows]
        found.append(
            IdleTres(
                tres=name,
                capacity=state.capacity[axis],
                held=sum(int(amounts[axis]) for amounts in state.held.tolist()),
                n_waiting=sum(n_tasks for ask, n_tasks in asks if ask),
                wanted=sum(ask * n_tasks for ask, n_tasks in asks),
            )
        )
    return tuple(found)
