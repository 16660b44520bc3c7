"""A small version of ``python -m tests.harness``: no promise is broken, and each guard is needed."""

from __future__ import annotations

import pytest

from tests.harness.guards import REMOVALS
from tests.harness.run import run_states


def test_promises_hold_over_states_and_cycles() -> None:
    tally = run_states(range(12), 40)
    assert tally.broken == {}, tally.examples
    assert tally.reclaims >= 80


@pytest.mark.parametrize("guard", REMOVALS)
def test_each_guard_is_needed(guard: str) -> None:
    removal = REMOVALS[guard]
    seeds = {"borrow ranks": range(60), "own loans are preemptible": range(20)}.get(guard, range(8))
    tally = run_states(seeds, 40, removal=removal, stop_at=removal.breaks)
    assert tally.broken[removal.breaks]
