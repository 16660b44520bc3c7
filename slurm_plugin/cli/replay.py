"""``fairgpu replay``: decide recorded cycles again; the same input must give the same plan."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurm_plugin.cli._options import EXIT_FAILED, json_option
from slurm_plugin.cli._output import echo_json, print_line, print_table, talk
from slurm_plugin.rebalancer.decision_view import view
from slurm_plugin.rebalancer.replay import Replayed, replay
from slurm_plugin.snapshot import Snapshot, load_run, read_snapshot


@click.command("replay")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@json_option
@click.option("--verbose", is_flag=True, help="Also print every decision.")
def replay_command(paths: tuple[Path, ...], as_json: bool, verbose: bool) -> None:
    """Decide the cycles in snapshot files (or folders of them) again and compare the plans byte by byte.

    Needs neither Slurm nor a site file.

    \b
    Examples:
      fairgpu replay cycle.json.gz
      fairgpu replay --verbose /var/lib/fairgpu/snapshots

    Exit codes: 0 all the same, 1 a plan differs or a file cannot be read.
    """
    snapshots = [snapshot for path in paths for snapshot in _read(path)]
    results = [replay(snapshot) for snapshot in snapshots]
    n_different = sum(bool(result.differences) for result in results)
    if as_json:
        echo_json({"cycles": results, "n_different": n_different})
    else:
        _print_results(results)
        if verbose:
            _print_decisions(snapshots)
        talk(f"{len(results) - n_different} of {len(results)} plans are the same.")
    if n_different:
        sys.exit(EXIT_FAILED)


def _read(path: Path) -> tuple[Snapshot, ...]:
    return load_run(path) if path.is_dir() else (read_snapshot(path),)


def _print_results(results: list[Replayed]) -> None:
    rows = [
        (result.cycle_id, result.n_jobs, result.n_decisions, "DIFFERENT" if result.differences else "same")
        for result in results
    ]
    print_table("", ("cycle", "jobs", "decisions", "plan"), rows)
    for result in results:
        for difference in result.differences:
            print_line(f"{result.cycle_id}: {difference}")


def _print_decisions(snapshots: list[Snapshot]) -> None:
    rows = [
        (snapshot.cycle_id, d.kind, d.subject, d.agent, d.old, d.new, None if d.tag is None else str(d.tag), d.reason)
        for snapshot in snapshots
        for d in map(view, snapshot.plan.decisions)
    ]
    print_table("Decisions", ("cycle", "what", "job or QOS", "agent", "old", "new", "tag", "reason"), rows)
