"""The policy ``wdrf``: SLA-weighted Dominant Resource Fairness by share tags (docs/explanation/fairness.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.factor_plan import FactorTargets, PolicyParams, plan_factors
from policies.fairness.site_factor import compute_site_factor

if TYPE_CHECKING:
    from policies.job_queue import JobQueue
    from policies.plan import Plan
    from policies.site_policy import SitePolicy
    from policies.state import ClusterState

NAME: Final = "wdrf"


factor_at_submission: Final = compute_site_factor
"""What the submit hook gives a job with this share tag: the same number that the next cycle computes."""


def compute_targets(queue: JobQueue, site: SitePolicy) -> FactorTargets:
    """Site factors from share tags; exact for jobs within one cluster capacity of their agent's queue."""
    del site
    return FactorTargets(factors=queue.factors, is_exact=queue.tags.is_near[queue.tag_rows])


def decide(state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
    """Plan that lets the job of the agent with the smallest weighted dominant share start first."""
    return plan_factors(state, params, name=NAME, rule=compute_targets, now=now)
