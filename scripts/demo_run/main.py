"""The demo: three agents compete on a real Slurm; print what happened and why, draw it, judge it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cluster import REPO, DemoCluster, Sample
from picture import draw_timeline
from rich.console import Console
from rich.table import Table
from verdict import Verdict, differs, expected_fifo, judge, table_rows
from workload import AGENTS, GPUS_PER_NODE, NODES, SUBMISSION_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_WAVE_S: Final = 32
"""When the flood that held the cluster at first has ended: its longest job, the start of the daemons, two cycles."""

_TOLD_OPTIONS: Final = ("--comment", "--gpus", "--cpus-per-task", "--mem")

_RECORD_EVERY_S: Final = 2.0

console: Final = Console(highlight=False, width=None if sys.stdout.isatty() else 150, soft_wrap=not sys.stdout.isatty())


def main() -> int:
    """Run everything; 0 if fair ordering was within one job of DRF and the control run was not."""
    args = _parse_args()
    started = time.monotonic()
    cluster = DemoCluster(f"demo-{os.getpid()}")
    try:
        console.print("[bold]1. A real Slurm[/bold] (4 nodes of 8 GPUs, 32 CPUs, 256 GiB; namespaces of its own)")
        cluster.up()
        console.print("\n[bold]2. Control run: a constant site factor[/bold] (Slurm alone decides the order)")
        control = judge(_steady(_compete(cluster, "constant", seconds=_FIRST_WAVE_S + 8)))
        _print_verdict(control)
        console.print("\n[bold]3. The same jobs under SLA-weighted DRF[/bold]")
        samples = _compete(cluster, "wdrf", seconds=args.seconds, record=args.record)
        fair = judge(_steady(samples))
        _print_verdict(fair)
        _draw(args.out, samples)
    finally:
        if args.keep:
            console.print(f"kept: scripts/mini-slurm exec --name {cluster.name} --user alice -- squeue")
        else:
            cluster.down()
    return _conclude(fair, control, time.monotonic() - started)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description=__doc__,
        epilog="examples:\n  scripts/demo\n  scripts/demo --seconds 180 --out /tmp/run.png\n  scripts/demo --keep",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=int, default=100, help="length of the fair run (default 100, at least 60)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-timeline.png"), help="the picture (default ./%(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the mini-Slurm running afterwards")
    parser.add_argument("--record", type=Path, help="also save the cycles of the fair run here, for 'fairgpu demo'")
    args = parser.parse_args()
    if args.seconds < _FIRST_WAVE_S + 28:
        parser.error(f"--seconds must be at least {_FIRST_WAVE_S + 28}, or there is no steady window to judge")
    return args


def _compete(cluster: DemoCluster, policy: str, *, seconds: int, record: Path | None = None) -> list[Sample]:
    """Let the agents submit and watch them; everything is stopped and cancelled at the end."""
    since_s = time.time()
    site = cluster.start_daemons(policy)
    samples = [cluster.sample()]
    by_name = {agent.name: agent for agent in AGENTS}
    for name in SUBMISSION_ORDER:
        agent = by_name[name]
        cluster.submit(agent, agent.n_jobs)
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
            if record is not None:
                _record(cluster, record, since_s=since_s)
    if policy == "wdrf":
        _explain_one(cluster, site)
    cluster.stop_daemons()
    cluster.clear()
    return samples


def _until_flooded(cluster: DemoCluster, name: str) -> list[Sample]:
    """Watch until the first agent's jobs hold all that FIFO gives them, so that the others find the cluster full."""
    samples = [cluster.sample()]
    deadline = time.monotonic() + 10
    while len(samples[-1].running.get(name, ())) < expected_fifo()[name] and time.monotonic() < deadline:
        time.sleep(0.3)
        samples.append(cluster.sample())
    return samples


def _steady(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.at_s - samples[0].at_s >= _FIRST_WAVE_S]


def _explain_one(cluster: DemoCluster, site: Path) -> None:
    """Ask why a waiting job waits, as a researcher would."""
    console.print("\n[bold]   fairgpu status[/bold]")
    console.out(cluster.run("fairgpu", "fairgpu", "status", "--site", str(site)))
    waiting = cluster.run("root", "squeue", "--noheader", "--states=PENDING", "--name=vision", "--format=%i").split()
    waiting.sort(key=int)
    if waiting:
        console.print(f"[bold]   fairgpu explain {waiting[0]}[/bold]")
        console.out(cluster.run("fairgpu", "fairgpu", "explain", waiting[0], "--site", str(site)))


def _record(cluster: DemoCluster, target: Path, *, since_s: float) -> None:
    """Copy one of this run's snapshots every few seconds; the rebalancer keeps only the last ones itself."""
    target.mkdir(parents=True, exist_ok=True)
    kept = sorted(path.stat().st_mtime for path in target.glob("*.json.gz"))
    for path in sorted((cluster.root / "var" / "fairgpu" / "snapshots").glob("*.json.gz")):
        modified_s = path.stat().st_mtime
        if modified_s >= since_s and (not kept or modified_s - kept[-1] >= _RECORD_EVERY_S):
            shutil.copy2(path, target / path.name)
            kept.append(modified_s)


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
    gpus = [(f"node{node:02d}", index) for node in range(1, NODES + 1) for index in range(GPUS_PER_NODE)]
    seen = {gpu for sample in samples for gpu in sample.owner_by_gpu}
    gpus = sorted(seen) if len(seen) >= len(gpus) else gpus
    draw_timeline(
        path,
        times_s=[sample.at_s - samples[0].at_s for sample in samples],
        owner_by_gpu=[[sample.owner_by_gpu.get(gpu, "") for sample in samples] for gpu in gpus],
        share_by_agent={
            agent.name: [len(sample.running.get(agent.name, ())) * float(agent.dominant_share) for sample in samples]
            for agent in AGENTS
        },
        titles={agent.name: f"{agent.name} ({float(agent.weight):g}, {agent.title})" for agent in AGENTS},
    )
    console.print(f"   picture: {path.resolve().relative_to(REPO) if path.resolve().is_relative_to(REPO) else path}")


def _conclude(fair: Verdict, control: Verdict, wall_s: float) -> int:
    checks = {
        "fair ordering is within one job of exact weighted DRF": fair.is_fair,
        "it differs from FIFO": differs(fair.mean, fair.fifo),
        "it differs from a GPU-proportional split": differs(fair.mean, fair.proportional),
        "the same check fails with a constant site factor": not control.is_fair,
    }
    console.print("\n[bold]4. Result[/bold]")
    for text, is_true in checks.items():
        console.print(f"   {'ok  ' if is_true else 'FAIL'} {text}")
    console.print(f"   {wall_s:.0f} s. The recorded run again, without root and Slurm: .venv/bin/fairgpu demo")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
