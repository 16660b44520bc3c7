"""What the agents share: ADR 0003's rule, exact in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.nodelist import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.axes import Axes
    from policies.records import JobRecord, NodeRecord, PartitionName

    Vector = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSets:
    """Names of the nodes of managed partitions, split by whether Slurm may start jobs there."""

    schedulable: frozenset[str]
    unschedulable: frozenset[str]
    partitions: frozenset[PartitionName]

    def n_within(self, job: JobRecord, names: frozenset[str]) -> tuple[int, int]:
        """How many of the job's nodes are in ``names``, and how many it has (0, 1 if unknown)."""
        nodes = expand_nodes(job.nodes)
        return sum(node in names for node in nodes), len(nodes) or 1


def compute_node_sets(nodes: Iterable[NodeRecord], managed: frozenset[PartitionName]) -> NodeSets:
    """Node sets of the managed partitions."""
    rows = [(node.name, node.is_schedulable) for node in nodes if not managed.isdisjoint(node.partitions)]
    return NodeSets(
        schedulable=frozenset(name for name, is_schedulable in rows if is_schedulable),
        unschedulable=frozenset(name for name, is_schedulable in rows if not is_schedulable),
        partitions=managed,
    )


def compute_capacity(
    axes: Axes, nodes: Iterable[NodeRecord], sets: NodeSets, holders: tuple[list[JobRecord], list[JobRecord]]
) -> tuple[int, ...]:
    """TRES of schedulable managed nodes, plus managed use on unschedulable ones, minus foreign use.

    Parameters
    ----------
    holders : tuple of (managed jobs, foreign jobs)
        Jobs that hold resources now.

    Returns
    -------
    tuple of int
        Per axis. At least what managed jobs hold, and at least 1 where schedulable nodes have the axis: shares
        stay finite when foreign jobs hold everything.

    Notes
    -----
    A job on several nodes counts in equal parts per node, rounded up where it adds and down where it takes away.
    """
    managed, foreign = holders
    configured = _sum(axes, (axes.offered(n.tres) for n in nodes if n.name in sets.schedulable))
    added = _sum(axes, (_on_unschedulable(axes, job, sets) for job in managed) if sets.unschedulable else ())
    taken = _sum(axes, (_foreign_use(axes, job, sets) for job in foreign))
    held = _sum(axes, (axes.charged(job.tres, job.requested_types) for job in managed))
    return tuple(
        max(configured[axis] + added[axis] - taken[axis], held[axis], min(1, configured[axis]))
        for axis in range(len(axes.names))
    )


def _sum(axes: Axes, rows: Iterable[Sequence[int]]) -> Vector:
    total = [0] * len(axes.names)
    for row in rows:
        for axis, amount in enumerate(row):
            total[axis] += amount
    return total


def _on_unschedulable(axes: Axes, job: JobRecord, sets: NodeSets) -> Vector:
    inside, n_nodes = sets.n_within(job, sets.unschedulable)
    return [-(-amount * inside // n_nodes) for amount in axes.charged(job.tres, job.requested_types)]


def _foreign_use(axes: Axes, job: JobRecord, sets: NodeSets) -> Vector:
    inside, n_nodes = sets.n_within(job, sets.schedulable)
    if not job.nodes and not sets.partitions.isdisjoint(job.partitions):
        inside = n_nodes
    return [amount * inside // n_nodes for amount in axes.offered(job.tres)]
