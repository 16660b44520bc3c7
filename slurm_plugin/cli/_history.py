"""The history as the command line reads it: where it may be read, and why not elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_plugin.rebalancer.history import FILE_NAME
from slurm_plugin.rebalancer.store import HistoryError, HistoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurm_plugin.site import SiteFile


def history_path(site: SiteFile) -> Path | None:
    """Return the database's path, ``None`` if there is none yet.

    Raises
    ------
    PermissionError
        This user may not look; unlike with ``Path.exists``, not seeing is an error on every Python.
    """
    path = site.paths.state_dir / FILE_NAME
    try:
        path.stat()
    except FileNotFoundError:
        return None
    return path


def latest_reclaims(site: SiteFile, limit: int) -> tuple[Mapping[str, Any], ...]:
    """Return the newest reclaims of the history, newest first; none where it cannot be read."""
    try:
        path = history_path(site)
        if path is None:
            return ()
        with HistoryStore(path) as store:
            return tuple(store.query("SELECT * FROM reclaims ORDER BY at_s DESC, job_id LIMIT ?", (limit,)))
    except (HistoryError, OSError):
        return ()
