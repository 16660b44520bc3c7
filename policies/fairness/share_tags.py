"""Share tags of all pending jobs at once: exact, vectorised.

A job's share tag is its agent's weighted dominant share just before the job would start, with what the agent holds
and its earlier startable jobs counted: a start tag as in start-time fair queueing (Goyal et al., SIGCOMM 1996).
Starting jobs by smallest tag is DRF's Algorithm 1 (Ghodsi et al., NSDI 2011, section 4.2) when a blocked head stops
its agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.fairness.site_factor import LOWEST_FACTOR, QUANTUM
from policies.state import ExactArray

if TYPE_CHECKING:
    from collections.abc import Sequence


INT64_SAFE: Final = 2**62
"""An int64 computation is used only where every intermediate value is proven to stay below this."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareTags:
    """Tags of n jobs.

    Attributes
    ----------
    start : (n, n_tres) exact
        What the agent holds plus its earlier startable jobs, in TRES units.
    numerator : (n,) exact
        Tag = numerator / denominator for a job whose agent has a positive weight; else the unweighted dominant
        share on the same denominator.
    is_weighted : (n,) bool
        Whether the agent has a positive weight; jobs of the others sort last.
    is_near : (n,) bool
        Whether the unweighted dominant share is below 1: the job lies within one cluster capacity.
    """

    start: ExactArray
    numerator: ExactArray
    denominator: int
    is_weighted: NDArray[np.bool_]
    is_near: NDArray[np.bool_]

    def tag(self, row: int) -> Fraction | None:
        """The tag of one job; ``None`` for an agent of weight 0."""
        if not self.is_weighted[row]:
            return None
        return Fraction(int(self.numerator[row]), self.denominator)

    def site_factors(self, scale: int) -> NDArray[np.int64]:
        """``compute_site_factor`` of every tag, (n,) int64."""
        bound = max(_largest(self.numerator) * QUANTUM, self.denominator)
        quantised = as_exact(self.numerator, bound) * QUANTUM // self.denominator
        below = as_exact(quantised, max(scale * QUANTUM, _largest(quantised) + QUANTUM)) + QUANTUM
        factors = np.maximum(LOWEST_FACTOR, scale * QUANTUM // below)
        return np.where(self.is_weighted, factors, LOWEST_FACTOR).astype(np.int64)


def as_exact(values: ExactArray, bound: int) -> ExactArray:
    """The values with dtype int64 if ``bound`` is safe, else as Python integers in an object array."""
    dtype: Any = np.int64 if bound < INT64_SAFE else object
    return values.astype(dtype, copy=False)


def share_tags(
    held: ExactArray,
    demand: ExactArray,
    *,
    agent: NDArray[np.int64],
    weights: Sequence[Fraction],
    capacity: Sequence[int],
) -> ShareTags:
    """Share tag of each job.

    Parameters
    ----------
    held : (n_agents, n_tres) exact
        What each agent holds.
    demand : (n_jobs, n_tres) exact
        What each job adds for the later jobs of its agent: all its tasks; 0 for a job that cannot start.
    agent : (n_jobs,) int64
        Jobs of one agent stand together, in the agent's own order.
    weights : sequence of Fraction
        One per agent, >= 0.
    capacity : sequence of int
        Per axis; where it is 0 nothing is held or asked for.

    Returns
    -------
    ShareTags

    Notes
    -----
    O(n_jobs * n_tres). With ``D = lcm(capacity)`` and ``P = lcm`` of the weights' numerators, every tag is a whole
    multiple of ``1 / (D * P)``, so tags of different agents compare as whole numbers.
    """
    lcm = math.lcm(*(cap for cap in capacity if cap))
    multipliers = [lcm // cap if cap else 0 for cap in capacity]
    bound = (_largest(held) + _largest(demand) * (len(demand) + 1)) * max(multipliers, default=0)
    start = _start_amounts(as_exact(held, bound), as_exact(demand, bound), agent)
    unweighted = (start * as_exact(np.array(multipliers, dtype=object), bound)).max(axis=1, initial=0)

    positive = [weight for weight in weights if weight]
    common = math.lcm(*(weight.numerator for weight in positive))
    scales = [w.denominator * (common // w.numerator) if w else common for w in weights]
    wide = as_exact(unweighted, _largest(unweighted) * max(scales, default=0))
    factors = np.array(scales, dtype=object)[agent].astype(wide.dtype, copy=False)
    return ShareTags(
        start=start,
        numerator=wide * factors,
        denominator=lcm * common,
        is_weighted=np.array([bool(weight) for weight in weights], dtype=np.bool_)[agent],
        is_near=(unweighted < lcm).astype(np.bool_),
    )


def _start_amounts(held: ExactArray, demand: ExactArray, agent: NDArray[np.int64]) -> ExactArray:
    before = demand.cumsum(axis=0) - demand
    is_first = np.ones(len(agent), dtype=np.bool_)
    is_first[1:] = agent[1:] != agent[:-1]
    block = np.cumsum(is_first) - 1
    result: ExactArray = held[agent] + before - before[is_first][block]
    return result


def _largest(values: ExactArray) -> int:
    return int(values.max()) if values.size else 0
