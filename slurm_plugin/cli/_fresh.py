"""One cycle for a verb that looks: read now from Slurm, or from a snapshot file. Nothing is written."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from policies.cycle import decide
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner
from slurm_plugin.rebalancer.cycle import make_cycle_id
from slurm_plugin.rebalancer.daemon import MEMORY_MAX_AGE_S, Memory, recent_memory
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.rebalancer.standings import read_sla_memory
from slurm_plugin.site import SiteFile, load_site
from slurm_plugin.snapshot import Snapshot, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_plugin.client import SlurmClient

_Command = TypeVar("_Command", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A cycle, and the site file it was made with; ``None`` if it came from a file."""

    snapshot: Snapshot
    site: SiteFile | None


def snapshot_option(function: _Command) -> _Command:
    """Add ``--snapshot FILE``: look at a recorded cycle instead of the cluster."""
    return click.option(
        "--snapshot",
        "snapshot_path",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help="Look at this snapshot instead of the cluster (no site file, no Slurm).",
    )(function)


def make_client(slurm_bin_dir: Path | None) -> CliSlurm:
    """Return the client that runs Slurm's commands."""
    return CliSlurm(CliSettings(runner=ProcessRunner(bin_dir=slurm_bin_dir)))


def look(site_path: Path | None, slurm_bin_dir: Path | None, snapshot_path: Path | None) -> Looked:
    """Return the cycle in a file, or a fresh one."""
    if snapshot_path is not None:
        return Looked(snapshot=read_snapshot(snapshot_path), site=None)
    site = load_site(site_path)
    return Looked(snapshot=fresh_snapshot(site, make_client(slurm_bin_dir)), site=site)


def fresh_snapshot(
    site: SiteFile, client: SlurmClient, *, groups: GroupCache | None = None, memory: Memory | None = None
) -> Snapshot:
    """Observe and decide once.

    Parameters
    ----------
    groups : GroupCache or None
        What is known of users' groups from a look before.
    memory : Memory or None
        From a look before; else it goes on from the daemon's last cycle where that may be read.
    """
    seen = observe(client, site, groups or GroupCache())
    memory = memory or _daemons_memory(site, now_s=seen.at_s)
    return Snapshot(
        cycle_id=make_cycle_id(seen.at_s),
        now_s=seen.at_s,
        observation=seen,
        site_policy=site.policy,
        sla_memory=memory.sla,
        band_memory=memory.bands,
        plan=decide(seen, site.policy, memory.sla, memory.bands, now=seen.at_s),
    )


def _daemons_memory(site: SiteFile, *, now_s: float) -> Memory:
    """Return the memory of the daemon's last cycle: its snapshots are its own, its standings anybody's to read."""
    memory = Memory()
    with contextlib.suppress(OSError):
        memory = recent_memory(site, now_s=now_s)
    if memory.sla:
        return memory
    return memory._replace(sla=read_sla_memory(site.paths.run_dir, now_s=now_s, max_age_s=MEMORY_MAX_AGE_S))
