"""What ``fairgpu top`` knows between two refreshes: the last look, since when Slurm is away, when to look again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from slurm_plugin.cli._watch import Seen
from slurm_plugin.errors import SlurmError

MAX_WAIT_S: Final = 60.0
"""Longest pause between two tries while Slurm is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is shown.

    Attributes
    ----------
    seen : Seen or None
        The last look that worked.
    error : SlurmError or None
        Why the last look did not.
    failed_since_s : float or None
        When the first of the failures in a row happened, seconds since the epoch.
    next_s : float
        When the next look is due.
    """

    interval_s: float
    seen: Seen | None = None
    error: SlurmError | None = None
    n_failed: int = 0
    failed_since_s: float | None = None
    next_s: float = 0.0

    def with_look(self, seen: Seen, *, now_s: float) -> Picture:
        """Return the picture after a look that worked."""
        return Picture(interval_s=self.interval_s, seen=seen, next_s=now_s + self.interval_s)

    def with_failure(self, error: SlurmError, *, now_s: float) -> Picture:
        """Return the picture after a failure: the last data stay, the pause doubles each time."""
        n_failed = self.n_failed + 1
        since_s = now_s if self.failed_since_s is None else self.failed_since_s
        wait_s = max(self.interval_s, min(MAX_WAIT_S, self.interval_s * 2.0**n_failed))
        return replace(self, error=error, n_failed=n_failed, failed_since_s=since_s, next_s=now_s + wait_s)


def look_once(picture: Picture, look: Callable[[], Seen], now: Callable[[], float] = time.time) -> Picture:
    """Return the picture after one more look."""
    try:
        seen = look()
    except SlurmError as err:
        return picture.with_failure(err, now_s=now())
    return picture.with_look(seen, now_s=now())


@dataclass(slots=True, kw_only=True)
class Feed:
    """Looks in a thread of its own, so that keys are heard while Slurm lets us wait.

    Attributes
    ----------
    look : callable
        Looks once; may raise ``SlurmError``.
    picture : Picture
        Replaced as a whole by the thread.
    """

    look: Callable[[], Seen]
    picture: Picture
    now: Callable[[], float] = time.time
    _thread: threading.Thread | None = None
    _began_s: float = 0.0
    _crash: list[BaseException] = field(default_factory=list)

    def tick(self) -> None:
        """Begin a look if one is due and none runs; a fault of ours in the thread is raised here."""
        if self._crash:
            raise self._crash.pop()
        now_s = self.now()
        if not self._is_busy() and now_s >= self.picture.next_s:
            self._began_s = now_s
            # A daemon thread: leaving does not wait for a squeue that hangs.
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def waiting_s(self) -> float:
        """How long the present look has taken so far, seconds; 0 if none runs."""
        return max(0.0, self.now() - self._began_s) if self._is_busy() else 0.0

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.picture = look_once(self.picture, self.look, self.now)
        except Exception as err:  # noqa: BLE001 - told in the main thread, where the terminal can be restored first
            self._crash.append(err)
