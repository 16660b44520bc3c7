"""Webster's method (Sainte-Laguë), exact: how whole units of one TRES are split by weight.

Monotone in both senses: one unit more takes no unit from anybody, and a larger weight never gets fewer. The method of
the largest remainder is not: by it weights 6:6:2 get 4/4/2 of 10 units and 5/5/1 of 11.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HALF = Fraction(1, 2)


def apportion(amount: int, weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Whole units per weight, summing to ``amount`` (all 0 if every weight is 0).

    Parameters
    ----------
    amount : int
        Units to split, >= 0.
    weights : sequence of Fraction
        >= 0. Of equal claims the earlier one gets the unit.

    Notes
    -----
    Unit k of weight w has the priority ``w / (2k - 1)``; the ``amount`` largest priorities win (Balinski and Young,
    Fair Representation, appendix A). Rounding each exact share gives all but at most one unit per weight, so
    the work is O(n log n) however large the amount is.

    Examples
    --------
    >>> apportion(16, [Fraction("0.6"), Fraction("0.3"), Fraction("0.1")])
    (9, 5, 2)
    """
    total = sum(weights, start=Fraction(0))
    if not total:
        return (0,) * len(weights)
    units = [int(amount * weight / total + _HALF) for weight in weights]
    _give(units, weights, amount - sum(units))
    _take(units, weights, sum(units) - amount)
    return tuple(units)


def _give(units: list[int], weights: Sequence[Fraction], missing: int) -> None:
    heap = [(-weight / (2 * units[place] + 1), place) for place, weight in enumerate(weights) if weight]
    heapq.heapify(heap)
    for _ in range(missing):
        _, place = heap[0]
        units[place] += 1
        heapq.heapreplace(heap, (-weights[place] / (2 * units[place] + 1), place))


def _take(units: list[int], weights: Sequence[Fraction], surplus: int) -> None:
    heap = [(weight / (2 * units[place] - 1), -place) for place, weight in enumerate(weights) if units[place]]
    heapq.heapify(heap)
    for _ in range(surplus):
        _, negative = heapq.heappop(heap)
        place = -negative
        units[place] -= 1
        if units[place]:
            heapq.heappush(heap, (weights[place] / (2 * units[place] - 1), negative))
