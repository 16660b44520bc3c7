"""The submit hook on a real Slurm: sbatch, slurmctld, both shims, the server (test_survival.py: it fails)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.mini_cluster import close_breaker, start_hook_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.mini_cluster import Daemon, MiniCluster

STANDINGS = {
    "version": 1,
    "interval_s": 5.0,
    "mode": "enforce",
    "tres": ["cpu", "gres/gpu", "mem"],
    "capacity": [128, 16, 1_048_576],
    "policy": "wdrf",
    "scale": 1_000_000,
    "agents": {name: {"weight": "1/2", "next": [0, 0, 0]} for name in ("risk", "rec", "vision")},
}
PING = """
import socket, sys
client = socket.socket(socket.AF_UNIX); client.settimeout(5)
try: client.connect(sys.argv[1]); client.sendall(b"FG1P00000000"); print("answer", client.recv(100))
except OSError as err: print("refused", err)
"""


@pytest.fixture(scope="module", params=["lua", "compiled"])
def cluster(request: pytest.FixtureRequest, cluster: MiniCluster, compiled_cluster: MiniCluster) -> MiniCluster:
    """The cluster of all tests, whose shim is Lua, then the one with the compiled shim."""
    return compiled_cluster if request.param == "compiled" else cluster


@pytest.fixture
def hook(cluster: MiniCluster) -> Iterator[Daemon]:
    """A server with fresh standings, and fresh settings of the shim, so that the breaker of another test is closed."""
    cluster.clear_jobs()
    standings = cluster.root / "run/fairgpu/standings.json"
    standings.write_text(json.dumps(STANDINGS | {"at_s": time.time()}))
    close_breaker(cluster)
    server = start_hook_server(cluster)
    yield server
    server.ensure_ended()
    standings.unlink()
    cluster.clear_jobs()


def details(cluster: MiniCluster, job: str) -> dict[str, str]:
    text = cluster.run("root", "scontrol", "show", "job", "-o", job).stdout
    return dict(part.split("=", 1) for part in text.partition(" Comment=")[0].split() if "=" in part)


@pytest.mark.usefixtures("hook")
def test_a_burst_of_one_agent_spreads(cluster: MiniCluster) -> None:
    # Each asks for all 4 GPUs of 4 nodes: the first runs, the others wait with what stands before them.
    args = ("--gpus-per-node=4", "--nodes=4", "--comment=agent=rec")
    jobs = [cluster.sbatch("bob", *args) for _ in range(3)]
    site = cluster.sprio()
    # 16 of 16 GPUs over weight 1/2 is tag 2, then 4: 1,000,000 / 3 and / 5. (The first job runs: no longer shown.)
    assert [site[job] for job in jobs[1:]] == [333_333, 200_000]


@pytest.mark.usefixtures("hook")
def test_a_tag_of_another_agent_is_rejected_with_a_useful_message(cluster: MiniCluster) -> None:
    done = cluster.run("dave", "sbatch", "--comment=agent=risk", "--wrap=true", check=False)
    assert done.returncode == 1
    assert "User dave with account guest may not use tag agent=risk. dave may use here: rec." in done.stderr
    assert cluster.squeue("--user=dave") == []


@pytest.mark.usefixtures("hook")
def test_a_group_lets_its_member_use_a_tag(cluster: MiniCluster) -> None:
    job = cluster.sbatch("dave", "--hold", "--comment=agent=rec")
    assert details(cluster, job)["Account"] == "guest"


@pytest.mark.usefixtures("hook")
def test_an_unmanaged_partition_is_left_alone(cluster: MiniCluster) -> None:
    cluster.sbatch("dave", "--hold", "--partition=other", "--comment=agent=risk")


@pytest.mark.usefixtures("hook")
def test_a_user_cannot_write_a_foreign_tag_later_but_root_can_write_anything(cluster: MiniCluster) -> None:
    job = cluster.sbatch("alice", "--hold", "--comment=agent=risk")
    update = ("scontrol", "update", f"jobid={job}", "comment=agent=vision")
    refused = cluster.run("alice", *update, check=False)
    assert refused.returncode == 1
    assert "denied" in refused.stderr
    assert cluster.squeue()[0].comment == "agent=risk"
    cluster.run("root", *update)


@pytest.mark.usefixtures("hook")
def test_an_interactive_job_is_answered_too(cluster: MiniCluster) -> None:
    done = cluster.run("dave", "srun", "--comment=agent=risk", "true", check=False)
    assert "may not use tag agent=risk" in done.stderr
    assert cluster.run("alice", "srun", "--comment=agent=risk", "echo", "ran").stdout == "ran\n"


@pytest.mark.usefixtures("hook")
def test_a_mistyped_tag_is_told_although_the_job_is_accepted(cluster: MiniCluster) -> None:
    note = "agnet: no tag of FairGPU, kept as free text; did you mean agent=...?"
    batch = cluster.run("alice", "sbatch", "--hold", "--output=/dev/null", "--comment=agnet=risk", "--wrap=true")
    assert note in batch.stderr
    assert note in cluster.run("alice", "srun", "--comment=agnet=risk", "true").stderr
    left_alone = cluster.run("dave", "sbatch", "--hold", "--output=/dev/null", "--comment=agnet=rec", "--wrap=true")
    assert note in left_alone.stderr


def test_the_servers_own_user_may_look_without_a_warning(cluster: MiniCluster, hook: Daemon) -> None:
    before = hook.log().count("peer_refused")
    assert "Submit hook: answers in" in cluster.run("fairgpu", "fairgpu", "status").stdout
    assert "Submit hook: listens" in cluster.run("alice", "fairgpu", "status").stdout
    assert hook.log().count("peer_refused") == before


HOSTILE = {
    "quotes": 'it\'s "quoted" agent=risk',
    "newlines": "line\nagent=risk\nSiteFactor=99\n",
    "as long as Slurm takes": "agent=risk " + "x" * 1_000,
    "invalid UTF-8": "\udcff\udcfe agent=risk \udcc3",
    "fake wire fields": "agent=risk 7:account,6:vision,3:uid,1:0,",
    "format strings": "%s%n%d agent=risk",
}


@pytest.mark.usefixtures("hook")
def test_hostile_comments_change_no_other_field(cluster: MiniCluster) -> None:
    names = (
        "UserId",
        "Account",
        "QOS",
        "Partition",
        "Nice",
        "Requeue",
        "NumNodes",
        "NumCPUs",
        "TimeLimit",
        "Dependency",
    )
    twin = details(cluster, cluster.sbatch("alice", "--begin=now+1hour", "--comment=agent=risk"))
    for kind, comment in HOSTILE.items():
        found = details(cluster, cluster.sbatch("alice", "--begin=now+1hour", f"--comment={comment}"))
        assert {name: found[name] for name in names} == {name: twin[name] for name in names}, kind
    cluster.run("root", "scontrol", "ping")


def test_a_comment_of_64_kib_is_refused_by_slurm_itself_and_hurts_nobody(cluster: MiniCluster, hook: Daemon) -> None:
    done = cluster.run("alice", "sbatch", "--hold", f"--comment=agent=risk {'x' * 65_536}", "--wrap=true", check=False)
    assert "too long" in done.stderr
    cluster.sbatch("alice", "--hold", "--comment=agent=risk")
    assert cluster.run("dave", "sbatch", "--comment=agent=risk", "--wrap=true", check=False).returncode == 1
    assert hook.is_running()


def test_somebody_elses_process_cannot_talk_to_the_socket(cluster: MiniCluster, hook: Daemon) -> None:
    path = os.fspath(cluster.root / "run/fairgpu/hook.sock")
    for user in ("mallory", "alice"):
        assert cluster.run(user, "python3", "-c", PING, path).stdout.startswith("refused")
    assert cluster.run("root", "python3", "-c", PING, path).stdout.startswith("answer b'FG1R")
    assert hook.is_running()


@pytest.mark.usefixtures("hook")
def test_off_stops_the_rejections_without_a_restart(cluster: MiniCluster) -> None:
    foreign = ("sbatch", "--hold", "--output=/dev/null", "--comment=agent=risk", "--wrap=true")
    cluster.run("fairgpu", "fairgpu", "off")
    cluster.wait(lambda: cluster.run("dave", *foreign, check=False).returncode == 0, 5, "off has an effect")
    cluster.run("fairgpu", "fairgpu", "on")
    cluster.wait(lambda: cluster.run("dave", *foreign, check=False).returncode == 1, 5, "on has an effect")
