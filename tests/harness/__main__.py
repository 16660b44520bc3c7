"""``python -m tests.harness``: 500 states x 50 cycles, then the same without each guard in turn."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.harness.guards import REMOVALS
from tests.harness.run import run_states

if TYPE_CHECKING:
    from tests.harness.checks import Tally


def main() -> int:
    """Print the tallies; 1 if a promise is broken, or a removed guard goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=500)
    parser.add_argument("--cycles", type=int, default=50)
    options = parser.parse_args()
    seeds = range(options.states)
    started = time.perf_counter()
    tally = run_states(seeds, options.cycles)
    _say(f"all guards: {_line(tally)} ({time.perf_counter() - started:.0f} s)")
    for name, text in tally.examples.items():
        _say(f"    {name}: {text}")
    is_bad = bool(tally.broken)
    for guard, removal in REMOVALS.items():
        without = run_states(seeds, options.cycles, removal=removal, stop_at=removal.breaks)
        is_noticed = bool(without.broken[removal.breaks])
        is_bad |= not is_noticed
        verdict = "fails" if is_noticed else "GOES UNNOTICED"
        example = without.examples.get(removal.breaks, "")
        _say(f"without '{guard}': {verdict} after {without.cycles} cycles: {removal.breaks}: {example}")
    return int(is_bad)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _line(tally: Tally) -> str:
    broken = ", ".join(f"{name} {count}" for name, count in sorted(tally.broken.items())) or "none"
    return (
        f"{tally.cycles} cycles, {tally.reclaims} reclaims, {tally.victims} victims, violations: {broken}; "
        f"stale by one cycle {tally.stale}, large victims {tally.large}, of these no improvement {tally.worse}; "
        f"most often taken back: {tally.most_taken} times; {tally.list_writes} list writes"
    )


if __name__ == "__main__":
    raise SystemExit(main())
