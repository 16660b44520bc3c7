"""How long the submit hook takes, as its server and as slurmctld see it.

    python benchmarks/bench_hook.py              the server alone: Python client over its socket, no root needed
    python benchmarks/bench_hook.py --storm      2,000 sbatch from 8 clients on a mini-Slurm, with and without the hook

Targets of the server: 40 us median and 150 us P99 per answer. The storm also checks that no submission is lost or
mis-tagged and exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

MINI: Final = os.fspath(Path(__file__).resolve().parents[1] / "scripts/mini-slurm")
USERS: Final = {"alice": "risk", "bob": "rec", "carol": "vision"}
N_AGENTS: Final = 100
EMPTY_SCRIPT: Final = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
STANDINGS_AXES: Final = {"tres": ["cpu", "gres/gpu", "mem"], "capacity": [128, 16, 1_048_576]}


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000, help="requests to the server alone")
    parser.add_argument("--storm", action="store_true", help="also run sbatch storms (needs root)")
    parser.add_argument("--jobs", type=int, default=2_000, help="submissions per storm")
    parser.add_argument("--clients", type=int, default=8, help="parallel clients")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_server(Path(folder), options.requests)
    if not options.storm:
        return 0
    return storms(options.jobs, options.clients)


def measure_server(folder: Path, n_requests: int) -> None:
    """Ask a server with 100 agents again and again and print its times and the client's."""
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
        times = [ask(folder / "s", n) for n in range(n_requests)]
        stats = parse_fields(exchange(folder / "s", encode_frame("P", {}))[HEADER_BYTES:])
    finally:
        server.terminate()
        server.communicate()
    times.sort()
    print(f"server alone, {n_requests} submissions one after the other, {N_AGENTS} agents, us per answer")
    print(f"  inside the server   p50 {float(stats['p50_us']):7.1f}   p99 {float(stats['p99_us']):7.1f}")
    print(f"  seen by a client    p50 {at(times, 0.5):7.1f}   p99 {at(times, 0.99):7.1f}")


