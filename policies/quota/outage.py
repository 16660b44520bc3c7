"""Nodes that are out of service for long: they are not split into quotas. A short outage moves nobody's quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.records import NodeRecord
    from policies.site_policy import SitePolicy

OUT_AFTER_S: Final = 3600
"""A node that is out for longer than this no longer counts as configured."""


def is_out_for_long(node: NodeRecord, now_s: float) -> bool:
    """Whether a node has been down, drained or failed for more than :data:`OUT_AFTER_S`."""
    return node.out_since_s is not None and now_s - node.out_since_s > OUT_AFTER_S


def nodes_in_service(nodes: Iterable[NodeRecord], now_s: float) -> tuple[NodeRecord, ...]:
    """Nodes that count for ``quota: auto``, in the order given."""
    return tuple(node for node in nodes if not is_out_for_long(node, now_s))


def nodes_not_counted(site_policy: SitePolicy, nodes: Iterable[NodeRecord], now_s: float) -> tuple[NodeRecord, ...]:
    """Nodes of the managed partitions that are left out, by name."""
    managed = frozenset(site_policy.partitions)
    found = (node for node in nodes if is_out_for_long(node, now_s) and not managed.isdisjoint(node.partitions))
    return tuple(sorted(found, key=lambda node: node.name))
