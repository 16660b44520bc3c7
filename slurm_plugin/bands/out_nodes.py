"""Nodes that are out of service, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import NodeRecord

_NAMED: Final = 8


def describe_out(nodes: Sequence[NodeRecord]) -> str:
    """Return since when each node is out, in local time as Slurm prints it; many are counted."""
    shown = [f"{node.name} is out since {_local(node.out_since_s or 0)}" for node in nodes[:_NAMED]]
    n_more = len(nodes) - len(shown)
    return "; ".join([*shown, *([f"{n_more} more"] if n_more else [])])


def _local(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
