"""What the agents share: ADR 0003's rule, exact in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.nodelist import expand_nodes
from policies.records import NodeName, NodeRecord, PartitionName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.axes import Axes
    from policies.records import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedNodes:
    """Nodes of the managed partitions, with their names split by whether Slurm may start jobs there."""

    partitions: frozenset[PartitionName]
    nodes: tuple[NodeRecord, ...]
    schedulable: frozenset[NodeName]
    unschedulable: frozenset[NodeName]

    @classmethod
    def of(cls, nodes: Iterable[NodeRecord], partitions: frozenset[PartitionName]) -> ManagedNodes:
        """Those among ``nodes`` that belong to any of ``partitions``."""
        ours = tuple(node for node in nodes if not partitions.isdisjoint(node.partitions))
        return cls(
            partitions=partitions,
            nodes=ours,
            schedulable=frozenset(node.name for node in ours if node.is_schedulable),
            unschedulable=frozenset(node.name for node in ours if not node.is_schedulable),
        )


def compute_capacity(
    axes: Axes,
    managed: ManagedNodes,
    *,
    held: Sequence[int],
    ours: Iterable[JobRecord],
    foreign: Iterable[JobRecord],
) -> tuple[int, ...]:
    """TRES of schedulable managed nodes, plus managed use on unschedulable ones, minus foreign use.

    Parameters
    ----------
    held : sequence of int
        What managed jobs hold, per axis.
    ours, foreign : iterable of JobRecord
        Jobs that hold resources now: of agents, and of nobody.

    Returns
    -------
    tuple of int
        Per axis. At least ``held``, and at least 1 where schedulable nodes have the axis: shares stay finite when
        foreign jobs hold everything.

    Notes
    -----
    A job on several nodes counts in equal parts per node, rounded up where it adds and down where it takes away.
    """
    total = [0] * len(axes.names)
    for node in managed.nodes:
        if node.is_schedulable:
            _add(total, axes.offered(node.tres))
    floors = [min(1, amount) for amount in total]
    for job in ours if managed.unschedulable else ():
        _add(total, _on_unschedulable(axes, job, managed))
    for job in foreign:
        _add(total, _foreign_use(axes, job, managed))
    return tuple(map(max, total, held, floors))


def _add(total: list[int], amounts: Iterable[int]) -> None:
    for axis, amount in enumerate(amounts):
        total[axis] += amount


def _n_within(job: JobRecord, names: frozenset[NodeName]) -> tuple[int, int]:
    """How many of the job's nodes are in ``names``, and how many it has (0 of 1 if unknown)."""
    nodes = expand_nodes(job.nodes)
    return sum(node in names for node in nodes), len(nodes) or 1


def _on_unschedulable(axes: Axes, job: JobRecord, managed: ManagedNodes) -> list[int]:
    inside, n_nodes = _n_within(job, managed.unschedulable)
    return [-(-amount * inside // n_nodes) for amount in axes.charged(job.tres, job.requested_types)]


def _foreign_use(axes: Axes, job: JobRecord, managed: ManagedNodes) -> list[int]:
    """Negative: what the job takes away; all of it if its nodes are unknown but a partition is managed."""
    inside, n_nodes = _n_within(job, managed.schedulable)
    if not job.nodes and not managed.partitions.isdisjoint(job.partitions):
        inside = n_nodes
    return [-(amount * inside // n_nodes) for amount in axes.offered(job.tres)]
