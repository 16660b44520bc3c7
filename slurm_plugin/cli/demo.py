"""``fairgpu demo``: the recorded run of a real Slurm, decided again here, without Slurm or root."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from policies.quota.amounts import GPU
from slurm_plugin.cli._options import EXIT_FAILED, json_option
from slurm_plugin.cli._output import echo_json, print_line, print_table
from slurm_plugin.rebalancer.run_story import AgentCount, Moment, tell_run
from slurm_plugin.snapshot import Snapshot, load_run

if TYPE_CHECKING:
    from policies.records import AgentName, JobId

RECORDED_RUN: Final = Path(__file__).parents[1] / "demo_run"
"""Snapshots of a run of ``scripts/demo``, a folder for each act, shipped in the package."""


@click.command("demo")
@click.argument("run", required=False, type=click.Path(path_type=Path, file_okay=False), metavar="[FOLDER]")
@json_option
def demo_command(run: Path | None, as_json: bool) -> None:
    """Replay a recorded run of agents that compete on a real Slurm: what started when, and what it is owed.

    Each cycle is decided again from what it read then, and the plan must be the same, byte for byte. FOLDER is
    another run, or one with a folder for each act, for example what 'scripts/demo --record FOLDER' wrote. --json also
    names the jobs.

    \b
    Examples:
      fairgpu demo
      fairgpu demo /var/lib/fairgpu/snapshots

    Exit codes: 0 all plans are the same, 1 one differs.
    """
    runs = _load(run or RECORDED_RUN)
    began = time.perf_counter()
    told = tuple(tell_run(snapshots) for snapshots in runs)
    took_s = time.perf_counter() - began
    moments = tuple(moment for one in told for moment in one)
    n_different = sum(bool(moment.replayed.differences) for moment in moments)
    if as_json:
        echo_json({"runs": told, "n_different": n_different})
    else:
        for one in told:
            _print_story(one)
        print_line(f"{len(moments) - n_different} of {len(moments)} recorded plans came out the same ({took_s:.1f} s).")
    if n_different:
        sys.exit(EXIT_FAILED)


def _load(folder: Path) -> tuple[tuple[Snapshot, ...], ...]:
    """The run in a folder; if it holds folders only, the runs in these, first to begin first."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    if not inside or not all(path.is_dir() for path in inside):
        return (load_run(folder),)
    return tuple(sorted((load_run(path) for path in inside), key=lambda snapshots: snapshots[0].now_s))


def _print_story(moments: tuple[Moment, ...]) -> None:
    if any(count.bands is not None for count in moments[0].counts):
        _print_bands(moments)
    else:
        _print_order(moments)
    for moment in moments:
        for difference in moment.replayed.differences:
            print_line(f"cycle {moment.replayed.cycle_id} DIFFERS: {difference}")


def _print_order(moments: tuple[Moment, ...]) -> None:
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


def _print_bands(moments: tuple[Moment, ...]) -> None:
    agents = [f"{count.agent}, quota {_quota(count)}" for count in moments[0].counts]
    columns = ("after s", *agents, "started", "ended", "taken back", "decided")
    rows = [
        (
            f"{moment.after_s:.0f}",
            *(f"{_in_bands(count)} ({count.n_pending})" for count in moment.counts),
            _jobs(moment.started),
            _jobs(moment.ended),
            _jobs(moment.taken_back),
            ", ".join(f"{n} {kind}" for kind, n in moment.decided) or None,
        )
        for before, moment in zip((None, *moments), moments, strict=False)
        if before is None or _has_news(before, moment)
    ]
    title = "A recorded run. Per agent: GPUs in use, guaranteed + borrowed + opportunistic (jobs that wait)"
    print_table(title, columns, rows)


def _has_news(before: Moment, moment: Moment) -> bool:
    """Whether jobs moved, or something else was decided: what Slurm has not taken yet is decided again each cycle."""
    return bool(moment.started or moment.ended or moment.taken_back or moment.decided != before.decided)


def _quota(count: AgentCount) -> str:
    quota = None if count.bands is None else dict(count.bands.nominal).get(GPU)
    return "none" if quota is None else str(quota)


def _in_bands(count: AgentCount) -> str:
    bands = count.bands
    if bands is None:
        return "-"
    return "+".join(str(dict(use).get(GPU, 0)) for use in (bands.guaranteed, bands.borrow, bands.opportunistic))


def _jobs(jobs: tuple[tuple[JobId, AgentName], ...]) -> str | None:
    counts = Counter(agent for _, agent in jobs)
    return ", ".join(f"{n} {agent}" for agent, n in sorted(counts.items())) or None
