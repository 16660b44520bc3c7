"""The history as the command line reads it: where it may be read, and why not elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.quota.disruption import Disruption, TakenBack, measure_disruption
from slurm_plugin.rebalancer.history import FILE_NAME
from slurm_plugin.rebalancer.store import HistoryError, HistoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurm_plugin.site import SiteFile

    Rows = tuple[Mapping[str, Any], ...]


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


def latest_reclaims(site: SiteFile, limit: int) -> Rows:
    """Return the newest reclaims of the history, newest first; none where it cannot be read."""
    return _query(site, "SELECT * FROM reclaims ORDER BY at_s DESC, job_id LIMIT ?", (limit,)) or ()


def recent_disruption(site: SiteFile, *, since_s: float) -> Disruption | None:
    """Return what reclaims since then took for what was claimed; ``None`` where the history cannot be read."""
    sql = "SELECT n_gpus, claimant_job, n_claimed_gpus FROM reclaims WHERE at_s >= ?"
    rows = _query(site, sql, (since_s,))
    if rows is None:
        return None
    return measure_disruption(TakenBack(row["n_gpus"] or 0, row["claimant_job"], row["n_claimed_gpus"]) for row in rows)


def _query(site: SiteFile, sql: str, parameters: tuple[float, ...]) -> Rows | None:
    try:
        path = history_path(site)
        if path is None:
            return None
        with HistoryStore(path) as store:
            return tuple(store.query(sql, parameters))
    except (HistoryError, OSError):
        return None
