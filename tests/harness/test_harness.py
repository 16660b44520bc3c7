"""A small version of ``python -m tests.harness``: no promise is broken, and each guard is needed."""

from __future__ import annotations

from typing import Final

import pytest

from tests.harness.guards import REMOVALS
from tests.harness.run import run_states

SEED_OF: Final = {"borrow ranks": 7, "own loans are preemptible": 115, "start victims below nominal at once": 13}
"""States that show what the guard is for; the first two show it for all others."""


def test_promises_hold_over_states_and_cycles() -> None:
    tally = run_states(range(10), 40)
    assert tally.broken == {}, tally.examples
    assert tally.reclaims >= 80


@pytest.mark.parametrize("guard", REMOVALS)
def test_each_guard_is_needed(guard: str) -> None:
    removal = REMOVALS[guard]
    seeds = [SEED_OF[guard]] if guard in SEED_OF else [0, 1]
    tally = run_states(seeds, 50, removal=removal, stop_at=removal.breaks)
    assert tally.broken[removal.breaks]
