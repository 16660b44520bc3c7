"""Two rules that DRF is compared with in NSDI'11 section 5, exactly, for two users; for contrast in tests only."""

from __future__ import annotations

from fractions import Fraction

Pair = tuple[Fraction, Fraction]
Demand = tuple[tuple[int, ...], tuple[int, ...]]


def asset_fairness(capacity: tuple[int, ...], demand: Demand) -> Pair:
    """Equal sums of shares over all resources, as many tasks as fit."""
    cost = [
        sum((Fraction(ask, cap) for ask, cap in zip(task, capacity, strict=True)), start=Fraction(0)) for task in demand
    ]
    per_spend = [1 / cost[0], 1 / cost[1]]
    spend = min(
        Fraction(cap) / (demand[0][r] * per_spend[0] + demand[1][r] * per_spend[1]) for r, cap in enumerate(capacity)
    )
    return spend * per_spend[0], spend * per_spend[1]


def ceei_of_two(capacity: tuple[int, ...], demand: Demand) -> Pair:
    """Competitive equilibrium from equal incomes: the feasible pair with the largest product (Nash bargaining)."""
    rows = [(demand[0][r], demand[1][r], capacity[r]) for r in range(len(capacity))]
    candidates = [(Fraction(c, 2 * a), Fraction(c, 2 * b)) for a, b, c in rows]
    for k, (a, b, c) in enumerate(rows):
        for a2, b2, c2 in rows[k + 1 :]:
            det = a * b2 - a2 * b
            candidates.append((Fraction(c * b2 - c2 * b, det), Fraction(a * c2 - a2 * c, det)))
    feasible = [(x, y) for x, y in candidates if x >= 0 and y >= 0 and all(a * x + b * y <= c for a, b, c in rows)]
    return max(feasible, key=lambda pair: pair[0] * pair[1])
