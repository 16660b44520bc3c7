"""What the submit hook costs slurmctld: the same sbatch storm without a script, with an empty one, with the hook.

Each storm has a mini-Slurm of its own (needs root). Long jobs in a partition that FairGPU does not manage fill the
nodes first, so that every submission of the storm stays pending and sprio shows its site factor.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.bench_hook import at, write_standings

if TYPE_CHECKING:
    from collections.abc import Iterator

MINI: Final = os.fspath(Path(__file__).resolve().parents[1] / "scripts/mini-slurm")
N_NODES: Final = 4
USERS: Final = {"alice": "risk", "bob": "rec", "carol": "vision"}
"""Who submits, and as which agent."""

STANDINGS_AHEAD_S: Final = 50.0
"""No rebalancer runs: the standings are dated ahead, so that they hold for longer than the storm."""

EMPTY_SCRIPT: Final = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""

STOPWATCH: Final = """
do
  local socket, inner = require("socket"), slurm_job_submit
  function slurm_job_submit(...)
    local began = socket.gettime()
    local result = inner(...)
    slurm.log_info("%s", string.format("stopwatch: %.0f us", (socket.gettime() - began) * 1e6))
    return result
  end
end
"""
"""Stands behind both scripts: what slurmctld waits for in Lua, one line per submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSide:
    """What the hook server says about a storm; times in microseconds."""

    times_us: dict[str, float]
    counters: dict[str, int]
    passed_unchanged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmctldSide:
    """What slurmctld spent on the batch submissions of a storm.

    By sdiag in all, and in the Lua script's function as percentiles (empty without a script), microseconds.
    """

    count: int
    ave_us: int
    total_us: int
    lua_us: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StormRow:
    """One storm. ``problems`` names what was lost, doubled or mis-tagged; empty is good."""

    name: str
    submissions: int
    clients: int
    took_s: float
    slurmctld: SlurmctldSide
    jobs_found: int
    site_factors_checked: int = 0
    problems: list[str] = field(default_factory=list)
    hook: HookSide | None = None


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
    """Start a mini-Slurm with busy nodes and take it down afterwards."""
    name = f"bench{os.getpid()}"
    subprocess.run([MINI, "up", "--name", name, "--nodes", str(N_NODES), *options], check=True, capture_output=True)
    try:
        mini = Mini(name)
        filler = ("--partition=other", f"--nodes={N_NODES}", "--exclusive", "--output=/dev/null", "--wrap=sleep 3600")
        job = mini.run("alice", "sbatch", "--parsable", *filler).strip()
        while mini.run("root", "squeue", "--noheader", "--format=%T", f"--jobs={job}").strip() != "RUNNING":
            time.sleep(0.2)
        yield mini
    finally:
        subprocess.run([MINI, "down", "--name", name], check=True, capture_output=True)


def measure(n_jobs: int, n_clients: int) -> list[StormRow]:
    """Run the three storms."""
    with cluster() as mini:
        plain = bare_storm("no submit script", mini, n_jobs, n_clients)
    with cluster("--hook") as mini:
        put_script(mini, EMPTY_SCRIPT)
        empty = bare_storm("empty Lua script", mini, n_jobs, n_clients)
    with cluster("--hook") as mini:
        put_script(mini, (mini.root / "etc/job_submit.lua").read_text())
        hooked = hooked_storm(mini, n_jobs, n_clients)
    return [plain, empty, hooked]


def put_script(mini: Mini, text: str) -> None:
    """Let slurmctld run this script with the stopwatch behind it."""
    (mini.root / "etc/job_submit.lua").write_text(text + STOPWATCH)
    time.sleep(1.1)  # slurmctld sees the new time at the next second


def bare_storm(name: str, mini: Mini, n_jobs: int, n_clients: int) -> StormRow:
    """A storm that FairGPU does not see."""
    took_s, problems = submit_all(mini, n_jobs, n_clients)
    found, wrong = check_jobs(mini, n_jobs, n_clients)
    return StormRow(
        name=name,
        submissions=n_jobs,
        clients=n_clients,
        took_s=took_s,
        slurmctld=sdiag(mini),
        jobs_found=found,
        problems=[*problems, *wrong],
    )


def hooked_storm(mini: Mini, n_jobs: int, n_clients: int) -> StormRow:
    """A storm through the hook."""
    server = mini.popen("fairgpu", "fairgpu", "hook-server")
    assert server.stdout is not None
    next(line for line in server.stdout if "event=ready" in line)
    prefer(mini)
    write_standings(mini.root / "run/fairgpu", list(USERS.values()), ahead_s=STANDINGS_AHEAD_S)
    time.sleep(0.5)
    n_before = count_unanswered(mini)  # the job that fills the nodes met no server
    took_s, problems = submit_all(mini, n_jobs, n_clients)
    diag = sdiag(mini)
    hook = stop_server(mini, server, n_before)
    found, wrong = check_jobs(mini, n_jobs, n_clients)
    n_factors, mistagged = check_agents(mini, n_jobs, hook.passed_unchanged)
    return StormRow(
        name="the hook",
        submissions=n_jobs,
        clients=n_clients,
        took_s=took_s,
        slurmctld=diag,
        jobs_found=found,
        site_factors_checked=n_factors,
        problems=[*problems, *wrong, *mistagged],
        hook=hook,
    )


