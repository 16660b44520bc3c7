"""One agent's weighted dominant share, exactly: the number that DRF orders by.

``s_i = max_r(u_ir / c_r)`` is user i's dominant share in the DRF paper (Ghodsi et al., NSDI 2011, section 4.1); with
weights it is ``max_r(u_ir / c_r) / w_i`` (section 4.3, where each user has one weight for all resources).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def dominant_axis(amounts: Sequence[int], capacity: Sequence[int]) -> int | None:
    """Index of the axis with the largest ``amount / capacity``; the first of equals.

    Returns
    -------
    int or None
        ``None`` if all amounts are 0. An axis with an amount and without capacity is the largest of all.

    Examples
    --------
    >>> dominant_axis((3, 12), (9, 18))
    1
    """
    best: int | None = None
    top, bottom = 0, 1
    for axis, (amount, cap) in enumerate(zip(amounts, capacity, strict=True)):
        if amount * bottom > top * cap:
            best, top, bottom = axis, amount, cap
    return best


def dominant_share(amounts: Sequence[int], capacity: Sequence[int]) -> Fraction | None:
    """``max_r(amount_r / capacity_r)``, unweighted.

    Returns
    -------
    Fraction or None
        >= 0; ``None`` (infinite, sorts last) if an axis has an amount and no capacity.

    Examples
    --------
    >>> dominant_share((3, 12), (9, 18))
    Fraction(2, 3)
    """
    axis = dominant_axis(amounts, capacity)
    if axis is None:
        return Fraction(0)
    return Fraction(amounts[axis], capacity[axis]) if capacity[axis] else None


def standing_tag(next_amounts: Sequence[int], capacity: Sequence[int], weight: Fraction) -> Fraction | None:
    """Share tag of the agent's next job: the weighted dominant share at which it would start.

    Parameters
    ----------
    next_amounts : sequence of int
        What the agent holds plus what its earlier startable jobs ask for, per axis.
    capacity : sequence of int
        What the agents share, same axes.
    weight : Fraction
        ``base_weight * sla_factor``, >= 0.

    Returns
    -------
    Fraction or None
        >= 0; ``None`` (sorts after every number) for weight 0 and for an amount on an axis without capacity.

    Notes
    -----
    A start tag as in start-time fair queueing (Goyal et al., SIGCOMM 1996, section 2). About 3 us: the submit hook
    calls it per request.

    Examples
    --------
    >>> standing_tag((3, 12), (9, 18), Fraction(2, 3))
    Fraction(1, 1)
    """
    if not weight:
        return None
    axis = dominant_axis(next_amounts, capacity)
    if axis is None:
        return Fraction(0)
    below = capacity[axis] * weight.numerator
    return Fraction(next_amounts[axis] * weight.denominator, below) if below else None
