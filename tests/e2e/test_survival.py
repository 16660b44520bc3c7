"""Our daemons fail in the middle of a storm of submissions: nothing is lost, Slurm stays quick, all is adopted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pytest

from tests.e2e.mini_cluster import (
    SCALE,
    Daemon,
    start_hook_server,
    start_rebalancer,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.mini_cluster import MiniCluster

STORM_USERS: Final = {"alice": "risk", "bob": "rec", "carol": "vision"}
HELD: Final = {"risk": 8, "rec": 4, "vision": 4}
WEIGHTS: Final = {"risk": Fraction(6, 10), "rec": Fraction(3, 10), "vision": Fraction(1, 10)}
N_PER_USER: Final = 70
N_PER_USER_SMALL: Final = 40
PING_BOUND_S: Final = 3.0
"""Longest ``scontrol ping``, process start included, on a machine with two busy cores."""

OFF_S: Final = 5.0
"""One cycle of a second, and time to read and write some hundred jobs."""

SETTLED_S: Final = 30
"""A storm of 3 s, jobs touched when they are 5 s old (below Slurm 24.11), 100 updates a second, cycles of 1 s."""

# Storm jobs are nice, so that an agent's twins (nice 0) come first and next to each other in its order.
STORM: Final = """
for i in $(seq {n}); do
    sbatch --nice=100 --output=/dev/null --gpus=1 --comment="agent={agent} run=$i" --wrap 'sleep 600'
    touch "$HOME/storm.$i"
done
"""
# Answers every request with 10 KiB that are no reply.
GARBAGE: Final = """
import os, socket, sys
if os.path.exists(sys.argv[1]): os.unlink(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); listener.listen(64)
while True:
    client, _ = listener.accept()
    client.settimeout(1)
    try: client.recv(65536); client.sendall(bytes(range(256)) * 40)
    except OSError: pass
    client.close()
