"""Weighted DRF with divisible tasks by progressive filling, vectorised (Ghodsi et al., NSDI 2011, section 4.1).

All agents' weighted dominant shares rise together from 0 (the water level). When a resource is used up, the agents
that need it stop; the rest go on. Between two such events use is piecewise linear in the level, with a bend where an
agent has all its tasks, so the next event is found by sorting the bends once and a cumulative sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.fairness.whole_jobs import FillStatus
from policies.state import freeze

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DivisibleFilling:
    """Outcome of :func:`progressive_filling`.

    Attributes
    ----------
    tasks : (n_agents,) float64
        Tasks per agent, fractions allowed.
    used : (n_tres,) float64
        TRES units.
    weighted_share : (n_agents,) float64
        Weighted dominant share; ``inf`` for weight 0 with tasks.
    status : FillStatus
        ``BLOCKED`` if a resource stopped some agent, ``DEMAND_MET`` if every agent got all it wants.
    iterations : int
        Rounds: at most one per resource and weight class (positive, zero).
    residual : float
        Largest relative excess of use over capacity, rounding error only; >= 0.
    """

    tasks: Floats
    used: Floats
    weighted_share: Floats
    status: FillStatus
    iterations: int
    residual: float


def progressive_filling(
    demand: Floats, capacity: Floats, weights: Floats, *, max_tasks: Floats | None = None
) -> DivisibleFilling:
    """Divisible weighted DRF.

    Parameters
    ----------
    demand : (n_agents, n_tres) float64
        One task of each agent, TRES units.
    capacity : (n_tres,) float64
        TRES units, >= 0.
    weights : (n_agents,) float64
        >= 0. Weight 0 shares equally what the positive weights leave.
    max_tasks : (n_agents,) float64, optional
        Most tasks an agent wants; ``inf`` by default.

    Returns
    -------
    DivisibleFilling

    Notes
    -----
    O((n_agents log n_agents + n_agents * rounds) * n_tres), at most n_tres rounds per weight class. An agent whose
    task asks for nothing gets 0 tasks.

    Examples
    --------
    >>> filling = progressive_filling(
    ...     np.array([[1.0, 4.0], [3.0, 1.0]]), np.array([9.0, 18.0]), np.ones(2))
    >>> filling.tasks.round(6).tolist()
    [3.0, 2.0]
    """
    wanted = np.full(len(demand), np.inf) if max_tasks is None else max_tasks
    asks = demand > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        dominant = np.where(asks, demand / capacity, 0.0).max(axis=1, initial=0.0)
    can_run = (dominant > 0) & np.isfinite(dominant) & (wanted > 0)
    tasks = np.zeros(len(demand))
    used = np.zeros(len(capacity))
    iterations = 0
    for members, rate_weights in (
        (can_run & (weights > 0), weights),
        (can_run & (weights == 0), np.ones(len(weights))),
    ):
        rows = np.flatnonzero(members)
        rate = rate_weights[rows] / dominant[rows]
        got, rounds = _fill(demand[rows], capacity - used, rate, wanted[rows])
        tasks[rows] = got
        used = used + got @ demand[rows]
        iterations += rounds
    return _outcome(tasks, used, iterations, inputs=(capacity, weights, wanted, dominant))


def _fill(demand: Floats, left: Floats, rate: Floats, wanted: Floats) -> tuple[Floats, int]:
    """Tasks per agent and rounds; ``rate`` is tasks per unit of water level. Inside, arrays are (n_tres, n_agents)."""
    bends = wanted / rate
    by_bend = np.argsort(bends, kind="stable")
    rate, bends = rate[by_bend], bends[by_bend]
    flow = np.ascontiguousarray(demand[by_bend].T) * rate
    asks = flow > 0
    levels = np.zeros(len(rate))
    is_active = np.ones(len(rate), dtype=np.bool_)
    fixed = np.zeros(len(left))
    rounds = 0
    while is_active.any():
        rounds += 1
        reach = _saturation_levels(flow * is_active, left - fixed, bends)
        level = reach.min()
        stopped = is_active if np.isinf(level) else is_active & asks[reach <= level].any(axis=0)
        levels[stopped] = np.minimum(level, bends[stopped])
        fixed += flow[:, stopped] @ levels[stopped]
        is_active = is_active & ~stopped
    tasks = np.empty(len(rate))
    tasks[by_bend] = levels * rate
    return tasks, rounds


def _saturation_levels(flow: Floats, left: Floats, bends: Floats) -> Floats:
    """Level at which each resource is used up by these agents; ``inf`` where it never is.

    Between bends k-1 and k, agents before k have all they want: use(level) = done_k + level * open_k. Agents without
    a bend stand last.
    """
    n_bends = int(np.searchsorted(bends, np.inf))
    finite = bends[:n_bends]
    done = np.cumsum(flow[:, :n_bends] * finite, axis=1)
    total = flow.sum(axis=1)
    use_at_bend = done + (total[:, None] - np.cumsum(flow[:, :n_bends], axis=1)) * finite
    levels = np.full(len(left), np.inf)
    for axis in np.flatnonzero(total):
        at = int(np.searchsorted(use_at_bend[axis], left[axis]))
        rest = flow[axis, at:].sum()
        if rest > 0:
            before = done[axis, at - 1] if at else 0.0
            levels[axis] = max(0.0, left[axis] - before) / rest
    return levels


def _outcome(
    tasks: Floats, used: Floats, iterations: int, *, inputs: tuple[Floats, Floats, Floats, Floats]
) -> DivisibleFilling:
    capacity, weights, wanted, dominant = inputs
    share = np.where(tasks > 0, tasks * np.where(np.isfinite(dominant), dominant, 0.0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weighted = np.where(share > 0, share / weights, 0.0)
        excess = np.where(capacity > 0, used / capacity - 1.0, 0.0)
    is_short = (tasks < wanted * (1 - 1e-12)) & (dominant > 0)
    return DivisibleFilling(
        tasks=freeze(tasks),
        used=freeze(used),
        weighted_share=freeze(weighted),
        status=FillStatus.BLOCKED if is_short.any() else FillStatus.DEMAND_MET,
        iterations=iterations,
        residual=float(max(0.0, excess.max(initial=0.0))),
    )