def ask(path: Path, n: int) -> float:
    """Submit once and return the microseconds from connect to the answer."""
    agent = n % N_AGENTS
    request = encode_frame(
        "S",
        {
            "uid": "0",
            "account": f"acc{agent}",
            "partition": "gpu",
            "comment": f"agent=a{agent} stage=train model=bert@{n}",
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


def at(ordered: list[float], quantile: float) -> float:
    """The value at a quantile of an ordered list."""
    return ordered[int((len(ordered) - 1) * quantile)]


def write_standings(folder: Path, agents: list[str]) -> None:
    """Fresh standings in which nobody holds anything."""
    entries = {name: {"weight": f"1/{len(agents)}", "next": [0, 0, 0]} for name in agents}
    head = {
        "version": 1,
        "at_s": time.time(),
        "interval_s": 5.0,
        "mode": "enforce",
        "policy": "wdrf",
        "scale": 1_000_000,
    }
    temporary = folder / "standings.new"
    temporary.write_text(json.dumps(head | STANDINGS_AXES | {"agents": entries}))
    temporary.replace(folder / "standings.json")


class Mini:
    """A mini-Slurm of the benchmark's own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = Path(os.environ.get("FAIRGPU_MINI_DIR") or "/var/tmp/fairgpu-mini") / name  # noqa: S108 - mini-slurm's own default

    def popen(self, user: str, *argv: str) -> subprocess.Popen[str]:
        """Start a command inside."""
        command = [MINI, "exec", "--name", self.name, "--user", user, "--", *argv]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, user: str, *argv: str) -> str:
        """Run a command inside and return what it prints."""
        process = self.popen(user, *argv)
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(out)
        return out


@contextmanager
def cluster(*options: str) -> Iterator[Mini]:
    """Start a mini-Slurm and take it down afterwards."""
    name = f"bench{os.getpid()}"
    subprocess.run([MINI, "up", "--name", name, *options], check=True, capture_output=True)
    try:
        yield Mini(name)
    finally:
        subprocess.run([MINI, "down", "--name", name], check=True, capture_output=True)


def storms(n_jobs: int, n_clients: int) -> int:
    """The same storm without a script, with an empty one and with the hook; 0 if nothing was lost or mis-tagged."""
    problems = 0
    for title, options in (("no submit script", ()), ("empty Lua script", ("--hook",)), ("the hook", ("--hook",))):
        with cluster(*options) as mini:
            if title == "empty Lua script":
                (mini.root / "etc/job_submit.lua").write_text(EMPTY_SCRIPT)
                time.sleep(1.1)  # slurmctld sees the new time at the next second
            if title == "the hook":
                problems += hooked_storm(mini, n_jobs, n_clients)
            else:
                print_storm(title, mini, storm(mini, n_jobs, n_clients), n_jobs)
            problems += check_jobs(mini, n_jobs, n_clients)
    print(f"lost or mis-tagged: {problems}")
    return 1 if problems else 0


def hooked_storm(mini: Mini, n_jobs: int, n_clients: int) -> int:
    """A storm through the hook; returns the number of wrong rows in its history."""
    server = mini.popen("fairgpu", "fairgpu", "hook-server")
    assert server.stdout is not None
    next(line for line in server.stdout if "event=ready" in line)
    write_standings(mini.root / "run/fairgpu", list(USERS.values()))
    time.sleep(0.5)
    print_storm("the hook", mini, storm(mini, n_jobs, n_clients), n_jobs)
    stats = mini.root / "run/fairgpu/hook-stats.json"
    # The server is a child of the process that entered the namespace; it knows its own pid in there.
    mini.run("root", "kill", str(json.loads(stats.read_text())["pid"]))
    server.communicate(timeout=20)
    last = json.loads(stats.read_text())
    print(f"  hook server         p50 {last['answer_us']['p50']:7.1f} us   p99 {last['answer_us']['p99']:7.1f} us")
    print(f"  its counters        { ({name: count for name, count in last['counts'].items() if count}) }")
    log = (mini.root / "log/slurmctld.log").read_text(errors="replace")
    print(
        f"  passed unchanged    {log.count('fairgpu: no answer')} (late or no answer; adopted by the rebalancer later)"
    )
    return check_history(mini, n_jobs)


def storm(mini: Mini, n_jobs: int, n_clients: int) -> float:
    """Submit ``n_jobs`` from ``n_clients`` loops at once; seconds until the last is through."""
    mini.run("root", "sdiag", "--reset")
    users = list(USERS)
    began_s = time.monotonic()
    clients = []
    for client in range(n_clients):
        user = users[client % len(users)]
        submit = (
            f"sbatch -Q --hold --gres=gpu:1 -o /dev/null --comment=agent={USERS[user]},stage=c{client}-$i --wrap true"
        )
        loop = f"for i in $(seq {n_jobs // n_clients}); do {submit} || echo FAILED; done"
        clients.append(mini.popen(user, "bash", "-c", loop))
    for process in clients:
        out, _ = process.communicate()
        if "FAILED" in out:
            print(f"  a client was refused: {out[-300:]}")
    return time.monotonic() - began_s


def print_storm(title: str, mini: Mini, took_s: float, n_jobs: int) -> None:
    """What slurmctld says about the storm."""
    text = mini.run("root", "sdiag")
    match = re.search(r"REQUEST_SUBMIT_BATCH_JOB\s.*?count:(\d+)\s+ave_time:(\d+)", text)
    assert match is not None, text
    print(f"storm, {title}: {n_jobs} submissions in {took_s:.1f} s")
    print(f"  slurmctld (sdiag)   ave {int(match[2]):7d} us over {match[1]} submissions")


def check_jobs(mini: Mini, n_jobs: int, n_clients: int) -> int:
    """Submissions that squeue does not show exactly once with their own user and comment."""
    lines = mini.run("root", "squeue", "--noheader", "--format=%u %k").splitlines()
    users = list(USERS)
    expected = sorted(
        f"{(user := users[client % len(users)])} agent={USERS[user]},stage=c{client}-{i}"
        for client in range(n_clients)
        for i in range(1, n_jobs // n_clients + 1)
    )
    return sum(a != b for a, b in zip(expected, sorted(lines), strict=False)) + abs(len(expected) - len(lines))


def check_history(mini: Mini, n_jobs: int) -> int:
    """Submissions that the hook's history lacks or gives to another agent than their user's."""
    with sqlite3.connect(mini.root / "var/fairgpu/history.db") as database:
        rows = database.execute("SELECT user, agent, site_factor, verdict FROM submissions").fetchall()
    wrong = sum(USERS[user] != agent or not factor or verdict != "accept" for user, agent, factor, verdict in rows)
    return int(wrong) + abs(n_jobs - len(rows))


if __name__ == "__main__":
    sys.exit(main())
