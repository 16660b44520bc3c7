"""A node that is out for more than an hour is not split; one that is out for less, or busy, is."""

from __future__ import annotations

import pytest

from policies.quota.nominal import compute_nominals
from policies.quota.outage import is_out_for_long, nodes_in_service, nodes_not_counted
from policies.records import PartitionName
from policies.site_policy import BandPolicy
from tests.strategies import make_node, make_site

HOUR_S = 3600


@pytest.mark.parametrize(
    ("out_since_s", "now_s", "want"),
    [
        (None, 1e9, False),
        (1000, 1000.0 + HOUR_S, False),
        (1000, 1000.5 + HOUR_S, True),
        (5000, 1000.0, False),  # the clocks differ
    ],
)
def test_an_outage_counts_after_an_hour(out_since_s: int | None, now_s: float, want: bool) -> None:  # noqa: FBT001 - the table's column
    assert is_out_for_long(make_node(out_since_s=out_since_s), now_s) is want


def test_quotas_are_split_from_what_is_in_service() -> None:
    # 3 x 8 GPUs, one node out since two hours, one since ten minutes: 16 GPUs, 8 each
    now_s = 10 * HOUR_S
    nodes = [
        make_node("n1"),
        make_node("n2", up=False, out_since_s=8 * HOUR_S),
        make_node("n3", up=False, out_since_s=now_s - 600),
    ]
    site = make_site({"a": 1, "b": 1}, bands=BandPolicy())
    quotas = compute_nominals(site, nodes_in_service(nodes, now_s))
    assert [dict(quota.nominal or ())["gres/gpu"] for quota in quotas] == [8, 8]


def test_only_managed_nodes_are_named_in_order() -> None:
    nodes = [
        make_node("n9", out_since_s=0),
        make_node("n1", out_since_s=0),
        make_node("n2"),
        make_node("other", out_since_s=0, partitions=(PartitionName("other"),)),
    ]
    found = nodes_not_counted(make_site({"a": 1}), nodes, 2.0 * HOUR_S)
    assert [node.name for node in found] == ["n1", "n9"]
