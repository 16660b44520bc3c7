"""The history as the command line reads it: where it may be read, and what is public where it may not."""

from __future__ import annotations

import grp
import pwd
from typing import TYPE_CHECKING, Any

from policies.quota.disruption import Disruption, TakenBack, measure_disruption
from policies.quota.names import Band
from policies.records import AgentName
from slurm_plugin.rebalancer.history import FILE_NAME
from slurm_plugin.rebalancer.recent_reclaims import MAX_RECLAIMS, read_reclaims
from slurm_plugin.rebalancer.reclaims import describe_reclaim
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
    """Return the newest reclaims, newest first: the history's, or the published ones where it cannot be read."""
    rows = _query(site, "SELECT * FROM reclaims ORDER BY at_s DESC, job_id LIMIT ?", (limit,))
    return published_reclaims(site)[: -limit - 1 : -1] if rows is None else rows


def published_reclaims(site: SiteFile) -> Rows:
    """Return what the rebalancer tells everybody, oldest first; rows as the history's, with fewer columns."""
    return tuple({**row, "reason": _words(row)} for row in read_reclaims(site.paths.run_dir))


def recent_disruption(site: SiteFile, *, since_s: float) -> Disruption | None:
    """Return what reclaims since then took for what was claimed.

    ``None`` where the history cannot be read and the published reclaims may not be all of them.
    """
    sql = "SELECT n_gpus, claimant_job, n_claimed_gpus FROM reclaims WHERE at_s >= ?"
    rows = _query(site, sql, (since_s,))
    if rows is None:
        public = read_reclaims(site.paths.run_dir)
        rows = tuple(row for row in public if row["at_s"] >= since_s) if 0 < len(public) < MAX_RECLAIMS else None
    if rows is None:
        return None
    return measure_disruption(TakenBack(row["n_gpus"] or 0, row["claimant_job"], row["n_claimed_gpus"]) for row in rows)


def history_readers(site: SiteFile) -> str:
    """Return who may read the history, in words: ``user fairgpu and group fairgpu``."""
    for path in (site.paths.state_dir / FILE_NAME, site.paths.state_dir, site.paths.run_dir):
        try:
            status = path.stat()
            owner, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid).gr_name
        except (OSError, KeyError):
            continue
        return f"user {owner} and group {group}"
    return "its owner and group"


def _words(row: Mapping[str, Any]) -> str:
    claimant = None if row["claimant"] is None else AgentName(row["claimant"])
    claim = f"its job {row['claimant_job']} needed the place"
    return describe_reclaim(row["qos"], Band(row["band"]), claimant, claim=claim)


def _query(site: SiteFile, sql: str, parameters: tuple[float, ...]) -> Rows | None:
    try:
        path = history_path(site)
        if path is None:
            return None
        with HistoryStore(path) as store:
            return tuple(store.query(sql, parameters))
    except (HistoryError, OSError):
        return None
