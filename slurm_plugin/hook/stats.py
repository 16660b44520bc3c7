"""Counters of the hook server: what it answers to a ping and writes to its stats file."""

from __future__ import annotations

from collections import deque
from typing import Final

COUNTERS: Final = (
    "submissions",
    "modifications",
    "pings",
    "accepted",
    "rejected",
    "unchanged",
    "errors",
    "refused_peers",
    "malformed",
    "timeouts",
    "crowded_out",
    "history_dropped",
)
"""``unchanged``: answers without effect (observe, advise, off, unmanaged); ``errors``: faults of ours."""

WINDOW: Final = 8_192
"""Answer times kept for the percentiles."""


class HookStats:
    """Counts and recent answer times; written by one thread, read by others."""

    __slots__ = ("_answer_ns", "counts")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self._answer_ns: deque[int] = deque(maxlen=WINDOW)

    def count(self, name: str) -> None:
        """Add one."""
        self.counts[name] += 1

    def observe(self, answer_ns: int) -> None:
        """Note how long one answer took, nanoseconds."""
        self._answer_ns.append(answer_ns)

    def percentiles_us(self) -> dict[str, float]:
        """P50, P99 and maximum of the recent answer times, microseconds; empty before the first."""
        times = sorted(self._answer_ns.copy())
        if not times:
            return {}
        last = len(times) - 1
        picks = {"p50": last // 2, "p99": last * 99 // 100, "max": last}
        return {name: times[at] / 1000 for name, at in picks.items()}
