"""The policy ``constant``: every managed job gets the same site factor. The control experiment: it must not be fair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from policies.factor_plan import FactorTargets, PolicyParams, plan_factors
from policies.fairness.site_factor import LOWEST_FACTOR

if TYPE_CHECKING:
    from fractions import Fraction

    from policies.job_queue import JobQueue
    from policies.plan import Plan
    from policies.site_policy import SitePolicy
    from policies.state import ClusterState

NAME: Final = "constant"


def factor_at_submission(tag: Fraction | None, scale: int) -> int:
    """Half the scale, whatever the tag."""
    del tag
    return max(LOWEST_FACTOR, scale // 2)


def compute_targets(queue: JobQueue, site: SitePolicy) -> FactorTargets:
    """Half the scale for each job, so that Slurm's own order (age, then job id) decides."""
    n_jobs = len(queue.rows)
    return FactorTargets(
        factors=np.full(n_jobs, factor_at_submission(None, site.factor_scale), dtype=np.int64),
        is_exact=np.ones(n_jobs, dtype=np.bool_),
    )


def decide(state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
    """Plan that gives every managed pending job the same site factor."""
    return plan_factors(state, params, name=NAME, rule=compute_targets, now=now)
