"""The demo on a real Slurm: fair order, then quotas, borrowing and reclaim; each act is drawn and judged."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from borrowing import play_borrowing
from cluster import DemoCluster
from fairness import FIRST_WAVE_S, play_fairness
from talk import console

if TYPE_CHECKING:
    from talk import Checks

_ACTS = ("fairness", "borrowing")


def main() -> int:
    """Play the acts; 0 if all that is claimed held, and the controls failed."""
    args = _parse_args()
    started = time.monotonic()
    cluster = DemoCluster(f"demo-{os.getpid()}")
    checks: Checks = {}
    try:
        console.print("[bold]A real Slurm[/bold] (4 nodes of 8 GPUs, 32 CPUs, 256 GiB; apart from the host)")
        cluster.up(args.release)
        if args.act != "borrowing":
            console.print("\n[bold]Act one: fair order[/bold]")
            record = args.record and args.record / "fairness"
            checks |= play_fairness(cluster, seconds=args.seconds, picture=args.out, record=record)
        if args.act != "fairness":
            console.print("\n[bold]Act two: quotas, borrowing, reclaim[/bold]")
            record = args.record and args.record / "borrowing"
            checks |= play_borrowing(cluster, picture=args.out_borrowing, record=record)
    finally:
        if args.keep:
            console.print(f"kept: scripts/mini-slurm exec --name {cluster.name} --user alice -- squeue")
        else:
            cluster.down()
    return _conclude(checks, time.monotonic() - started)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description=__doc__,
        epilog="examples:\n  scripts/demo\n  scripts/demo --act borrowing\n"
        "  scripts/demo --seconds 180 --out /tmp/run.png\n  scripts/demo --keep",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--act", choices=_ACTS, help="play one act only (default: both)")
    parser.add_argument(
        "--seconds", type=int, default=100, help="length of act one's fair run (default %(default)s, at least 60)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo-timeline.png"), help="picture of act one (default ./%(default)s)"
    )
    parser.add_argument(
        "--out-borrowing",
        type=Path,
        default=Path("demo-borrowing.png"),
        metavar="FILE",
        help="picture of act two (default ./%(default)s)",
    )
    parser.add_argument("--release", metavar="R", help="Slurm 22.05, 24.11 or 26.05, in containers (needs Docker)")
    parser.add_argument("--keep", action="store_true", help="leave the mini-Slurm running afterwards")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="also save the cycles here, one folder an act, for 'fairgpu demo'"
    )
    args = parser.parse_args()
    if args.seconds < FIRST_WAVE_S + 28:
        parser.error(f"--seconds must be at least {FIRST_WAVE_S + 28}, or there is no steady window to judge")
    return args


def _conclude(checks: Checks, wall_s: float) -> int:
    console.print("\n[bold]Result[/bold]")
    for text, is_true in checks.items():
        console.print(f"   {'ok  ' if is_true else 'FAIL'} {text}")
    console.print(f"   {wall_s:.0f} s. The recorded run again, without root and Slurm: .venv/bin/fairgpu demo")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
