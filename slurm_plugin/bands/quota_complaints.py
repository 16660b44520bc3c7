"""What is wrong with the quotas themselves: more than there is, nothing left for an agent, caps that are too small."""

from __future__ import annotations

import math
from statistics import median_low
from typing import TYPE_CHECKING

from policies.ownership import Resolver
from policies.quota.amounts import GPU
from policies.quota.nominal import configured_capacity, excess_quotas
from policies.site_policy import QuotaKind
from slurm_plugin.bands.complaint import Complaint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policies.quota.nominal import AgentQuota
    from policies.records import Observation
    from policies.site_policy import AgentPolicy, SitePolicy


def excess_complaints(policy: SitePolicy, seen: Observation) -> Iterator[Complaint]:
    """Yield each TRES of which the explicit quotas promise more than the nodes have, whatever their state."""
    autos = [agent.name for agent in policy.agents if agent.quota.kind is QuotaKind.AUTO]
    for one in excess_quotas(policy, seen.nodes):
        verb = "is" if len(autos) == 1 else "are"
        left = f": {', '.join(sorted(autos))} {verb} left with 0" if one.is_split and autos else ""
        yield Complaint(
            what=f"explicit quotas {one.promised} > {one.configured} {one.tres}{left}",
            why="what does not exist cannot be guaranteed: the agents would take it from each other",
            fix=f"site file: lower the quotas of {', '.join(one.agents)}: together at most {one.configured} {one.tres}",
        )


def quota_complaints(policy: SitePolicy, quotas: tuple[AgentQuota, ...], seen: Observation) -> Iterator[Complaint]:
    """Yield quotas of 0 that nobody asked for, caps of 0, and caps below the agent's usual job."""
    usual = _usual_gpus(policy, seen)
    agents = {agent.name: agent for agent in policy.agents}
    capacity = dict(configured_capacity(policy, seen.nodes))
    for quota in quotas:
        agent = agents[quota.agent]
        if agent.quota.kind is QuotaKind.NONE:
            continue
        yield from _empty_quotas(agent, quota, capacity)
        yield from _empty_caps(policy, agent, quota, capacity)
        cap, job = dict(quota.borrow_cap), usual.get(quota.agent, 0)
        if 0 < cap.get(GPU, job) < job:
            yield Complaint(
                what=f"agent {quota.agent} may borrow {cap[GPU]} GPUs, its usual job takes {job}",
                why="such a job never fits into the borrow band",
                fix=f"site file: agents.{quota.agent}.borrowing_limit: {{{GPU}: {job}}}",
            )


def _empty_quotas(agent: AgentPolicy, quota: AgentQuota, capacity: Mapping[str, int]) -> Iterator[Complaint]:
    if agent.quota.kind is not QuotaKind.AUTO:
        return
    for name, amount in quota.nominal or ():
        if not amount and capacity.get(name):
            yield Complaint(
                what=f"agent {agent.name}: quota auto gives 0 of {capacity[name]} {name}",
                why="none of its jobs that need any are guaranteed; they start on what others leave idle, if at all",
                fix=f"site file: lower the explicit quotas of {name}, or raise agents.{agent.name}.base_weight",
            )


def _empty_caps(
    policy: SitePolicy, agent: AgentPolicy, quota: AgentQuota, capacity: Mapping[str, int]
) -> Iterator[Complaint]:
    nominal, cap = dict(quota.nominal or ()), dict(quota.borrow_cap)
    for name in sorted(set(nominal) & set(cap)):
        if cap[name] or not (nominal[name] or capacity.get(name)):
            continue
        needed = math.ceil(1 / policy.bands.borrow_frac) if policy.bands and policy.bands.borrow_frac else 0
        yield Complaint(
            what=f"agent {agent.name} can borrow no {name}: its cap rounds to 0 of {nominal[name]}",
            why="idle quota of others stays idle for it, except opportunistically",
            fix=f"site file: agents.{agent.name}.borrowing_limit: {{{name}: 1}}"
            + (f", or a quota of {needed} or more" if needed else ""),
        )


def _usual_gpus(policy: SitePolicy, seen: Observation) -> dict[str, int]:
    """Middle GPU count of each agent's present GPU jobs, array tasks counted one by one."""
    resolver = Resolver.from_observation(seen, policy)
    sizes: dict[str, list[int]] = {}
    for job in seen.jobs:
        gpus = dict(job.tres).get(GPU, 0)
        if gpus and (job.state.is_pending or job.state.holds_resources):
            agent = resolver.decide_one(job).agent
            if agent is not None:
                sizes.setdefault(agent, []).extend([gpus] * min(job.n_tasks, 1_000))
    return {agent: median_low(found) for agent, found in sizes.items()}
