"""What is free on each node, and how many of a job's tasks would find a place: a copy to try on, never the truth."""

from __future__ import annotations

from collections import Counter
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.nodelist import expand_nodes
from policies.quota.amounts import GPU, MAX_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from policies.records import JobRecord, NodeRecord, PartitionName, Tres

    Ints = NDArray[np.int64]


_HELD: Final = attrgetter("nodes", "tres")


class FreeRoom:
    """Free amounts per node of the managed partitions.

    A job on several nodes counts in equal parts, rounded up. Nodes where Slurm may start nothing have no room. Room
    only shrinks, except through :meth:`release` on a :meth:`copy`.
    """

    __slots__ = ("_axes", "_free", "_full", "_index", "_members", "_partitions", "_total")

    def __init__(self, nodes: Sequence[NodeRecord], holders: Iterable[JobRecord]) -> None:
        nodes = sorted(nodes, key=attrgetter("name"))
        axes = sorted({name for node in nodes for name, _ in node.tres} | {GPU})
        self._axes = {name: axis for axis, name in enumerate(axes)}
        self._index: dict[str, int] = {node.name: row for row, node in enumerate(nodes)}
        self._partitions = [frozenset(node.partitions) for node in nodes]
        self._members: dict[tuple[PartitionName, ...], Ints] = {}
        self._full: set[tuple[object, ...]] = set()
        self._total = np.zeros((len(nodes), len(axes)), dtype=np.int64)
        for row, node in enumerate(nodes):
            for name, amount in node.tres if node.is_schedulable else ():
                self._total[row, self._axes[name]] = min(amount, MAX_AMOUNT)
        self._free = self._total.copy()
        self._take(holders)
        np.maximum(self._free, 0, out=self._free)

    def copy(self) -> FreeRoom:
        """Another one to try on."""
        twin = copy(self)
        twin._free, twin._full = self._free.copy(), set()  # noqa: SLF001 - a twin of the same class
        return twin

    def idle_gpus(self) -> int:
        """GPUs that nobody holds."""
        return int(self._free[:, self._axes[GPU]].sum())

    def release(self, job: JobRecord) -> None:
        """Give back what a running job holds."""
        rows = self.rows_of(job)
        if rows:
            self._free[rows] += self._amounts(job.tres, len(expand_nodes(job.nodes)))
        np.minimum(self._free, self._total, out=self._free)
        self._full.clear()

    def place(self, job: JobRecord, at_most: int | None = None) -> int:
        """Take room for the job's tasks, one after the other; how many found it (all of ``n_tasks`` by default)."""
        wanted = max(1, job.n_tasks) if at_most is None else at_most
        shape = (job.tres, job.partitions, job.n_nodes)
        if shape in self._full:
            return 0
        for n_placed in range(wanted):
            rows = self.where(job)
            if rows is None:
                self._full.add(shape)
                return n_placed
            self._free[rows] -= self._per_node(job)
        return wanted

    def has_room(self, job: JobRecord) -> bool:
        """Whether one task of the job would fit now."""
        shape = (job.tres, job.partitions, job.n_nodes)
        if shape in self._full:
            return False
        if self.where(job) is not None:
            return True
        self._full.add(shape)
        return False

    def where(self, job: JobRecord) -> list[int] | None:
        """Rows of the nodes on which one task of the job would fit now, the fullest nodes first; ``None`` if none."""
        need = self._per_node(job)
        n_nodes = max(1, job.n_nodes)
        rows = self._rows_in(job.partitions)
        rows = rows[(self._free[rows] >= need).all(axis=1)]
        if len(rows) < n_nodes or self._has_unknown_axis(job):
            return None
        gpus = self._free[rows, self._axes[GPU]]
        chosen: list[int] = rows[np.argsort(gpus, kind="stable")[:n_nodes]].tolist()
        return chosen

    def set_aside(self, job: JobRecord) -> None:
        """Keep for a waiting claim what is free on the nodes where it needs least more, so that nobody borrows it."""
        rows = self._rows_in(job.partitions)
        chosen = rows[np.argsort(-self._free[rows, self._axes[GPU]], kind="stable")[: max(1, job.n_nodes)]]
        self._free[chosen] = np.maximum(self._free[chosen] - self._per_node(job), 0)

    def rows_of(self, job: JobRecord) -> list[int]:
        """Rows of the nodes that a running job is on."""
        return [self._index[name] for name in expand_nodes(job.nodes) if name in self._index]

    def _rows_in(self, partitions: tuple[PartitionName, ...]) -> Ints:
        """Rows of the nodes of these partitions, lowest first."""
        if partitions not in self._members:
            found = [row for row, names in enumerate(self._partitions) if not names.isdisjoint(partitions)]
            self._members[partitions] = np.array(found, dtype=np.int64)
        return self._members[partitions]

    def _has_unknown_axis(self, job: JobRecord) -> bool:
        return any(name not in self._axes for name, _ in job.tres)

    def _per_node(self, job: JobRecord) -> Ints:
        return self._amounts(job.tres, max(1, job.n_nodes))

    def _take(self, holders: Iterable[JobRecord]) -> None:
        """Subtract what many jobs hold; equal jobs on the same nodes are counted first."""
        on: dict[str, tuple[list[int], int]] = {}
        for (nodes, tres), n_jobs in Counter(map(_HELD, holders)).items():
            if nodes not in on:
                names = expand_nodes(nodes)
                on[nodes] = ([self._index[node] for node in names if node in self._index], len(names))
            rows, n_nodes = on[nodes]
            if rows:
                self._free[rows] -= n_jobs * self._amounts(tres, n_nodes)

    def _amounts(self, tres: Tres, n_nodes: int) -> Ints:
        """Equal parts per node, rounded up."""
        amounts = np.zeros(len(self._axes), dtype=np.int64)
        for name, amount in tres:
            if name in self._axes:
                amounts[self._axes[name]] = min(MAX_AMOUNT, -(-amount // n_nodes))
        return amounts
