"""``docs/benchmarks.md`` from the result files; a test compares the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks/results"
PAGE: Final = ROOT / "docs/benchmarks.md"

_INTRO: Final = """\
# Benchmarks

This page is made from `benchmarks/results/*.json` by `benchmarks/run.py`; a test compares them.

    python benchmarks/run.py            core and hook server, a minute
    python benchmarks/run.py --storm    also sbatch storms on a mini-Slurm (root, about five minutes)
    python benchmarks/run.py --page     only this page, from the files

Absolute times mean little on a busy machine: the load average at the start is given, and core times also as a
multiple of a calculation timed in the same run.
"""
_HOOK: Final = """\
What is timed, per request, inside the server: from before `accept` (credentials, read, parse, decide, frame) to the
call of `send`; with `send` also that call, which wakes the client, so that on few cores part of the client runs in it.
Not timed: the wait for the client's bytes, and the wake-up of the server's thread; the client's column holds both. The
books (history, next standing) are kept after the answer. Target: 40 us median, 150 us P99 until `send`.

Without a pause one client asks thousands of times a second, which is far more than slurmctld can submit; everything is
in the processor's caches then. At 200 per second the server sleeps between the requests and starts each one cold.
"""
_STORM: Final = """\
The nodes are full, so every job waits. Checked after each storm: every submission is in squeue exactly once with its
own user and comment; after the one with the hook also that every one is in the history as its user's agent, and that
the site factors that sprio shows are those that the history gave. `passed unchanged` counts answers that slurmctld did
not wait for (20 ms); the rebalancer adopts such jobs.

slurmctld's average and total are sdiag's for REQUEST_SUBMIT_BATCH_JOB and contain waiting for locks, so submissions at
the same time count the same wait several times. The time in the Lua function is taken by a stopwatch around it, in
slurmctld: for the hook it is connect, ask, wait and apply, and contains waiting for a processor, which eight clients,
slurmctld and the hook server share here. The hook server has nice -10, as in docs/how-to/install.md.
"""


def render(results: Mapping[str, Any]) -> str:
    """Return the page for results by name (``core``, ``hook``, ``storm``); a missing one is left out."""
    parts = [_INTRO]
    if "core" in results:
        parts += _section("Core", results["core"], _core_table(results["core"]["rows"]))
    if "hook" in results:
        parts += _section("Hook server alone", results["hook"], _hook_table(results["hook"]["rows"]), _HOOK)
    if "storm" in results:
        parts += _section("sbatch storm", results["storm"], _storm_table(results["storm"]["rows"]), _STORM)
    return "\n".join(parts)


def load_results() -> dict[str, Any]:
    """Return the committed results by name."""
    return {path.stem: json.loads(path.read_text(encoding="ascii")) for path in sorted(RESULTS.glob("*.json"))}


def _section(title: str, result: Mapping[str, Any], table: str, text: str = "") -> list[str]:
    run = result["run"]
    source = f"Commit {run['commit']}, {run['at']}. {run['machine']}. Load average {run['load']:.1f} at the start."
    return [f"## {title}\n", *([text] if text else []), f"{result['sizes']}. {source}\n", table]


def _core_table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("", "median ms", "best ms", "target ms", "x reference")
    body = (
        (
            r["name"],
            f"{r['median_ms']:.2f}",
            f"{r['best_ms']:.2f}",
            "" if r["target_ms"] is None else f"{r['target_ms']:g}",
            f"{r['ratio']:.1f}",
        )
        for r in rows
    )
    return _table(head, body)


def _hook_table(rows: Sequence[Mapping[str, Any]]) -> str:
    kinds = ("answer", "sent", "client")
    head = ("us, P50 / P99", "requests", "until send", "with send", "as the client sees it")
    pairs = ((r, [f"{r[f'{kind}_p50']:.1f} / {r[f'{kind}_p99']:.1f}" for kind in kinds]) for r in rows)
    return _table(head, ((r["load"], f"{r['requests']:,}", *cells) for r, cells in pairs))


def _storm_table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("", *(str(r["name"]) for r in rows))
    lines = [
        ("submissions through / sent", [f"{r['jobs_found']:,} / {r['submissions']:,}" for r in rows]),
        ("lost, doubled or mis-tagged", [str(len(r["problems"])) for r in rows]),
        ("seconds for all", [f"{r['took_s']:.1f}" for r in rows]),
        ("slurmctld: submissions", [f"{r['slurmctld']['count']:,}" for r in rows]),
        ("slurmctld: average, us", [f"{r['slurmctld']['ave_us']:,}" for r in rows]),
        ("slurmctld: total, s", [f"{r['slurmctld']['total_us'] / 1e6:.2f}" for r in rows]),
        ("slurmctld: in the Lua function, P50 / P99, us", [_pair(r["slurmctld"]["lua_us"]) for r in rows]),
        ("hook server: P50 / P99 until send, us", [_pair(r["hook"] and r["hook"]["times_us"]) for r in rows]),
        ("hook server: P50 / P99 with send, us", [_pair(r["hook"] and r["hook"]["times_us"], "sent_") for r in rows]),
        ("passed unchanged", [str(r["hook"]["passed_unchanged"]) if r["hook"] else "" for r in rows]),
        ("site factors checked", [f"{r['site_factors_checked']:,}" if r["hook"] else "" for r in rows]),
    ]
    return _table(head, ((name, *cells) for name, cells in lines))


def _pair(times_us: Mapping[str, float] | None, prefix: str = "") -> str:
    return f"{times_us[f'{prefix}p50']:,.0f} / {times_us[f'{prefix}p99']:,.0f}" if times_us else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"
