"""DRF's Algorithm 1 with whole jobs, exactly (Ghodsi et al., NSDI 2011, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from policies.fairness.share import dominant_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    Amounts = Sequence[int]


class FillStatus(StrEnum):
    """How a filling ended."""

    DEMAND_MET = "demand met"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJobFilling:
    """Outcome of :func:`fill_whole_jobs`.

    Attributes
    ----------
    order : tuple of (agent index, job index)
        Starts, first to last.
    allocation : tuple of tuple of int
        Per agent and axis, in TRES units, what was held before included.
    n_started : tuple of int
        Jobs started per agent.
    status : FillStatus
        ``BLOCKED`` if some agent's next job did not fit.
    iterations : int
        Jobs looked at.
    residual : tuple of int
        Capacity left per axis.
    """

    order: tuple[tuple[int, int], ...]
    allocation: tuple[tuple[int, ...], ...]
    n_started: tuple[int, ...]
    status: FillStatus
    iterations: int
    residual: tuple[int, ...]


def fill_whole_jobs(
    jobs: Sequence[Sequence[Amounts]],
    capacity: Amounts,
    *,
    weights: Sequence[Fraction],
    held: Sequence[Amounts] | None = None,
) -> WholeJobFilling:
    """Start whole jobs, each time for the agent with the smallest weighted dominant share.

    Parameters
    ----------
    jobs : sequence over agents of sequences of amounts
        Each agent's jobs in its own order; amounts per axis.
    capacity : sequence of int
    weights : sequence of Fraction
        Per agent, >= 0. Weight 0 comes after every positive weight; among such agents the unweighted share decides.
    held : sequence of amounts, optional
        What each agent holds at the start; nothing by default.

    Returns
    -------
    WholeJobFilling

    Notes
    -----
    Algorithm 1, line "pick user i with lowest dominant share"; ties go to the agent that comes first in ``jobs``.
    Where the next job does not fit, the paper's algorithm returns; here that agent stops and the others go on,
    since our agents' demands differ. Exact: shares are fractions. O(jobs * agents).

    Examples
    --------
    >>> a, b = [(1, 4)] * 5, [(3, 1)] * 5
    >>> filling = fill_whole_jobs([b, a], (9, 18), weights=[Fraction(1), Fraction(1)])
    >>> [("B", "A")[agent] for agent, _ in filling.order]
    ['B', 'A', 'A', 'B', 'A']
    """
    allocation = [list(row) for row in held] if held is not None else [[0] * len(capacity) for _ in jobs]
    residual = [cap - sum(column) for cap, column in zip(capacity, zip(*allocation, strict=True), strict=True)]
    n_started = [0] * len(jobs)
    order: list[tuple[int, int]] = []
    active = [agent for agent, own in enumerate(jobs) if own]
    iterations = 0
    status = FillStatus.DEMAND_MET
    while active:
        iterations += 1
        agent = min(active, key=lambda i: _rank(allocation[i], capacity, weights[i]))
        job = jobs[agent][n_started[agent]]
        if any(ask and ask > free for ask, free in zip(job, residual, strict=True)):
            status = FillStatus.BLOCKED
            active.remove(agent)
            continue
        for axis, ask in enumerate(job):
            allocation[agent][axis] += ask
            residual[axis] -= ask
        order.append((agent, n_started[agent]))
        n_started[agent] += 1
        if n_started[agent] == len(jobs[agent]):
            active.remove(agent)
    return WholeJobFilling(
        order=tuple(order),
        allocation=tuple(map(tuple, allocation)),
        n_started=tuple(n_started),
        status=status,
        iterations=iterations,
        residual=tuple(residual),
    )


def _rank(amounts: Amounts, capacity: Amounts, weight: Fraction) -> tuple[bool, bool, Fraction]:
    share = dominant_share(amounts, capacity)
    if share is None:
        return not weight, True, Fraction(0)
    return not weight, False, share / weight if weight else share
