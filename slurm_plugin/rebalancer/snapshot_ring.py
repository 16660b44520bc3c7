"""The last cycles as snapshot files in ``<state_dir>/snapshots``: what happened just before you looked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin.snapshot import Snapshot, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "snapshots"
KEEP: Final = 20


def snapshot_paths(state_dir: Path) -> tuple[Path, ...]:
    """Return the kept snapshots, oldest first."""
    return tuple(sorted((state_dir / FOLDER).glob("*.json.gz")))


def keep_snapshot(state_dir: Path, snapshot: Snapshot) -> None:
    """Add a cycle under its id (ids sort by time) and delete those beyond the last ``KEEP``.

    Cycles with a later id are deleted, too: the clock was set back since, and they would pass for the newest.
    """
    folder = state_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    newest = folder / f"{snapshot.cycle_id}.json.gz"
    write_snapshot(newest, snapshot)
    paths = snapshot_paths(state_dir)
    n_known = paths.index(newest) + 1
    for path in paths[: max(0, n_known - KEEP)] + paths[n_known:]:
        path.unlink(missing_ok=True)


def last_snapshot(state_dir: Path) -> Snapshot | None:
    """Return the newest kept cycle, ``None`` if there is none.

    Raises
    ------
    SnapshotError
        The file cannot be read.
    """
    paths = snapshot_paths(state_dir)
    return read_snapshot(paths[-1]) if paths else None