def server_pid(mini: Mini) -> str:
    """Return the hook server's pid as it is known inside; on the host it is a child of the one that entered."""
    return str(json.loads((mini.root / "run/fairgpu/hook-stats.json").read_text())["pid"])


def prefer(mini: Mini) -> None:
    """Do as ``Nice=-10`` in the unit of docs/how-to/install.md does."""
    mini.run("root", "renice", "-n", "-10", "-p", server_pid(mini))


def submit_all(mini: Mini, n_jobs: int, n_clients: int) -> tuple[float, list[str]]:
    """Submit from ``n_clients`` loops at once; seconds until the last is through, and what was refused."""
    mini.run("root", "sdiag", "--reset")
    users = list(USERS)
    began_s = time.monotonic()
    clients = []
    for client in range(n_clients):
        user = users[client % len(users)]
        comment = f"agent={USERS[user]},stage=c{client}-$i"
        submit = f"sbatch -Q --gres=gpu:1 -o /dev/null --comment={comment} --wrap true"
        loop = f"for i in $(seq {n_jobs // n_clients}); do {submit} || echo FAILED; done"
        clients.append(mini.popen(user, "bash", "-c", loop))
    said = [process.communicate()[0] for process in clients]
    took_s = time.monotonic() - began_s
    return took_s, [f"refused: {out[-300:]}" for out in said if "FAILED" in out]


def sdiag(mini: Mini) -> SlurmctldSide:
    """Return what slurmctld spent on batch submissions; sdiag was reset when the storm began."""
    text = mini.run("root", "sdiag")
    match = re.search(r"REQUEST_SUBMIT_BATCH_JOB\s.*?count:(\d+)\s+ave_time:(\d+)\s+total_time:(\d+)", text)
    assert match is not None, text
    count, average, total = map(int, match.groups())
    lua_us = sorted(map(float, re.findall(r"stopwatch: (\d+) us", log_of(mini))))
    percentiles = {"p50": at(lua_us, 0.5), "p99": at(lua_us, 0.99), "max": lua_us[-1]} if lua_us else {}
    return SlurmctldSide(count=count, ave_us=average, total_us=total, lua_us=percentiles)


def stop_server(mini: Mini, server: subprocess.Popen[str], n_before: int) -> HookSide:
    """End the hook server and read what it counted."""
    stats = mini.root / "run/fairgpu/hook-stats.json"
    mini.run("root", "kill", server_pid(mini))
    server.communicate(timeout=20)
    last = json.loads(stats.read_text())
    return HookSide(
        times_us=last["answer_us"],
        counters={name: count for name, count in last["counts"].items() if count},
        passed_unchanged=count_unanswered(mini) - n_before,
    )


def count_unanswered(mini: Mini) -> int:
    """Submissions that slurmctld passed without an answer so far."""
    return log_of(mini).count("fairgpu: no answer")


def log_of(mini: Mini) -> str:
    """Return slurmctld's log."""
    return (mini.root / "log/slurmctld.log").read_text(errors="replace")


def check_jobs(mini: Mini, n_jobs: int, n_clients: int) -> tuple[int, list[str]]:
    """Jobs that squeue shows, and those that are not there exactly once with their own user and comment."""
    lines = mini.run("root", "squeue", "--noheader", "--partition=main", "--format=%u %k").splitlines()
    users = list(USERS)
    expected = Counter(
        f"{(user := users[client % len(users)])} agent={USERS[user]},stage=c{client}-{i}"
        for client in range(n_clients)
        for i in range(1, n_jobs // n_clients + 1)
    )
    seen = Counter(lines)
    lost = [f"lost: {line}" for line in (expected - seen)]
    return len(lines), [*lost, *(f"not submitted so: {line}" for line in (seen - expected))]


def check_agents(mini: Mini, n_jobs: int, n_unchanged: int) -> tuple[int, list[str]]:
    """Site factors that sprio shows, held against the hook's history; and what does not agree.

    Every submission must be in the history with its user's agent. Of each user the factors in Slurm must be those that
    the history gave that agent, a job apart for each answer that came too late.
    """
    with sqlite3.connect(mini.root / "var/fairgpu/history.db") as database:
        rows = database.execute("SELECT user, agent, site_factor, verdict FROM submissions").fetchall()
    problems = [f"mis-tagged in the history: {row}" for row in rows if USERS[row[0]] != row[1] or row[3] != "accept"]
    if not n_jobs - n_unchanged <= len(rows) <= n_jobs:
        problems.append(f"{len(rows)} submissions in the history, {n_unchanged} of {n_jobs} passed unchanged")
    lines = [line.split() for line in mini.run("root", "sprio", "--noheader", "--format=%u %S").splitlines()]
    shown = Counter((user, int(factor)) for user, factor in lines)
    given = Counter((user, factor) for user, _, factor, _ in rows)
    without = sum(count for (_, factor), count in shown.items() if factor == 0)
    if without != n_unchanged:
        problems.append(f"{without} jobs without a site factor, {n_unchanged} passed unchanged")
    others = Counter({key: count for key, count in shown.items() if key[1]}) - given
    problems += [
        f"{count} job(s) of {user} with factor {factor}, never given" for (user, factor), count in others.items()
    ]
    if len(lines) != n_jobs:
        problems.append(f"sprio shows {len(lines)} jobs")
    return len(lines), problems
