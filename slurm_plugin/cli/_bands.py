"""What ``plan`` and ``apply`` share: reading the cluster with the right to do so, and showing the difference."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_plugin.bands.changes import describe
from slurm_plugin.bands.planning import require_privileges
from slurm_plugin.cli._output import print_line, talk
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner, SlurmClient
from slurm_plugin.client.command import Runner
from slurm_plugin.errors import ConfigError
from slurm_plugin.rebalancer.history import FILE_NAME as HISTORY_NAME
from slurm_plugin.rebalancer.journal import find_entry
from slurm_plugin.rebalancer.store import TouchedQos
from slurm_plugin.site import SiteFile, load_site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from policies.records import JobId, JobRecord
    from slurm_plugin.bands.complaint import Complaint
    from slurm_plugin.bands.planning import BandPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The cluster as these verbs reach it."""

    site: SiteFile
    client: SlurmClient
    runner: Runner


def reach(site_path: Path | None, slurm_bin_dir: Path | None, *, needs_bands: bool = True) -> Reach:
    """Load the site file and make sure that this user may go on.

    Raises
    ------
    ConfigError
        No bands section.
    SlurmAuthError
        Neither root nor SlurmUser.
    """
    site = load_site(site_path)
    if needs_bands and site.policy.bands is None:
        raise ConfigError(
            f"{site.path} has no bands section: FairGPU orders jobs and touches no QOS; "
            "docs/how-to/bands.md tells how to begin, 'fairgpu apply --remove' how to end"
        )
    runner = ProcessRunner(bin_dir=slurm_bin_dir)
    client = CliSlurm(CliSettings(runner=runner))
    require_privileges(client.fetch_config(), os.geteuid())
    return Reach(site=site, client=client, runner=runner)


def as_record(plan: BandPlan) -> dict[str, Any]:
    """Return the plan for ``--json``."""
    return {
        "differs": not plan.difference.is_empty,
        "quotas": plan.quotas,
        "diff": [line for change in plan.difference.changes for line in describe(change)],
        "changes": [{"kind": type(change).__name__, **_fields(change)} for change in plan.difference.changes],
        "retired": plan.difference.retired,
        "blockers": plan.precheck.blockers,
        "warnings": plan.precheck.warnings,
    }


def _fields(change: object) -> dict[str, Any]:
    found = {name: getattr(change, name) for name in type(change).__slots__}  # type: ignore[attr-defined]
    key = found.pop("key", None)
    return found if key is None else {**found, **key._asdict()}


def print_plan(plan: BandPlan) -> None:
    """Print the difference line by line, then what stands against it and what one should know, and how much it is."""
    if not plan.difference.is_empty:
        print_line("Changes that make slurmdbd as the site file wants it:")
        print_line()
    for change in plan.difference.changes:
        for line in describe(change):
            print_line(line)
    for name in plan.difference.retired:
        print_line(f"- qos {name}  (no agent has it any more; when unused)")
    if plan.difference.is_empty:
        print_line("No difference: slurmdbd is as the site file wants it.")
    _print_complaints("warning", plan.precheck.warnings)
    _print_complaints("forbidden", plan.precheck.blockers)
    if not plan.difference.is_empty or plan.precheck.blockers or plan.precheck.warnings:
        print_line()
        print_line(_summary(plan))


def _summary(plan: BandPlan) -> str:
    n_lines = sum(len(describe(change)) for change in plan.difference.changes) + len(plan.difference.retired)
    return f"{n_lines} changes, {len(plan.precheck.warnings)} warnings, {len(plan.precheck.blockers)} forbidden."


def _print_complaints(word: str, complaints: Sequence[Complaint]) -> None:
    for complaint in complaints:
        print_line()
        print_line(f"{word}: {complaint.what}")
        print_line(f"    {complaint.why}")
        if complaint.fix:
            print_line(f"    {complaint.fix}")


def recorded_qos(site: SiteFile) -> Callable[[JobRecord], str]:
    """Return how to look up the QOS that a job had before the rebalancer moved it, from its history.

    The history is opened for reading only: it belongs to another user.
    """
    path = site.paths.state_dir / HISTORY_NAME
    lines: dict[JobId, TouchedQos] = {}
    if path.exists():
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            rows = connection.execute("SELECT job_id, submit_s, former, last_written, at_s FROM touched_qos").fetchall()
            lines = {row["job_id"]: TouchedQos(**dict(row)) for row in rows}
        except sqlite3.Error as err:
            talk(f"{path} cannot be read ({err}): jobs go to their association's default QOS.")
        finally:
            connection.close()

    def look_up(job: JobRecord) -> str:
        line = find_entry(job, lines)
        return "" if line is None else line.former

    return look_up
