"""How long the hook server takes for an answer, without Slurm: ``python benchmarks/bench_hook.py [--requests N]``.

A real server process with 100 agents, asked over its socket by one client in another process. The server's own times
start before it accepts the connection and end when the reply is handed to ``send``; with ``send`` they also hold that
call, which wakes the client. Neither holds the wait for the client's bytes nor the wake-up of the server's thread.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

N_AGENTS: Final = 100
N_COMMENTS: Final = 1_000
STANDINGS_AXES: Final = {"tres": ["cpu", "gres/gpu", "mem"], "capacity": [128, 16, 1_048_576]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the server is asked: ``per_second`` 0 is one after the other without a pause."""

    name: str
    are_comments_distinct: bool
    per_second: int = 0


LOADS: Final = (
    Load(name="1,000 comments, 200 per second", are_comments_distinct=False, per_second=200),
    Load(name="1,000 comments, without a pause", are_comments_distinct=False),
    Load(name="every comment different, without a pause", are_comments_distinct=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """Percentiles of one load, microseconds."""

    load: str
    requests: int
    answer_p50: float
    answer_p99: float
    sent_p50: float
    sent_p99: float
    client_p50: float
    client_p99: float


def measure(n_requests: int) -> list[ServerRow]:
    """One row per load, each with a server of its own."""
    return [measure_load(load, n_requests // 4 if load.per_second else n_requests) for load in LOADS]


def measure_load(load: Load, n_requests: int) -> ServerRow:
    """Ask a server again and again; it keeps the last 8,192 times."""
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as path:
        times = ask_all(path, load, n_requests)
        stats = parse_fields(exchange(path, encode_frame("P", {}))[HEADER_BYTES:])
    return ServerRow(
        load=load.name,
        requests=n_requests,
        answer_p50=float(stats["p50_us"]),
        answer_p99=float(stats["p99_us"]),
        sent_p50=float(stats["sent_p50_us"]),
        sent_p99=float(stats["sent_p99_us"]),
        client_p50=at(times, 0.5),
        client_p99=at(times, 0.99),
    )


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Run a hook server and give its socket."""
    agents = "\n".join(f"  a{n}: {{accounts: [acc{n}], base_weight: 1}}" for n in range(N_AGENTS))
    site = folder / "site.yaml"
    site.write_text(
        f"cluster: c\nmode: enforce\npartitions: [gpu]\nagents:\n{agents}\n"
        f"hook: {{socket: {folder}/s, peers: [root]}}\npaths: {{state_dir: {folder}, run_dir: {folder}}}\n"
    )
    write_standings(folder, [f"a{n}" for n in range(N_AGENTS)])
    run = "from slurm_plugin.cli.main import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", run, "hook-server", "--site", os.fspath(site)], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    next(line for line in server.stderr if "event=ready" in line)
    try:
        yield folder / "s"
    finally:
        server.terminate()
        server.communicate()


def ask_all(path: Path, load: Load, n_requests: int) -> list[float]:
    """Microseconds from connect to the answer, ordered."""
    times = []
    due_s = time.perf_counter()
    for n in range(n_requests):
        if load.per_second:
            due_s += 1 / load.per_second
            time.sleep(max(0.0, due_s - time.perf_counter()))
        times.append(ask(path, n, n if load.are_comments_distinct else n % N_COMMENTS))
    return sorted(times)


def ask(path: Path, n: int, comment: int) -> float:
    """Submit once and return the microseconds from connect to the answer."""
    agent = n % N_AGENTS
    request = encode_frame(
        "S",
        {
            "uid": "0",
            "account": f"acc{agent}",
            "partition": "gpu",
            "comment": f"agent=a{agent} stage=train model=bert@{comment}",
            "tres_per_node": "gres:gpu:1",
            "num_tasks": "1",
            "min_cpus": "4",
            "cpus_per_task": "4",
            "min_mem_per_node": "4096",
        },
    )
    began_ns = time.perf_counter_ns()
    raw = exchange(path, request)
    took_us = (time.perf_counter_ns() - began_ns) / 1000
    reply = parse_fields(raw[HEADER_BYTES:])
    assert reply["agent"] == f"a{agent}", reply
    assert "site_factor" in reply, reply
    return took_us


def exchange(path: Path, request: bytes) -> bytes:
    """One connection: request there, answer back."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.fspath(path))
        client.sendall(request)
        return client.recv(65_536)


def at(ordered: Sequence[float], quantile: float) -> float:
    """The value at a quantile of an ordered sequence."""
    return ordered[int((len(ordered) - 1) * quantile)]


def write_standings(folder: Path, agents: Sequence[str], *, ahead_s: float = 0.0) -> None:
    """Standings in which nobody holds anything, dated ``ahead_s`` seconds ahead (they hold for a minute)."""
    entries = {name: {"weight": f"1/{len(agents)}", "next": [0, 0, 0]} for name in agents}
    head = {"version": 1, "interval_s": 5.0, "mode": "enforce", "policy": "wdrf", "scale": 1_000_000}
    tree = head | {"at_s": time.time() + ahead_s, "agents": entries} | STANDINGS_AXES
    temporary = folder / "standings.new"
    temporary.write_text(json.dumps(tree))
    temporary.replace(folder / "standings.json")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    for row in measure(parser.parse_args().requests):
        print(f"{row.load}: {row.requests} requests, us")
        print(f"  until send   p50 {row.answer_p50:7.1f}   p99 {row.answer_p99:7.1f}")
        print(f"  with send    p50 {row.sent_p50:7.1f}   p99 {row.sent_p99:7.1f}")
        print(f"  client       p50 {row.client_p50:7.1f}   p99 {row.client_p99:7.1f}")


if __name__ == "__main__":
    main()
