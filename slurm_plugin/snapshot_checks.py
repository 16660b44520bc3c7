"""What must hold in a snapshot beyond the types of its fields, so that the core may trust it as it trusts a cycle."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from policies.quota.amounts import MAX_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policies.plan import Plan
    from policies.records import Observation
    from policies.site_policy import SitePolicy

MAX_SCALE: Final = 2**31
MAX_TIME_S: Final = 2**40
MAX_TASKS: Final = 2**32
_LONG_NUMBER: Final = re.compile("[0-9]{16}")
"""No id of a job has such a number: Slurm's have 32 bits."""


def find_problem(observation: Observation, policy: SitePolicy, plan: Plan) -> str | None:
    """Return the first thing that cannot be in a recorded cycle, starting with its field, ``None`` if all is well."""
    problems = (*_policy_problems(policy), *_plan_problems(plan, policy), *_observation_problems(observation))
    return next(iter(problems), None)


def _policy_problems(policy: SitePolicy) -> Iterator[str]:
    names = [agent.name for agent in policy.agents]
    if not 1 <= policy.factor_scale <= MAX_SCALE:
        yield f"site_policy.factor_scale: {policy.factor_scale} is not in 1..{MAX_SCALE}"
    if len(set(names)) != len(names):
        yield "site_policy.agents: a name comes twice"
    if not any(agent.base_weight > 0 for agent in policy.agents):
        yield "site_policy.agents: no base_weight is above 0"
    if any(agent.base_weight < 0 for agent in policy.agents) or policy.sla.bound <= 0:
        yield "site_policy: a base_weight or sla.bound is below 0"


def _plan_problems(plan: Plan, policy: SitePolicy) -> Iterator[str]:
    agents = {agent.name for agent in policy.agents}
    if len(plan.capacity) != len(plan.tres):
        yield "plan.capacity: not one amount per TRES"
    for standing in plan.standings:
        if standing.agent not in agents:
            yield f"plan.standings: {standing.agent!r:.80} is no agent of the site policy"
        if not len(standing.allocation) == len(standing.queued) == len(plan.tres):
            yield "plan.standings: not one amount per TRES"
    if sorted(standing.agent for standing in plan.standings) != sorted(agents):
        yield "plan.standings: not one per agent of the site policy"


def _observation_problems(seen: Observation) -> Iterator[str]:
    requests = chain((job.tres for job in seen.jobs), (node.tres for node in seen.nodes))
    if any(not 0 <= amount <= MAX_AMOUNT for tres in requests for _, amount in tres):
        yield f"observation: a TRES amount is not in 0..{MAX_AMOUNT}"
    if any(not 0 <= job.n_tasks <= MAX_TASKS or not 0 <= job.n_nodes <= MAX_TASKS for job in seen.jobs):
        yield f"observation.jobs: n_tasks or n_nodes is not in 0..{MAX_TASKS}"
    if _any_out_of_time(time_s for job in seen.jobs for time_s in (job.submit_s, job.eligible_s, job.start_s)):
        yield f"observation.jobs: a time is not in 0..{MAX_TIME_S}"
    if _any_out_of_time(node.out_since_s for node in seen.nodes):
        yield f"observation.nodes: a time is not in 0..{MAX_TIME_S}"
    if any(_LONG_NUMBER.search(job.job_id) for job in seen.jobs):
        yield "observation.jobs: a job_id holds a number of more than 15 digits"
    if len({job.job_id for job in seen.jobs}) != len(seen.jobs):
        yield "observation.jobs: a job_id comes twice"


def _any_out_of_time(times_s: Iterable[int | None]) -> bool:
    return any(time_s is not None and not 0 <= time_s <= MAX_TIME_S for time_s in times_s)
