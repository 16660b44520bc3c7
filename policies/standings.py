"""Where each agent stands: held, queued, shares; what ``fairgpu status`` shows and the submit hook starts from."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from policies.fairness.share import dominant_axis
from policies.job_queue import total_demand
from policies.plan import AgentStanding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.state import ClusterState
    from policies.weights import AgentWeight

    Amounts = tuple[int, ...]


def compute_standings(state: ClusterState, weights: Sequence[AgentWeight]) -> tuple[AgentStanding, ...]:
    """One standing per agent, by name."""
    pending = state.pending
    queued = np.zeros_like(state.held, dtype=object)
    np.add.at(queued, pending.agent, total_demand(pending).astype(object))
    n_pending = np.bincount(pending.agent, weights=pending.n_tasks, minlength=len(state.agents))
    startable_tasks = np.where(pending.is_startable, pending.n_tasks, 0)
    n_startable = np.bincount(pending.agent, weights=startable_tasks, minlength=len(state.agents))
    return tuple(
        _standing(
            state,
            weight,
            amounts=(tuple(map(int, state.held[row])), tuple(map(int, queued[row]))),
            counts=(int(state.n_running[row]), int(n_pending[row]), int(n_startable[row])),
        )
        for row, weight in enumerate(weights)
    )


def count_by_quota(
    standings: Sequence[AgentStanding], state: ClusterState, has_quota: NDArray[np.bool_]
) -> tuple[AgentStanding, ...]:
    """Count as startable also the jobs that Slurm last held back by a limit that has room for them now.

    Parameters
    ----------
    has_quota : (n,) bool
        Pending rows for which the guaranteed band has room.

    Notes
    -----
    Claims are counted from the same rows, so there are never more claims than startable jobs. Share tags are not
    touched: they follow Slurm's word until it looks again.
    """
    pending = state.pending
    rows = np.flatnonzero(has_quota & ~pending.is_startable)
    n_more = np.zeros(len(standings), dtype=np.int64)
    wait_s = np.zeros(len(standings))
    np.add.at(n_more, pending.agent[rows], pending.n_tasks[rows])
    np.maximum.at(wait_s, pending.agent[rows], state.at_s - pending.wait_from_s[rows])
    return tuple(
        replace(one, n_startable=one.n_startable + int(n), oldest_wait_s=max(one.oldest_wait_s, float(waited)))
        for one, n, waited in zip(standings, n_more, wait_s, strict=True)
    )


def _standing(
    state: ClusterState, weight: AgentWeight, *, amounts: tuple[Amounts, Amounts], counts: tuple[int, int, int]
) -> AgentStanding:
    held, queued = amounts
    axis = dominant_axis(held, state.capacity)
    share = Fraction(0) if axis is None else Fraction(held[axis], state.capacity[axis])
    return AgentStanding(
        agent=weight.agent,
        base_weight=weight.base_weight,
        sla_factor=weight.sla_factor,
        weight=weight.weight,
        allocation=held,
        queued=queued,
        dominant_share=share,
        weighted_share=_weighted(share, weight.weight),
        dominant_tres="" if axis is None else state.tres[axis],
        n_running=counts[0],
        n_pending=counts[1],
        n_startable=counts[2],
        oldest_wait_s=weight.oldest_wait_s,
    )


def _weighted(share: Fraction, weight: Fraction) -> Fraction | None:
    if weight:
        return share / weight
    return None if share else share
