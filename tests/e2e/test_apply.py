"""``fairgpu plan`` and ``apply`` on a real slurmdbd: what they write holds, and goes away again without a trace."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.mini_cluster import MiniCluster

BANDS = "bands: {grace: 2s}\n"


@pytest.fixture(autouse=True)
def site(cluster: MiniCluster) -> Iterator[Path]:
    """Site file with bands, and a slurmdbd that has none before and after."""
    text = (cluster.root / "etc/fairgpu-site.yaml").read_text()
    # The band-order rule: 5000 + age 1000 + fair-share 1000 + job size 100 < 10000 x (100 - 9) / 100.
    text = text.replace("scale: 1000000", "scale: 5000").replace("mode: dominant", "mode: blend")
    path = cluster.root / "etc/bands-site.yaml"
    path.write_text(text + BANDS)
    yield path
    cluster.clear_jobs()
    fairgpu(cluster, "apply", "--remove", "--yes", check=False)
    shown = cluster.run("root", "sacctmgr", "-nP", "show", "qos", "format=name").stdout.split()
    assert shown == ["normal"]


def fairgpu(
    cluster: MiniCluster, *argv: str, check: bool = True, user: str = "root"
) -> subprocess.CompletedProcess[str]:
    path = cluster.root / "etc/bands-site.yaml"
    return cluster.run(user, "env", f"FAIRGPU_SITE={path}", "fairgpu", *argv, check=check)


def dump(cluster: MiniCluster) -> str:
    """Everything that slurmdbd says about this cluster's associations and about QOSes."""
    shown = cluster.run("root", "sacctmgr", "dump", cluster.name, "file=/dev/stdout").stdout
    effective = cluster.run("root", "sacctmgr", "-P", "show", "assoc", f"cluster={cluster.name}").stdout
    return shown + effective + cluster.run("root", "sacctmgr", "-P", "show", "qos").stdout


def jobs(cluster: MiniCluster) -> list[dict[str, str]]:
    names = ("id", "user", "qos", "state", "reason", "gpus")
    out = cluster.run("root", "squeue", "--noheader", "--array", "--format=%i|%u|%q|%T|%r|%b").stdout
    return [dict(zip(names, line.split("|"), strict=True)) for line in out.splitlines()]


def running(cluster: MiniCluster, qos: str) -> int:
    return sum(job["qos"] == qos and job["state"] == "RUNNING" for job in jobs(cluster))


def one_gpu(cluster: MiniCluster, user: str, account: str, *args: str) -> str:
    return cluster.sbatch(user, f"--account={account}", "--partition=main", "--gpus=1", *args)


def test_apply_makes_the_difference_disappear_and_is_idempotent(cluster: MiniCluster) -> None:
    assert fairgpu(cluster, "plan", "--exit-code", check=False).returncode == 4
    shown = fairgpu(cluster, "apply", "--yes").stdout
    assert f"+ qos fg_{cluster.name}_risk  gracetime=0 grptres=cpu=96,gres/gpu=9,mem=786432M" in shown
    again = fairgpu(cluster, "plan", "--exit-code")
    assert "No difference" in again.stdout
    before = dump(cluster)
    assert "No difference" in fairgpu(cluster, "apply", "--yes").stdout
    assert dump(cluster) == before


def test_slurm_enforces_the_quota_with_none_of_our_daemons_running(cluster: MiniCluster) -> None:
    fairgpu(cluster, "apply", "--yes")
    qos = f"fg_{cluster.name}_risk"
    for _ in range(14):
        one_gpu(cluster, "alice", "risk")
    cluster.wait(lambda: running(cluster, qos) == 9, what="the nominal quota runs")
    for _ in range(15):
        found = jobs(cluster)
        assert sum(job["state"] == "RUNNING" for job in found) == 9
        assert {job["qos"] for job in found} == {qos}
        time.sleep(0.3)
    cluster.wait(
        lambda: {job["reason"] for job in jobs(cluster) if job["state"] == "PENDING"} == {"QOSGrpGRES"},
        what="the others wait for the quota",
    )


