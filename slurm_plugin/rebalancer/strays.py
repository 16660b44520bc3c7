"""Strays: jobs that were ours and are not any more; their user moved them to a partition or account of no agent.

What waiting ones have of ours is taken back in the next cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.ownership import Resolver
from slurm_plugin.rebalancer.journal import Restore, find_entry
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.qos_journal import QosRestore, compute_qos_restores
from slurm_plugin.rebalancer.reset import find_restores

if TYPE_CHECKING:
    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy
    from slurm_plugin.rebalancer.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """What to write so that no waiting job of no agent keeps a site factor of ours or waits where we put it."""

    factors: tuple[Restore, ...] = ()
    moves: tuple[QosRestore, ...] = ()


def find_strays(seen: Observation, policy: SitePolicy, history: History) -> Strays:
    """Return what strays get back: the factor where Slurm shows one, the QOS where the site has bands."""
    own = OwnQos.from_policy(policy)
    ranked = history.factors.lines
    moved = {} if policy.bands is None else history.moves.lines

    def may_rank(job: JobRecord) -> bool:
        # With a pinned priority 0 is shown, whatever was written.
        return bool(job.site_factor or (job.site_factor == 0 and find_entry(job, ranked)))

    def may_wait_with_us(job: JobRecord) -> bool:
        return own.is_borrowed(job.qos) or find_entry(job, moved) is not None

    doubtful = [job for job in seen.jobs if job.state.is_pending and (may_rank(job) or may_wait_with_us(job))]
    owners = Resolver.from_observation(seen, policy).decide_all(doubtful)
    is_stray = owners.spread(lambda decision: decision.agent is None, bool).tolist()
    strays = [job for job, stray in zip(doubtful, is_stray, strict=True) if stray]
    return Strays(
        factors=find_restores(filter(may_rank, strays), policy, history),
        moves=compute_qos_restores(filter(may_wait_with_us, strays), moved, own),
    )
