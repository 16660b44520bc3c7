"""How many updates Slurm gets from us, and what they cost it: for ``fairgpu status``.

The rebalancer writes the use of its last cycle into the standings file, which every user may read; what slurmctld spent
on our user's RPCs is in ``sdiag``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.rebalancer.outcomes import EnactOutcome
from slurm_plugin.rebalancer.standings import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurm_plugin.rebalancer.cycle import CycleResult
    from slurm_plugin.rebalancer.rate_limit import TokenBucket

_SENT: Final = (EnactOutcome.WRITTEN, EnactOutcome.REJECTED, EnactOutcome.UNANSWERED)
_BY_USER: Final = "Remote Procedure Call statistics by user"
_COUNTERS: Final = re.compile(r"count:(\d+) ave_time:\d+ total_time:(\d+)")
_SINCE: Final = re.compile(r"\((\d{9,12})\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBudget:
    """Updates of one cycle against what the site file allows.

    Attributes
    ----------
    per_second, per_cycle : int
        ``rebalancer.updates_per_second``, and the most that one cycle may send at once.
    sent : int
        Updates that Slurm was asked for in the last cycle.
    deferred : int
        Updates that had to wait for a later cycle.
    """

    per_second: int
    per_cycle: int
    sent: int
    deferred: int

    @property
    def left(self) -> int:
        """Updates that the cycle might have sent besides."""
        return max(0, self.per_cycle - self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLoad:
    """What slurmctld spent on the RPCs of one user since ``since_s`` (its start, or midnight)."""

    user: str
    n_rpcs: int
    total_s: float
    since_s: float | None

    @property
    def mean_s(self) -> float:
        """Mean time of one RPC, seconds."""
        return self.total_s / self.n_rpcs if self.n_rpcs else 0.0


def compute_budget(result: CycleResult, bucket: TokenBucket) -> UpdateBudget:
    """Return what a cycle used of its budget."""
    return UpdateBudget(
        per_second=int(bucket.rate_per_s),
        per_cycle=int(bucket.burst),
        sent=result.enacted.count(*_SENT) + result.released.n_touched,
        deferred=result.enacted.count(EnactOutcome.DEFERRED),
    )


def read_budget(run_dir: Path) -> UpdateBudget | None:
    """Return the budget of the rebalancer's last cycle; ``None`` if there is no trace of one."""
    try:
        fields = json.loads((run_dir / FILE_NAME).read_bytes())["updates"]
        names = ("per_second", "per_cycle", "sent", "deferred")
        return UpdateBudget(**{name: int(fields[name]) for name in names})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_load(diag: Mapping[str, str], user: str) -> ControllerLoad:
    """Return what ``sdiag`` says of a user's RPCs; a user that it does not list has sent none."""
    match = _COUNTERS.match(diag.get(f"{_BY_USER}/{user}", ""))
    since = next((value for key, value in diag.items() if key.startswith("Data since")), "")
    stamp = _SINCE.search(since)
    return ControllerLoad(
        user=user,
        n_rpcs=int(match[1]) if match else 0,
        total_s=int(match[2]) / 1e6 if match else 0.0,
        since_s=float(stamp[1]) if stamp else None,
    )
