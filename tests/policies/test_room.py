"""Whether nodes could ever hold a job."""

from __future__ import annotations

import pytest

from policies.axes import compute_axes
from policies.records import PartitionName
from policies.room import can_hold, compute_rooms
from tests.strategies import make_node, make_tres

SHAPES = [((64, 4), 2), ((128, 0), 3)]


@pytest.mark.parametrize(
    ("request_", "n_nodes", "fits"),
    [
        ((64, 4), 1, True),
        ((65, 1), 1, False),
        ((128, 0), 1, True),
        ((0, 8), 2, True),
        ((0, 9), 3, False),
        ((256, 8), 2, True),
        ((1, 0), 6, False),
        ((2**70, 0), 1, False),
    ],
)
def test_can_hold(request_: tuple[int, int], n_nodes: int, fits: bool) -> None:  # noqa: FBT001 - a table column
    assert can_hold(SHAPES, request_, n_nodes) is fits


def test_rooms_tell_configured_from_schedulable() -> None:
    nodes = [make_node("n1"), make_node("n2", up=False), make_node("c1", partitions=(PartitionName("cpu"),), up=False)]
    rooms = compute_rooms(nodes, compute_axes(nodes).offered)
    shape = (64, 64_000, 8)
    assert rooms[PartitionName("gpu")].configured == ((shape, 2),)
    assert rooms[PartitionName("gpu")].schedulable == ((shape, 1),)
    assert rooms[PartitionName("cpu")].schedulable == ()


def test_axes_are_fixed_and_typed_ones_sorted() -> None:
    nodes = [make_node(tres=make_tres(cpu=1, gpu=4, h100=2, a100=2))]
    axes = compute_axes(nodes)
    assert axes.names == ("cpu", "mem", "gres/gpu", "gres/gpu:a100", "gres/gpu:h100")
    assert axes.offered(nodes[0].tres) == (1, 0, 4, 2, 2)
    assert axes.charged(nodes[0].tres, ("gres/gpu:h100",)) == (1, 0, 4, 0, 2)
    assert compute_axes([]).names == ("cpu", "mem", "gres/gpu")
