"""The pending jobs in the order in which they should start, with their share tags and site factors.

Global order: smallest share tag first; of equal tags the job of the agent whose oldest startable pending job is older,
then by agent name, then by the agent's own order (``nice``, deadline where the agent's order says so, submission time,
job id). Jobs of agents with weight 0 come after all others, by unweighted share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from policies.fairness.share_tags import ShareTags, as_exact, share_tags
from policies.state import freeze

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from policies.state import ClusterState, ExactArray, PendingJobs

    Ints = NDArray[np.int64]


MAX_DRIFT: Final = 100
"""Separating ties may lower a factor by at most scale / MAX_DRIFT (1 %)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobQueue:
    """n pending jobs in global order.

    Attributes
    ----------
    rows : (n,) int64
        Row of each job in :class:`PendingJobs`, first to start first.
    tags : ShareTags
        In block order: the jobs of one agent together.
    tag_rows : (n,) int64
        Row of each job in ``tags``.
    is_startable : (n,) bool
        A job that cannot start has a tag (where it would start) but moves nobody else's.
    factors : (n,) int64
        Wanted site factors.
    """

    rows: Ints
    tags: ShareTags
    tag_rows: Ints
    is_startable: NDArray[np.bool_]
    factors: Ints


def order_jobs(state: ClusterState, weights: Sequence[Fraction], *, scale: int) -> JobQueue:
    """Order the managed pending jobs.

    Parameters
    ----------
    weights : sequence of Fraction
        Per agent of the state.
    scale : int
        Site factor of a job with tag 0.

    Notes
    -----
    O(n log n) in the number of pending jobs. Within an agent tags never fall, so a stable sort by tag keeps the agent's
    own order; agents are laid out in tie order beforehand, so it settles ties too.
    """
    pending = state.pending
    tie_rank = _tie_ranks(pending, len(state.agents))
    keys = (
        pending.id_minor,
        pending.id_major,
        pending.submit_s,
        pending.deadline_s,
        pending.nice,
        tie_rank[pending.agent],
    )
    blocks = np.lexsort(keys).astype(np.int64)
    tags = share_tags(
        state.held,
        total_demand(pending)[blocks],
        agent=pending.agent[blocks],
        weights=weights,
        capacity=state.capacity,
    )
    tag_rows = _by_tag(tags)
    rows = blocks[tag_rows]
    is_startable = pending.is_startable[rows]
    is_exact = is_startable & tags.is_near[tag_rows]
    raw = tags.site_factors(scale)[tag_rows]
    return JobQueue(
        rows=freeze(rows),
        tags=tags,
        tag_rows=freeze(tag_rows),
        is_startable=freeze(is_startable),
        factors=freeze(_separate_ties(pending, rows[is_exact], is_exact, raw, slack=scale // MAX_DRIFT)),
    )


def total_demand(pending: PendingJobs) -> ExactArray:
    """What each job adds for the later jobs of its agent: all its tasks, 0 if it cannot start; (n, n_tres)."""
    if not len(pending):
        return pending.demand
    is_counted = pending.is_startable
    demand = np.where(is_counted[:, None], pending.demand, 0)
    bound = int(demand.max(initial=0)) * int(pending.n_tasks.max()) * len(pending)
    return as_exact(demand, bound) * pending.n_tasks[:, None]


def _tie_ranks(pending: PendingJobs, n_agents: int) -> Ints:
    """Rank of each agent among equals: older oldest startable job first, then name."""
    oldest = np.full(n_agents, np.iinfo(np.int64).max)
    is_startable = pending.is_startable
    np.minimum.at(oldest, pending.agent[is_startable], pending.submit_s[is_startable])
    ranks = np.empty(n_agents, dtype=np.int64)
    ranks[np.argsort(oldest, kind="stable")] = np.arange(n_agents)
    return ranks


def _by_tag(tags: ShareTags) -> Ints:
    order = np.argsort(tags.numerator, kind="stable")
    is_weighted = tags.is_weighted[order]
    return np.concatenate([order[is_weighted], order[~is_weighted]]).astype(np.int64)


def _separate_ties(pending: PendingJobs, picked: Ints, is_exact: NDArray[np.bool_], raw: Ints, *, slack: int) -> Ints:
    """Factors that give the global order although Slurm starts the lower job id first among equal priorities.

    Along the exact jobs (``picked``, startable and near the head) factors never rise; where a job's factor equals its
    predecessor's and its id is lower, it gets one less. Long runs of ties stop at ``slack`` below the tag's own
    factor and at 1; beyond that Slurm's rule decides.
    """
    own = raw[is_exact]
    if _is_settled(pending, picked, own):
        return raw
    factors: list[int] = []
    previous, previous_id = int(own[0]) + 1, (0, 0)
    ids = zip(pending.id_major[picked].tolist(), pending.id_minor[picked].tolist(), strict=True)
    for wanted, job_id in zip(own.tolist(), ids, strict=True):
        factor = wanted
        if wanted >= previous:
            factor = previous if job_id > previous_id else max(1, previous - 1, wanted - slack)
        factors.append(factor)
        previous, previous_id = factor, job_id
    result = raw.copy()
    result[is_exact] = factors
    return result


def _is_settled(pending: PendingJobs, picked: Ints, factors: Ints) -> bool:
    major, minor = pending.id_major[picked], pending.id_minor[picked]
    is_later = (major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & (minor[1:] > minor[:-1]))
    return bool(((factors[1:] < factors[:-1]) | (is_later & (factors[1:] == factors[:-1]))).all())
