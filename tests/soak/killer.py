"""SIGKILL to a random process every few seconds, and how long each takes to be back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.soak.stage import KINDS, Stage, now
from tests.soak.watch import fetch_rows
from tests.soak.workload import SAVE_MAX_WAIT_S, Submission

if TYPE_CHECKING:
    from tests.soak.supervise import Supervised

BACK_S: Final = 120.0
"""A process that does not serve again within this time is a failure of the soak."""

SLACK_S: Final = 3.0
"""Between sbatch's answer and our note of it, and for the save itself on a busy machine."""


@dataclass(slots=True, kw_only=True)
class Kill:
    """One SIGKILL.

    Attributes
    ----------
    back_s : float or None
        Until the process served again, seconds; ``None`` if it did not.
    cycle_s : float or None
        Until the end of the first rebalancer cycle that began after the kill and ended well, seconds.
    """

    kind: str
    at_s: float
    back_s: float | None = None
    cycle_s: float | None = None


@dataclass(slots=True)
class Killer:
    """Kills until it has killed ``n_kills`` times in about ``seconds``."""

    stage: Stage
    submissions: Callable[[], list[Submission]]
    n_kills: int
    seconds: float
    seed: int
    kills: list[Kill] = field(default_factory=list)

    _watchers: list[threading.Thread] = field(default_factory=list)

    def run(self, say: Callable[[], None]) -> None:
        """Kill; ``say`` is called after each kill. Returns when every killed process had its time to come back."""
        rng = random.Random(self.seed)  # noqa: S311 - which process dies is no secret
        pause_s = self.seconds / self.n_kills
        due_s = time.monotonic()
        while len(self.kills) < self.n_kills:
            due_s += pause_s * rng.uniform(0.5, 1.5)
            time.sleep(max(0.0, due_s - time.monotonic()))
            if self._kill_one(rng):
                say()
        for watcher in self._watchers:
            watcher.join(BACK_S + 1)

    def _kill_one(self, rng: random.Random) -> bool:
        """Kill one of the kinds that serve now; with equal chances, whatever how many processes a kind has."""
        for kind in rng.sample(KINDS, len(KINDS)):
            part = rng.choice(self.stage.parts[kind])
            if part.answers() and part.kill():
                kill = Kill(kind=kind, at_s=now())
                self.kills.append(kill)
                watcher = threading.Thread(target=self._watch, args=(kill, part), daemon=True)
                watcher.start()
                self._watchers.append(watcher)
                return True
        return False

    def _watch(self, kill: Kill, part: Supervised) -> None:
        try:
            part.wait(BACK_S)
        except TimeoutError:
            return
        kill.back_s = now() - kill.at_s
        if kill.kind == "slurmctld":
            self._find_forgotten(kill)

    def _find_forgotten(self, kill: Kill) -> None:
        """Mark what slurmctld had accepted but not yet saved: it has no record of it after its restart."""
        rows = fetch_rows(self.stage)
        while rows is None:
            time.sleep(0.5)
            rows = fetch_rows(self.stage)
        known = {row.name for row in rows}
        first_s = kill.at_s - SAVE_MAX_WAIT_S - SLACK_S
        for one in self.submissions():
            is_near = one.accepted_s is not None and first_s <= one.accepted_s <= kill.at_s + SLACK_S
            if is_near and one.forgotten_s is None and one.name not in known:
                one.forgotten_s = kill.at_s
