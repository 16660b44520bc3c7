"""What is free on the nodes: what jobs hold, also on nodes that are not managed, and what comes back."""

from __future__ import annotations

from policies.quota.free_room import FreeRoom
from tests.strategies import make_job, make_node, make_running, make_tres


def test_equal_jobs_count_each() -> None:
    holders = [make_running(str(number), nodes="n1", tres=make_tres(gpu=2)) for number in range(3)]
    assert FreeRoom([make_node("n1")], holders).idle_gpus() == 8 - 3 * 2


def test_a_job_on_several_nodes_counts_in_equal_parts_rounded_up() -> None:
    room = FreeRoom([make_node("n1"), make_node("n2")], [make_running("1", nodes="n[1-2]", tres=make_tres(gpu=5))])
    assert room.idle_gpus() == 16 - 2 * 3


def test_a_job_elsewhere_holds_and_gives_back_nothing_here() -> None:
    elsewhere = make_running("1", nodes="other7", tres=make_tres(gpu=5))
    room = FreeRoom([make_node("n1")], [elsewhere])
    assert room.idle_gpus() == 8
    room.release(elsewhere)
    assert room.idle_gpus() == 8


def test_room_that_came_back_is_found_again() -> None:
    holder = make_running("1", nodes="n1", tres=make_tres(gpu=8))
    room, job = FreeRoom([make_node("n1")], [holder]), make_job("2", tres=make_tres(gpu=1))
    assert not room.has_room(job)
    assert not room.has_room(job)
    room.release(holder)
    assert room.has_room(job)
