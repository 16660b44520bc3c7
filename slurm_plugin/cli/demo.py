"""``fairgpu demo``: the recorded run of a real Slurm, decided again here, without Slurm or root."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from slurm_plugin.cli._options import EXIT_FAILED, json_option
from slurm_plugin.cli._output import echo_json, print_line, print_table
from slurm_plugin.rebalancer.run_story import Moment, tell_run
from slurm_plugin.snapshot import load_run

if TYPE_CHECKING:
    from policies.records import AgentName, JobId

RECORDED_RUN: Final = Path(__file__).parents[1] / "demo_run"
"""Snapshots of a run of ``scripts/demo``, shipped in the package."""


@click.command("demo")
@click.argument("run", required=False, type=click.Path(path_type=Path, file_okay=False), metavar="[FOLDER]")
@json_option
def demo_command(run: Path | None, as_json: bool) -> None:
    """Replay a recorded run of agents that compete on a real Slurm: what started when, shares against exact DRF.

    Each cycle is decided again from what it read then, and the plan must be the same, byte for byte. FOLDER is
    another run, for example one that 'scripts/demo --record FOLDER' wrote. --json also names the jobs.

    \b
    Examples:
      fairgpu demo
      fairgpu demo /var/lib/fairgpu/snapshots

    Exit codes: 0 all plans are the same, 1 one differs.
    """
    folder = run or RECORDED_RUN
    snapshots = load_run(folder)
    began = time.perf_counter()
    moments = tell_run(snapshots)
    took_s = time.perf_counter() - began
    n_different = sum(bool(moment.replayed.differences) for moment in moments)
    if as_json:
        echo_json({"moments": moments, "n_different": n_different})
    else:
        _print_story(moments)
        print_line(f"{len(moments) - n_different} of {len(moments)} recorded plans came out the same ({took_s:.1f} s).")
    if n_different:
        sys.exit(EXIT_FAILED)


def _print_story(moments: tuple[Moment, ...]) -> None:
    agents = [count.agent for count in moments[0].counts]
    columns = ("after s", *agents, "started", "ended")
    rows = [
        (
            f"{moment.after_s:.0f}",
            *(f"{count.n_running}/{count.n_fair} ({count.n_pending})" for count in moment.counts),
            _jobs(moment.started),
            _jobs(moment.ended),
        )
        for number, moment in enumerate(moments)
        if number == 0 or moment.started or moment.ended
    ]
    title = "A recorded run. Per agent: jobs that run / that exact weighted DRF would run (jobs that wait)"
    print_table(title, columns, rows)
    for moment in moments:
        for difference in moment.replayed.differences:
            print_line(f"cycle {moment.replayed.cycle_id} DIFFERS: {difference}")


def _jobs(jobs: tuple[tuple[JobId, AgentName], ...]) -> str | None:
    counts = Counter(agent for _, agent in jobs)
    return ", ".join(f"{n} {agent}" for agent, n in sorted(counts.items())) or None