"""


class Parts(NamedTuple):
    """What runs beside Slurm."""

    hook: Daemon
    rebalancer: Daemon


@pytest.fixture
def parts(cluster: MiniCluster) -> Iterator[Parts]:
    """Hook server and rebalancer on a cluster whose GPUs are all in use; a closed breaker."""
    cluster.clear_jobs()
    (cluster.root / "etc/job_submit.lua").touch()
    hook = start_hook_server(cluster)  # before the first submission, which would open the breaker
    fill_gpus(cluster)
    running = Parts(hook, start_rebalancer(cluster))
    cluster.wait(lambda: is_hook_at_work(cluster), what="the hook has read the standings")
    yield running
    cluster.run("fairgpu", "fairgpu", "on")
    for daemon in running:
        daemon.thaw()
        daemon.ensure_ended()
    cluster.clear_jobs()


def fill_gpus(cluster: MiniCluster) -> None:
    """Fill every GPU: each agent has 16 or fewer before its twins, so that their factors are kept exact."""
    fillers = [
        cluster.sbatch(user, "--gpus-per-node=4", f"--nodes={HELD[agent] // 4}", f"--comment=agent={agent}")
        for user, agent in STORM_USERS.items()
    ]
    cluster.wait(lambda: all(cluster.state(job) == "RUNNING" for job in fillers), what="the fillers run")


class Pinger:
    """Asks ``scontrol ping`` without a pause while the ``with`` block runs."""

    def __init__(self, cluster: MiniCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.latencies_s: list[float] = []

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert len(self.latencies_s) >= 3
        assert max(self.latencies_s) < PING_BOUND_S

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            began_s = time.monotonic()
            self._cluster.run("root", "scontrol", "ping")
            self.latencies_s.append(time.monotonic() - began_s)


class Storm:
    """Submissions of several users at once, from the start of the ``with`` block on."""

    def __init__(self, cluster: MiniCluster, n_per_user: int = N_PER_USER) -> None:
        self._cluster = cluster
        self._n_per_user = n_per_user
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for user in STORM_USERS:
            for mark in (self._cluster.root / "home" / user).glob("storm.*"):
                mark.unlink()
        self._said = (self._cluster.root / "log/storm.log").open("w+b")
        for user, agent in STORM_USERS.items():
            script = STORM.format(n=self._n_per_user, agent=agent)
            self._running.append(self._cluster.popen(user, "bash", "-c", script, stdout=self._said))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running:
            one.wait(60)
        self._said.close()

    def at(self, n: int) -> None:
        """Wait until each user has `n` submissions behind it."""
        marks = [self._cluster.root / "home" / user / f"storm.{n}" for user in STORM_USERS]
        self._cluster.wait(lambda: all(mark.exists() for mark in marks), 60, f"{n} submissions of each user")

    def all_were_accepted(self) -> None:
        """Wait for the end: every ``sbatch`` got a job and Slurm has them all."""
        assert [one.wait(60) for one in self._running] == [0] * len(STORM_USERS)
        self._said.seek(0)
        said, n_wanted = self._said.read(), self._n_per_user * len(STORM_USERS)
        assert said.count(b"Submitted batch job") == n_wanted, said
        assert sum("run=" in job.comment for job in self._cluster.squeue()) == n_wanted


def twin(cluster: MiniCluster, user: str) -> str:
    """Submit one of several equal jobs of `user`, which come first among the jobs of its agent."""
    comment = f"--comment=agent={STORM_USERS[user]} stage=train deadline=2h"
    return cluster.sbatch(user, "--gpus=1", comment)


def is_hook_at_work(cluster: MiniCluster) -> bool:
    """Return whether a new job gets its factor at once, from the hook; the job is cancelled."""
    job_id = twin(cluster, "bob")
    factor = cluster.sprio()[job_id]
    cluster.run("root", "scancel", job_id)
    return factor > 0


def explain(cluster: MiniCluster, job_id: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(cluster.run("fairgpu", "fairgpu", "explain", job_id, "--json").stdout)
    explanation: dict[str, Any] = told["explanation"]
    return explanation


def factor_of(agent: str, n_before: int) -> int:
    """Site factor by hand of a job of one GPU behind `n_before` others of its agent, 16 GPUs in all."""
    tag = Fraction(HELD[agent] + n_before, 16) / WEIGHTS[agent]
    return SCALE * 10_000 // (10_000 + int(tag * 10_000))


def n_wrong(cluster: MiniCluster) -> int:
    """Return how many site factors differ from what the core wants at this moment."""
    status = json.loads(cluster.run("fairgpu", "fairgpu", "status", "--json").stdout)
    count: int = status["n_decisions"]
    return count


def assert_adopted(cluster: MiniCluster, hooked: dict[str, str], missed: dict[str, str]) -> None:
    """Check that jobs which the hook missed became like their twins which it answered."""
    cluster.wait(lambda: n_wrong(cluster) == 0, SETTLED_S, "every site factor is as planned")
    site = cluster.sprio()
    assert all(site.values()), "a job without a factor"
    for user, agent in STORM_USERS.items():
        pair = [explain(cluster, hooked[user]), explain(cluster, missed[user])]
        answered, adopted = (one["submission"] for one in pair)
        assert adopted == answered
        assert (adopted["agent"], adopted["source"], adopted["tags"]["stage"]) == (agent, "tag", "train")
        shown = [site[hooked[user]], site[missed[user]]]
        assert shown == [one["place"]["site_factor"] for one in pair]
        # Equal tags of two agents are told apart by one each.
        assert all(0 <= factor_of(agent, place) - factor <= 2 for place, factor in enumerate(shown))
        # The first of its agent, then the other with one GPU before it: nobody stands between the twins.
        assert [n_gpus_before(one) for one in pair] == [0, 1]


def n_gpus_before(explanation: dict[str, Any]) -> int:
    axes = {axis["tres"]: axis["queued_before"] for axis in explanation["place"]["axes"]}
    count: int = axes["gres/gpu"]
    return count


# The hook server fails ------------------------------------------------------------------------------------------


def kill(cluster: MiniCluster, server: Daemon) -> Daemon:
    del cluster
    server.kill()
    return server


def freeze(cluster: MiniCluster, server: Daemon) -> Daemon:
    del cluster
    server.freeze()
    return server


def answer_garbage(cluster: MiniCluster, server: Daemon) -> Daemon:
    server.kill()
    return Daemon(cluster, "python3", "-c", GARBAGE, os.fspath(cluster.root / "run/fairgpu/hook.sock"))


@pytest.mark.parametrize("fail", [kill, freeze, answer_garbage])
def test_a_hook_server_that_fails_in_a_storm_loses_no_job_and_its_jobs_are_adopted(
    cluster: MiniCluster, parts: Parts, fail: Callable[[MiniCluster, Daemon], Daemon]
) -> None:
    hooked = {user: twin(cluster, user) for user in STORM_USERS}
    assert all(cluster.sprio()[job] > 0 for job in hooked.values())
    with Pinger(cluster), Storm(cluster) as storm:
        storm.at(10)
        failing = fail(cluster, parts.hook)
        storm.at(20)
        missed = {user: twin(cluster, user) for user in STORM_USERS}
        assert [cluster.sprio()[job] for job in missed.values()] == [0, 0, 0]
        storm.all_were_accepted()
        failing.kill()
        restarted = start_hook_server(cluster)
    with contextlib.ExitStack() as stack:
        stack.callback(restarted.ensure_ended)
        assert_adopted(cluster, hooked, missed)
        cluster.wait(lambda: is_hook_at_work(cluster), 20, "the breaker closes")


# The rebalancer fails -------------------------------------------------------------------------------------------


def freeze_rebalancer(cluster: MiniCluster, rebalancer: Daemon) -> Callable[[], Daemon]:
    rebalancer.freeze()
    second = cluster.run("fairgpu", "fairgpu", "rebalance", check=False)
    assert (second.returncode, "another rebalancer runs (pid" in second.stderr) == (1, True)

    def thaw() -> Daemon:
        rebalancer.thaw()
        return rebalancer

    return thaw


def kill_and_leave_garbage(cluster: MiniCluster, rebalancer: Daemon) -> Callable[[], Daemon]:
    rebalancer.kill()
    (cluster.root / "run/fairgpu/standings.json").write_bytes(bytes(range(256)) * 40)
    return lambda: start_rebalancer(cluster)


@pytest.mark.parametrize("fail", [kill_and_leave_garbage, freeze_rebalancer])
def test_a_rebalancer_that_fails_in_a_storm_costs_no_job_and_its_successor_ranks_all(
    cluster: MiniCluster, parts: Parts, fail: Callable[[MiniCluster, Daemon], Callable[[], Daemon]]
) -> None:
    before = {user: twin(cluster, user) for user in STORM_USERS}
    with Pinger(cluster), Storm(cluster) as storm:
        storm.at(10)
        resume = fail(cluster, parts.rebalancer)
        storm.at(20)
        during = {user: twin(cluster, user) for user in STORM_USERS}
        # The hook goes on with the last standings that made sense.
        assert all(cluster.sprio()[job] > 0 for job in during.values())
        storm.all_were_accepted()
        running = resume()
    with contextlib.ExitStack() as stack:
        stack.callback(running.ensure_ended)
        assert_adopted(cluster, before, during)


# Everything else that happens in the middle of a run -------------------------------------------------------------


def signal_reload(rebalancer: Daemon) -> None:
    os.kill(rebalancer.pid, signal.SIGHUP)


def test_off_in_the_middle_of_a_storm_takes_every_effect_back_and_on_resumes(
    cluster: MiniCluster, parts: Parts
) -> None:
    pids = [daemon.pid for daemon in parts]
    foreign = ("sbatch", "--hold", "--output=/dev/null", "--comment=agent=risk", "--wrap=true")
    with Pinger(cluster), Storm(cluster, N_PER_USER_SMALL) as storm:
        storm.at(30)
        assert any(cluster.sprio().values())
        cluster.run("fairgpu", "fairgpu", "off", "--reason", "in a storm")
        began_s = time.monotonic()
        cluster.wait(lambda: not any(cluster.sprio().values()), 20, "no job has a factor of ours")
        took_s = time.monotonic() - began_s
        assert cluster.run("dave", *foreign, check=False).returncode == 0
        storm.all_were_accepted()
    late = {user: twin(cluster, user) for user in STORM_USERS}
    assert not any(cluster.sprio().values())
    cluster.run("fairgpu", "fairgpu", "on")
    cluster.wait(lambda: cluster.run("dave", *foreign, check=False).returncode == 1, 5, "the hook works again")
    assert_adopted(cluster, late, {user: twin(cluster, user) for user in STORM_USERS})
    assert [daemon.pid for daemon in parts if daemon.is_running()] == pids
    assert took_s < OFF_S


def test_a_restart_of_slurmctld_in_a_storm_keeps_every_factor_and_every_daemon(
    cluster: MiniCluster, parts: Parts
) -> None:
    first = {user: twin(cluster, user) for user in STORM_USERS}
    with Storm(cluster, N_PER_USER_SMALL) as storm:
        storm.at(10)
        # sbatch waits and tries again when slurmctld does not answer.
        cluster.restart("slurmctld")
        second = {user: twin(cluster, user) for user in STORM_USERS}
        storm.all_were_accepted()
    assert_adopted(cluster, first, second)
    assert all(daemon.is_running() for daemon in parts)


def test_a_broken_site_file_in_the_middle_of_a_run_changes_nothing(cluster: MiniCluster, parts: Parts) -> None:
    path = cluster.root / "etc/fairgpu-site.yaml"
    right = path.read_text()
    first = {user: twin(cluster, user) for user in STORM_USERS}
    try:
        path.write_text(right.replace("base_weight: 0.6", "base_weight: -1") + "surprise: [\n")
        signal_reload(parts.rebalancer)
        cluster.wait(lambda: "event=site_file_refused" in parts.hook.log(), 5, "the hook server refuses it")
        cluster.wait(lambda: "event=reload_failed" in parts.rebalancer.log(), 5, "the rebalancer refuses it")
        second = {user: twin(cluster, user) for user in STORM_USERS}
        assert all(cluster.sprio()[job] > 0 for job in second.values())
    finally:
        path.write_text(right)
    assert_adopted(cluster, first, second)


@pytest.fixture
def tiny_state(cluster: MiniCluster) -> Iterator[tuple[str, Path]]:
    """Yield a site file whose state directory is a file system of 300 KiB, and that directory."""
    directory, site = cluster.root / "var/tiny", cluster.root / "etc/tiny-site.yaml"
    directory.mkdir()
    text = (cluster.root / "etc/fairgpu-site.yaml").read_text()
    site.write_text(text.replace(os.fspath(cluster.root / "var/fairgpu"), os.fspath(directory)))
    owner = cluster.run("fairgpu", "id", "-u").stdout.strip()
    cluster.run("root", "mount", "-t", "tmpfs", "-o", f"size=300k,mode=755,uid={owner}", "tiny", os.fspath(directory))
    yield os.fspath(site), directory
    cluster.run("root", "umount", "--lazy", os.fspath(directory))
    directory.rmdir()
    site.unlink()


def test_a_full_disk_stops_neither_the_cycle_nor_the_kill_switch(
    cluster: MiniCluster, parts: Parts, tiny_state: tuple[str, Path]
) -> None:
    site, directory = tiny_state
    parts.rebalancer.stop()
    rebalancer = start_rebalancer(cluster, "--site", site)
    with contextlib.ExitStack() as stack:
        stack.callback(rebalancer.ensure_ended)
        ballast = os.fspath(directory / "ballast")
        cluster.run("fairgpu", "dd", "if=/dev/zero", f"of={ballast}", "bs=4k", check=False)
        before = {user: twin(cluster, user) for user in STORM_USERS}
        parts.hook.kill()
        missed = {user: twin(cluster, user) for user in STORM_USERS}
        assert_adopted(cluster, before, missed)
        assert "No space left" in rebalancer.log() or "is full" in rebalancer.log()
        cluster.run("fairgpu", "fairgpu", "off", "--site", site)
        cluster.wait(lambda: not any(cluster.sprio().values()), OFF_S, "off works without a disk")
        cluster.run("fairgpu", "fairgpu", "on", "--site", site)
