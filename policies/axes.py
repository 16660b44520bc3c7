"""The TRES axes of one snapshot, and which of a job's amounts are charged on them (ADR 0003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.records import NodeRecord, Tres

BASE_AXES: Final = ("cpu", "mem", "gres/gpu")
"""Always there, in this order, so that agents compare on the same axes whatever runs."""

_TYPED: Final = "gres/gpu:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Axis names in their fixed order."""

    names: tuple[str, ...]

    def offered(self, tres: Tres) -> tuple[int, ...]:
        """Amounts per axis, typed GPUs included: what a node has or an unmanaged job takes away."""
        amounts = dict(tres)
        return tuple(amounts.get(name, 0) for name in self.names)

    def charged(self, tres: Tres, requested_types: tuple[str, ...]) -> tuple[int, ...]:
        """Amounts per axis that count for an agent: a typed GPU only where the user named the type."""
        amounts = dict(tres)
        return tuple(
            amounts.get(name, 0) if name in requested_types or not name.startswith(_TYPED) else 0 for name in self.names
        )


def compute_axes(nodes: Iterable[NodeRecord]) -> Axes:
    """Axes: ``cpu``, ``mem``, ``gres/gpu``, then the typed GPUs that some node has, by name."""
    typed = {name for node in nodes for name, _ in node.tres if name.startswith(_TYPED)}
    return Axes(names=(*BASE_AXES, *sorted(typed)))
