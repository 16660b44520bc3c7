"""``fairgpu status``: who has what, who is owed what, and whether our own parts live."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli._band_table import LEGEND, bands_section
from slurm_plugin.cli._fate import describe_fates
from slurm_plugin.cli._fresh import make_client, snapshot_option
from slurm_plugin.cli._health import describe_health
from slurm_plugin.cli._options import json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line
from slurm_plugin.cli._status_rows import (
    agents_section,
    capacity_section,
    describe_budget,
    describe_disruption,
    findings_section,
    sla_readings,
    sla_state,
    weights_section,
)
from slurm_plugin.cli._watch import Seen, Watch
from slurm_plugin.site import load_site
from slurm_plugin.snapshot import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path


@click.command("status")
@site_option
@json_option
@slurm_bin_dir_option
@snapshot_option
def status_command(
    site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None, snapshot_path: Path | None
) -> None:
    """Show who has what and who is owed what, from a fresh look at Slurm; it needs no running daemon.

    share/weight is what fairness makes equal among agents with waiting jobs: the smallest is served next.
    'share' is the largest part of any TRES that the agent holds, 'of' names that TRES. With bands, a second table says
    per agent what it is owed, uses, borrows and has lent. docs/reference/status.md explains every column.

    \b
    Examples:
      fairgpu status
      fairgpu status --json
      fairgpu status --snapshot cycle.json.gz

    Exit codes: 0 done, 2 site file, 3 Slurm unreachable.
    """
    if snapshot_path is not None:
        seen = Seen(snapshot=read_snapshot(snapshot_path))
    else:
        seen = Watch(site=load_site(site_path), client=make_client(slurm_bin_dir)).look()
    if as_json:
        echo_json(status_record(seen))
    else:
        print_status(seen)


def print_status(seen: Seen) -> None:
    """Print everything, section by section."""
    snapshot, health, plan = seen.snapshot, seen.health, seen.snapshot.plan
    agents_section(snapshot, health).print()
    bands = bands_section(plan)
    if bands is not None:
        bands.print()
        for line in LEGEND:
            print_line(line)
    weights_section(snapshot).print()
    capacity_section(snapshot).print()
    if any(":" in name for name in plan.tres):
        print_line("A typed GPU counts as held only for jobs that named the type; gres/gpu counts every GPU.")
    if health is not None:
        for line in describe_health(health):
            print_line(line)
        print_line(describe_budget(seen.budget, seen.load))
        for line in describe_disruption(seen):
            print_line(line)
    if plan.findings:
        findings_section(plan).print()
    if plan.decisions:
        for line in describe_fates(snapshot, health):
            print_line(line)


def status_record(seen: Seen) -> dict[str, Any]:
    """Return everything for ``--json``."""
    snapshot, plan, policy = seen.snapshot, seen.snapshot.plan, seen.snapshot.site_policy
    readings = sla_readings(snapshot)
    return {
        "cluster": policy.cluster,
        "mode": policy.mode,
        "policy": policy.policy,
        "at_s": snapshot.observation.at_s,
        "tres": plan.tres,
        "capacity": plan.capacity,
        "agents": plan.standings,
        "sla_readings": readings,
        "sla_state": {agent: sla_state(its) for agent, its in readings.items()},
        "n_decisions": len(plan.decisions),
        "findings": plan.findings,
        "problems": snapshot.observation.problems,
        "health": seen.health,
        "rpc_budget": {"updates": seen.budget, "controller": seen.load},
        "reclaims": seen.reclaims,
        "disruption": None if seen.disruption is None else {**asdict(seen.disruption), "ratio": seen.disruption.ratio},
    }
