"""Run the benchmarks, write ``benchmarks/results/*.json`` and ``docs/benchmarks.md``, print the tables.

    python benchmarks/run.py                       core and hook server
    python benchmarks/run.py --storm               also sbatch storms on a mini-Slurm (needs root)
    python benchmarks/run.py --only storm          one of core, hook, storm
    python benchmarks/run.py --page                only the page, from the result files

Exits 1 if a submission of a storm was lost or mis-tagged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from benchmarks import bench_core, bench_hook, page, storm

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = TypeVar("Rows", bound=list[Any])


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storm", action="store_true")
    parser.add_argument("--only", choices=("core", "hook", "storm"))
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--runs", type=int, default=25, help="runs of each core line")
    parser.add_argument("--requests", type=int, default=20_000, help="requests to the server alone")
    parser.add_argument("--jobs", type=int, default=2_000, help="submissions per storm")
    parser.add_argument("--clients", type=int, default=8, help="parallel clients of a storm")
    options = parser.parse_args()
    n_problems = 0 if options.page else run(options)
    text = page.render(page.load_results())
    page.PAGE.write_text(text, encoding="ascii")
    print(text)
    return 1 if n_problems else 0


def run(options: argparse.Namespace) -> int:
    """Measure and record; the number of submissions that went wrong."""
    chosen = {options.only} if options.only else {"core", "hook"} | ({"storm"} if options.storm else set())
    if "core" in chosen:
        record("core", bench_core.sizes(), lambda: bench_core.measure(options.runs))
    if "hook" in chosen:
        sizes = f"{bench_hook.N_AGENTS} agents, one client"
        record("hook", sizes, lambda: bench_hook.measure(options.requests))
    if "storm" not in chosen:
        return 0
    sizes = f"{options.jobs:,} sbatch from {options.clients} parallel clients, {storm.N_NODES} nodes, no randomness"
    rows = record("storm", sizes, lambda: storm.measure(options.jobs, options.clients))
    for row in rows:
        for problem in row.problems[:20]:
            print(f"{row.name}: {problem}", file=sys.stderr)
    return sum(len(row.problems) for row in rows)


def record(name: str, sizes: str, measure: Callable[[], Rows]) -> Rows:
    """Measure, write the result file, and return the rows."""
    about = about_this_run()
    rows = measure()
    result = {"run": about, "sizes": sizes, "rows": [asdict(row) for row in rows]}
    page.RESULTS.mkdir(exist_ok=True)
    (page.RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="ascii")
    return rows


def about_this_run() -> dict[str, Any]:
    """Commit (with ``+`` if the tree has changes), machine, time and load."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"],
        cwd=page.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, numpy {np.__version__}"
    return {
        "commit": described.stdout.strip(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine,
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