def test_killed_again_and_again_it_still_ends_right(cluster: MiniCluster, site: Path) -> None:
    before = dump(cluster)
    assert _run_with_kills(cluster, site, "apply", "--yes") >= 3
    assert fairgpu(cluster, "plan", "--exit-code").returncode == 0
    assert _run_with_kills(cluster, site, "apply", "--remove", "--yes") >= 3
    assert dump(cluster) == before


def _run_with_kills(cluster: MiniCluster, site: Path, *argv: str) -> int:
    """Run the command with SIGKILL after a growing time until it ends by itself; how often it was killed."""
    command = ("env", f"FAIRGPU_SITE={site}", "fairgpu", *argv)
    for number in range(40):
        seconds = f"{0.3 * 1.15**number:.2f}"  # a whole run takes 0.8 s to 5 s, by machine and Python
        done = cluster.run("root", "timeout", "--signal=KILL", seconds, *command, check=False)
        if done.returncode == 0:
            return number
        assert done.returncode in {-9, 137}, done.stdout + done.stderr
    raise AssertionError("it never ended")


def _own_lists(cluster: MiniCluster) -> None:
    """Give associations lists and defaults of their own, of each kind."""
    for name in ("fgt_long", "fgt_debug"):
        cluster.run("root", "sacctmgr", "-i", "add", "qos", name)
    _modify(cluster, "account", "account=rec", "qos=normal,fgt_long", "defaultqos=normal")
    _modify(cluster, "user", "account=rec", "user=bob", "qos+=fgt_debug", "defaultqos=fgt_debug")
    _modify(cluster, "user", "account=vision", "user=carol", "qos=fgt_long", "defaultqos=fgt_long")
    # What is written for a user's partition is not written for the user.
    cluster.run("root", "sacctmgr", "-i", "add", "user", "alice", "account=risk", "partition=cpu")
    number = _association(cluster, "risk", "alice", "cpu")
    _modify(cluster, "user", f"associations={number}", "qos=fgt_debug", "defaultqos=fgt_debug")


def _association(cluster: MiniCluster, account: str, user: str, partition: str) -> str:
    where = (f"cluster={cluster.name}", f"account={account}", f"user={user}")
    lines = cluster.run("root", "sacctmgr", "-nP", "show", "assoc", *where, "format=id,partition").stdout.splitlines()
    return next(number for number, _, name in (line.partition("|") for line in lines) if name == partition)


def _no_own_lists(cluster: MiniCluster) -> None:
    where = ("where", "user=alice", "account=risk", "partition=cpu", f"cluster={cluster.name}")
    cluster.run("root", "sacctmgr", "-i", "delete", "user", *where)
    _modify(cluster, "user", "account=rec", "user=bob", "defaultqos=-1", "qos=")
    _modify(cluster, "user", "account=vision", "user=carol", "defaultqos=-1", "qos=")
    _modify(cluster, "account", "account=rec", "defaultqos=-1", "qos=")
    for name in ("fgt_long", "fgt_debug"):
        cluster.run("root", "sacctmgr", "-i", "delete", "qos", name)


def _modify(cluster: MiniCluster, kind: str, *words: str) -> None:
    where = [word for word in words if word.startswith(("account=", "user=", "associations="))]
    values = [word for word in words if word not in where]
    cluster.run("root", "sacctmgr", "-i", "modify", kind, "where", f"cluster={cluster.name}", *where, "set", *values)


@pytest.fixture
def own_lists(cluster: MiniCluster) -> Iterator[None]:
    _own_lists(cluster)
    yield
    cluster.clear_jobs()
    fairgpu(cluster, "apply", "--remove", "--yes", check=False)
    _no_own_lists(cluster)


