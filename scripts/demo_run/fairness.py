"""Act one: three agents compete; fair ordering against exact weighted DRF, with Slurm's own order as control."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

from picture import draw_timeline
from recording import Recorder
from rich.table import Table
from talk import console, tell_picture
from verdict import Verdict, differs, expected_fifo, judge, table_rows
from workload import AGENTS, GPUS, SUBMISSION_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cluster import DemoCluster, Sample
    from talk import Checks
    from workload import DemoAgent

FIRST_WAVE_S: Final = 32
"""When the flood that held the cluster at first has ended: its longest job, the start of the daemons, two cycles."""

_TOLD_OPTIONS: Final = ("--comment", "--gpus", "--cpus-per-task", "--mem")


def play_fairness(cluster: DemoCluster, *, seconds: int, picture: Path, record: Path | None) -> Checks:
    """Let the agents compete twice; what held.

    Parameters
    ----------
    seconds : int
        Length of the run under weighted DRF.
    record : Path or None
        Where its cycles are kept.
    """
    console.print("\n[bold]Control run: a constant site factor[/bold] (Slurm alone decides the order)")
    control = judge(_steady(_compete(cluster, "constant", seconds=FIRST_WAVE_S + 8)))
    _print_verdict(control)
    console.print("\n[bold]The same jobs under SLA-weighted DRF[/bold]")
    samples = _compete(cluster, "wdrf", seconds=seconds, record=record)
    fair = judge(_steady(samples))
    _print_verdict(fair)
    _draw(picture, samples)
    return {
        "fair ordering is within one job of exact weighted DRF": fair.is_fair,
        "it differs from FIFO": differs(fair.mean, fair.fifo),
        "it differs from a GPU-proportional split": differs(fair.mean, fair.proportional),
        "the same check fails with a constant site factor": not control.is_fair,
    }


def _compete(cluster: DemoCluster, policy: str, *, seconds: int, record: Path | None = None) -> list[Sample]:
    """Let the agents submit and watch them; everything is stopped and cancelled at the end."""
    recorder = Recorder(cluster, record, since_s=time.time())
    site = cluster.write_site(policy, {"policy": policy})
    cluster.start_daemons(site)
    samples = [cluster.sample()]
    by_name = {agent.name: agent for agent in AGENTS}
    for name in SUBMISSION_ORDER:
        agent = by_name[name]
        cluster.submit(agent.user, _sbatch_lines(agent))
        typed = " ".join(word for word in agent.sbatch_args if word.startswith(_TOLD_OPTIONS))
        console.print(
            f"   {agent.user}: {agent.n_jobs} x sbatch {typed}  (weight {float(agent.weight):g}, {agent.title})"
        )
        samples.append(cluster.sample())
        if name == SUBMISSION_ORDER[0]:
            samples.extend(_until_flooded(cluster, name))
    console.print(f"   watching for {seconds} s; the first jobs must end before shares can move")
    end = samples[0].at_s + seconds
    with console.status("watching the jobs start and end"):
        while time.monotonic() < end:
            time.sleep(0.7)
            samples.append(cluster.sample())
            recorder.look()
    if policy == "wdrf":
        _explain_one(cluster, site)
    cluster.stop_daemons()
    cluster.clear()
    return samples


def _sbatch_lines(agent: DemoAgent) -> list[str]:
    durations = itertools.cycle(agent.seconds)
    lines = []
    for _ in range(agent.n_jobs):
        seconds = next(durations)
        options = ["--parsable", f"--time={seconds // 60 + 1}", *agent.sbatch_args]
        lines.append(" ".join(["sbatch", *options, f"--wrap='sleep {seconds}'"]))
    return ["cd /tmp", *lines]


def _until_flooded(cluster: DemoCluster, name: str) -> list[Sample]:
    """Watch until the first agent's jobs hold all that FIFO gives them, so that the others find the cluster full."""
    samples = [cluster.sample()]
    deadline = time.monotonic() + 10
    while len(samples[-1].running.get(name, ())) < expected_fifo()[name] and time.monotonic() < deadline:
        time.sleep(0.3)
        samples.append(cluster.sample())
    return samples


def _steady(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.at_s - samples[0].at_s >= FIRST_WAVE_S]


def _explain_one(cluster: DemoCluster, site: Path) -> None:
    """Ask why a waiting job waits, as a researcher would."""
    console.print("\n[bold]   fairgpu status[/bold]")
    console.out(cluster.run("fairgpu", "fairgpu", "status", "--site", str(site)))
    waiting = cluster.run("root", "squeue", "--noheader", "--states=PENDING", "--name=vision", "--format=%i").split()
    waiting.sort(key=int)
    if waiting:
        console.print(f"[bold]   fairgpu explain {waiting[0]}[/bold]")
        console.out(cluster.run("fairgpu", "fairgpu", "explain", waiting[0], "--site", str(site)))


def _print_verdict(verdict: Verdict) -> None:
    table = Table(title=f"running jobs, mean of {verdict.n_samples} samples", title_justify="left")
    for column in ("agent", "measured", "exact weighted DRF*", "FIFO", "GPU-proportional"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    for row in table_rows(verdict):
        table.add_row(*row)
    console.print(table)
    console.print("   * of the GPUs in use; the others: of all GPUs")
    console.print(
        f"   within one job of exact weighted DRF: {'yes' if verdict.is_fair else 'no'}"
        f" (all agents at once in {verdict.within_frac:.0%} of the samples; {verdict.idle_frac:.0%} of the GPUs empty)"
    )


def _draw(path: Path, samples: Sequence[Sample]) -> None:
    draw_timeline(
        path,
        times_s=[sample.at_s - samples[0].at_s for sample in samples],
        owner_by_gpu=[[sample.owner_by_gpu.get(gpu, "") for sample in samples] for gpu in GPUS],
        share_by_agent={
            agent.name: [len(sample.running.get(agent.name, ())) * float(agent.dominant_share) for sample in samples]
            for agent in AGENTS
        },
        titles={agent.name: f"{agent.name} ({float(agent.weight):g}, {agent.title})" for agent in AGENTS},
    )
    tell_picture(path)
