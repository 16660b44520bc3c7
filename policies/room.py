"""Whether a job can ever run, and whether it could run on the nodes that are up: exact, per partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from policies.records import NodeRecord, PartitionName, Tres

Amounts = tuple[int, ...]
"""One number per TRES axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRoom:
    """Node shapes of one partition with their counts: all nodes, and those that are schedulable."""

    configured: tuple[tuple[Amounts, int], ...] = ()
    schedulable: tuple[tuple[Amounts, int], ...] = ()


def compute_rooms(
    nodes: Iterable[NodeRecord], amounts_of: Callable[[Tres], Amounts]
) -> Mapping[PartitionName, PartitionRoom]:
    """Room of each partition that a node names."""
    configured: dict[PartitionName, Counter[Amounts]] = {}
    schedulable: dict[PartitionName, Counter[Amounts]] = {}
    for node in nodes:
        shape = amounts_of(node.tres)
        for partition in node.partitions:
            configured.setdefault(partition, Counter())[shape] += 1
            schedulable.setdefault(partition, Counter())[shape] += node.is_schedulable
    return {
        name: PartitionRoom(
            configured=tuple(shapes.items()),
            schedulable=tuple((shape, count) for shape, count in schedulable[name].items() if count),
        )
        for name, shapes in configured.items()
    }


def can_hold(shapes: Sequence[tuple[Amounts, int]], request: Amounts, n_nodes: int) -> bool:
    """Whether nodes of these shapes, all empty, could hold a request on ``n_nodes`` nodes.

    Notes
    -----
    Exact for one node. For more nodes a necessary condition: there are enough nodes, and on each axis the
    ``n_nodes`` largest together have the amount. So "no" is always right.

    Examples
    --------
    >>> can_hold([((64, 4), 3)], (16, 8), n_nodes=1)
    False
    >>> can_hold([((64, 4), 3)], (16, 8), n_nodes=2)
    True
    """
    if n_nodes <= 1:
        return any(all(have >= ask for have, ask in zip(shape, request, strict=True)) for shape, _ in shapes)
    if sum(count for _, count in shapes) < n_nodes:
        return False
    return all(
        _sum_of_largest(((shape[axis], count) for shape, count in shapes), n_nodes) >= ask
        for axis, ask in enumerate(request)
    )


def _sum_of_largest(amounts: Iterable[tuple[int, int]], n_nodes: int) -> int:
    total = 0
    for amount, count in sorted(amounts, reverse=True):
        taken = min(count, n_nodes)
        total += amount * taken
        n_nodes -= taken
    return total
