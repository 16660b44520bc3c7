"""Copy the cycles of a run out of the mini-Slurm, for ``fairgpu demo``."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Final

from policies.plan import SetSiteFactor
from slurm_plugin.snapshot import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from cluster import DemoCluster

_EVERY_S: Final = 2.0


class Recorder:
    """Keeps a snapshot every two seconds, and each one with a decision about bands; the rest would only add weight."""

    def __init__(self, cluster: DemoCluster, target: Path | None, *, since_s: float) -> None:
        self._folder = cluster.root / "var" / "fairgpu" / "snapshots"
        self._target = target
        self._seen_s = since_s
        self._kept_s = 0.0
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)

    def look(self) -> None:
        """Copy what is new; the rebalancer keeps only its last cycles, so look often."""
        if self._target is None:
            return
        for path in sorted(self._folder.glob("*.json.gz")):
            # It may delete the oldest just now.
            with contextlib.suppress(FileNotFoundError):
                self._keep(path, self._target)

    def _keep(self, path: Path, target: Path) -> None:
        at_s = path.stat().st_mtime
        if at_s <= self._seen_s:
            return
        if at_s - self._kept_s >= _EVERY_S or _is_about_bands(path):
            shutil.copy2(path, target / path.name)
            self._kept_s = at_s
        self._seen_s = at_s


def _is_about_bands(path: Path) -> bool:
    decisions = read_snapshot(path).plan.decisions
    return any(not isinstance(decision, SetSiteFactor) for decision in decisions)