@pytest.mark.usefixtures("own_lists")
def test_remove_strands_no_job_and_leaves_slurmdbd_as_it_was(cluster: MiniCluster) -> None:
    before = dump(cluster)
    fairgpu(cluster, "apply", "--yes")
    prefix = f"fg_{cluster.name}"
    short = "--wrap=sleep 12"
    ended = [one_gpu(cluster, "alice", "risk", short) for _ in range(9)]
    cluster.wait(lambda: running(cluster, f"{prefix}_risk") == 9, what="the guaranteed band is full")
    waiting = [one_gpu(cluster, "alice", "risk", "--wrap=true") for _ in range(3)]
    held = one_gpu(cluster, "alice", "risk", "--hold", "--wrap=true")
    array = one_gpu(cluster, "alice", "risk", "--array=1-4", "--wrap=true")
    loan = one_gpu(cluster, "bob", "rec", f"--qos={prefix}_rec_borrow", short)
    debug = one_gpu(cluster, "bob", "rec", "--hold", "--wrap=true")
    later = one_gpu(cluster, "carol", "vision", "--begin=now+1hour", f"--qos={prefix}_vision_opp")
    cluster.wait(lambda: cluster.state(loan) == "RUNNING", what="a borrowed job runs")

    done = fairgpu(cluster, "apply", "--remove", "--yes")
    assert dump(cluster) == before
    assert "Removed: nothing of ours is left" in done.stdout
    assert "waiting for" in done.stderr
    qos = {job["id"]: job["qos"] for job in jobs(cluster)}
    # Default of the association where it has one, else the template.
    assert (qos[held], qos[debug], qos[later]) == ("normal", "fgt_debug", "fgt_long")
    cluster.run("root", "scontrol", "release", held, debug)
    cluster.run("root", "scontrol", "update", f"jobid={later}", "StartTime=now")
    everyone = [*ended, *waiting, held, loan, debug, *(f"{array}_{task}" for task in range(1, 5))]
    cluster.wait(lambda: cluster.state(later) == "RUNNING", what="the delayed job runs")
    cluster.wait(lambda: {job["id"] for job in jobs(cluster)} == {later}, 60, "every other job ended")
    states = {one: cluster.state(one) for one in everyone}
    assert set(states.values()) == {"COMPLETED"}, states


def test_remove_now_lists_what_runs_and_a_later_one_finishes(cluster: MiniCluster) -> None:
    before = dump(cluster)
    fairgpu(cluster, "apply", "--yes")
    qos = f"fg_{cluster.name}_risk"
    job_id = one_gpu(cluster, "alice", "risk")
    cluster.wait(lambda: running(cluster, qos) == 1, what="the job runs")
    done = fairgpu(cluster, "apply", "--remove", "--now", "--yes", check=False)
    assert done.returncode == 1
    assert f"qos {qos} remains: 1 jobs still have it ({job_id})" in done.stdout
    assert cluster.state(job_id) == "RUNNING"
    refused = cluster.run("alice", "sbatch", f"--qos={qos}", "--account=risk", "--wrap=true", check=False)
    assert refused.returncode != 0, "ours is closed to new jobs"
    cluster.run("root", "scancel", job_id)
    cluster.wait(lambda: not cluster.squeue(), what="the job is gone")
    assert fairgpu(cluster, "apply", "--remove", "--yes").returncode == 0
    assert dump(cluster) == before


def test_plan_as_json_names_quotas_and_changes(cluster: MiniCluster) -> None:
    shown: dict[str, Any] = json.loads(fairgpu(cluster, "plan", "--json").stdout)
    nominal = {quota["agent"]: dict(quota["nominal"])["gres/gpu"] for quota in shown["quotas"]}
    assert nominal == {"risk": 9, "rec": 5, "vision": 2}
    assert shown["differs"] is True
    assert {change["kind"] for change in shown["changes"]} == {"CreateQos", "ModifyQos", "ChangeAssoc"}
    assert shown["blockers"] == []


def test_who_may_not_gets_a_clear_answer(cluster: MiniCluster) -> None:
    for user in ("alice", "fairgpu"):
        done = fairgpu(cluster, "apply", "--yes", check=False, user=user)
        assert done.returncode == 1
        assert "only root and SlurmUser may do this" in done.stderr


def test_a_site_factor_that_could_cross_the_bands_is_refused_with_the_numbers(cluster: MiniCluster, site: Path) -> None:
    site.write_text(site.read_text().replace("scale: 5000", "scale: 8000"))
    before = dump(cluster)
    done = fairgpu(cluster, "apply", "--yes", check=False)
    assert done.returncode == 1
    assert "site factor and other factors 10100 >= 9100 = PriorityWeightQOS 10000 x (100 - 9) / 100" in done.stdout
    assert "slurm.conf: PriorityWeightQOS=11100, or site file: site_factor: {scale: 6999}" in done.stdout
    assert dump(cluster) == before
