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
    "watch_errors",
)
"""``unchanged``: answers without effect (observe, advise, off, unmanaged); ``errors``: faults of ours,
``watch_errors``: those while looking at files."""

WINDOW: Final = 8_192
"""Answer times kept for the percentiles."""


class HookStats:
    """Counts and recent answer times; written by one thread, read by others."""

    __slots__ = ("_times_ns", "counts")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self._times_ns: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def count(self, name: str) -> None:
        """Add one."""
        self.counts[name] += 1

    def observe(self, answer_ns: int, sent_ns: int) -> None:
        """Note how long one answer took until it was ready to send and until ``send`` returned, nanoseconds."""
        self._times_ns.append((answer_ns, sent_ns))

    def percentiles_us(self) -> dict[str, float]:
        """Percentiles of the recent answers, microseconds; empty before the first.

        ``p50``, ``p99`` and ``max`` until the reply is ready, ``sent_p50`` ... with the call that sends it.
        """
        times = self._times_ns.copy()
        if not times:
            return {}
        answered, sent = zip(*times, strict=True)
        return _picks("", sorted(answered)) | _picks("sent_", sorted(sent))


def _picks(prefix: str, times_ns: list[int]) -> dict[str, float]:
    last = len(times_ns) - 1
    picks = {"p50": last // 2, "p99": last * 99 // 100, "max": last}
    return {f"{prefix}{name}": times_ns[at] / 1000 for name, at in picks.items()}
