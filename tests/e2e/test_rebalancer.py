"""The rebalancer on a real slurmctld: adoption, restart, the lease, the kill switch, a controller that restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.snapshot import load_run
from tests.e2e.mini_cluster import SCALE, Daemon, start_rebalancer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.mini_cluster import MiniCluster

ADOPTED_S = 20
"""Below Slurm 24.11 a job is touched when it is 5 s old; cycles come every second."""


@pytest.fixture(autouse=True)
def _clean(cluster: MiniCluster) -> Iterator[None]:
    yield
    cluster.run("fairgpu", "fairgpu", "on", check=False)
    cluster.clear_jobs()


@pytest.fixture
def full(cluster: MiniCluster) -> str:
    """Fill every GPU with one job of ``risk``, so that whatever comes later waits; return its id."""
    job_id = cluster.sbatch("alice", "--account=risk", "--partition=main", "--nodes=4", "--gpus-per-node=4")
    cluster.wait(lambda: cluster.state(job_id) == "RUNNING", what="the filler runs")
    return job_id


def _submit(cluster: MiniCluster, user: str, *args: str) -> str:
    return cluster.sbatch(user, "--partition=main", "--gpus=1", *args)


def _factors(cluster: MiniCluster, *job_ids: str) -> list[int]:
    shown = cluster.sprio()
    return [shown.get(job_id, 0) for job_id in job_ids]


def _wait_adopted(cluster: MiniCluster, *job_ids: str) -> None:
    cluster.wait(lambda: all(_factors(cluster, *job_ids)), ADOPTED_S, f"{job_ids} have a site factor")


@pytest.mark.usefixtures("full", "rebalancer")
def test_jobs_that_bypassed_the_hook_get_the_factors_of_weighted_drf(cluster: MiniCluster) -> None:
    rec = [_submit(cluster, "bob", "--account=rec") for _ in range(2)]
    risk = _submit(cluster, "alice", "--account=risk")
    _wait_adopted(cluster, *rec, risk)
    # rec holds nothing: tags 0 and 1/16 : 3/10 = 0.2083; risk holds every GPU: tag 1 : 6/10 = 1.6666.
    assert _factors(cluster, *rec, risk) == [SCALE, SCALE * 10_000 // 12_083, SCALE * 10_000 // 26_666]


@pytest.mark.usefixtures("full")
def test_a_killed_rebalancer_leaves_slurm_alone_and_its_successor_adopts(cluster: MiniCluster) -> None:
    first = start_rebalancer(cluster)
    one = _submit(cluster, "bob", "--account=rec")
    _wait_adopted(cluster, one)
    first.kill()
    two = _submit(cluster, "bob", "--account=rec")
    assert _factors(cluster, one, two) == [SCALE, 0]
    second = start_rebalancer(cluster)
    _wait_adopted(cluster, two)
    assert second.stop() == 0


@pytest.mark.usefixtures("rebalancer")
def test_a_second_rebalancer_refuses_and_names_the_first(cluster: MiniCluster) -> None:
    done = cluster.run("fairgpu", "fairgpu", "rebalance", check=False)
    assert done.returncode == 1
    assert "another rebalancer runs (pid" in done.stderr


@pytest.mark.usefixtures("full", "rebalancer")
def test_off_gives_every_factor_back_and_on_resumes(cluster: MiniCluster) -> None:
    ours = [_submit(cluster, user, f"--account={name}") for user, name in (("alice", "risk"), ("bob", "rec"))]
    foreign = _submit(cluster, "bob", "--account=rec")
    cluster.run("root", "scontrol", "update", f"jobid={foreign}", "SiteFactor=-42")
    cluster.wait(lambda: all(factor > 0 for factor in _factors(cluster, *ours, foreign)), ADOPTED_S, "all are ranked")
    cluster.run("fairgpu", "fairgpu", "off", "--reason", "test")
    cluster.wait(lambda: _factors(cluster, *ours, foreign) == [0, 0, -42], 5, "the former factors are back")
    late = _submit(cluster, "bob", "--account=rec")
    cluster.run("fairgpu", "fairgpu", "on")
    cluster.wait(lambda: all(factor > 0 for factor in _factors(cluster, *ours, late)), ADOPTED_S, "on resumes")


@pytest.mark.usefixtures("full", "rebalancer")
def test_a_job_that_its_user_moves_out_of_reach_loses_its_factor(cluster: MiniCluster) -> None:
    to_partition, to_account, stays = (_submit(cluster, "alice", "--account=risk") for _ in range(3))
    _wait_adopted(cluster, to_partition, to_account, stays)
    cluster.run("alice", "scontrol", "update", f"jobid={to_partition}", "partition=other")
    cluster.run("alice", "scontrol", "update", f"jobid={to_account}", "account=guest")
    cluster.wait(lambda: _factors(cluster, to_partition, to_account) == [0, 0], 5, "a cycle gave both up")
    assert _factors(cluster, stays) != [0]


@pytest.mark.usefixtures("full")
def test_off_also_resets_a_job_that_started_meanwhile(cluster: MiniCluster, full: str, rebalancer: Daemon) -> None:
    job_id = _submit(cluster, "bob", "--account=rec")
    _wait_adopted(cluster, job_id)
    cluster.run("root", "scancel", full)
    cluster.wait(lambda: cluster.state(job_id) == "RUNNING", what="the ranked job runs")
    cluster.run("fairgpu", "fairgpu", "off")
    rebalancer.ready(lambda: "event=reset restored=1" in rebalancer.log(), "the running job is reset")
    cluster.run("root", "scontrol", "requeuehold", job_id)
    cluster.wait(lambda: cluster.state(job_id) == "PENDING", what="the job is back in the queue")
    cluster.run("root", "scontrol", "update", f"jobid={job_id}", "StartTime=now")
    blocker = cluster.sbatch("alice", "--account=risk", "--partition=main", "--nodes=4", "--gpus-per-node=4")
    cluster.wait(lambda: cluster.state(blocker) == "RUNNING", what="the cluster is full again")
    cluster.run("root", "scontrol", "release", job_id)
    cluster.wait(lambda: job_id in cluster.sprio(), what="sprio shows the job")
    assert cluster.sprio()[job_id] == 0


@pytest.mark.usefixtures("full")
def test_a_restart_of_slurmctld_is_survived(cluster: MiniCluster, rebalancer: Daemon) -> None:
    cluster.restart("slurmctld")
    job_id = _submit(cluster, "bob", "--account=rec")
    _wait_adopted(cluster, job_id)
    assert rebalancer.is_running()


@pytest.mark.usefixtures("full")
def test_sigterm_ends_it_at_once_with_standings_and_exit_code_0(cluster: MiniCluster, rebalancer: Daemon) -> None:
    assert rebalancer.stop(timeout_s=5) == 0
    standings = json.loads((cluster.root / "run/fairgpu/standings.json").read_text())
    assert standings["agents"]["risk"]["next"][standings["tres"].index("gres/gpu")] == 16
    assert "event=stopped" in rebalancer.log()


@pytest.mark.usefixtures("full", "rebalancer")
def test_status_and_explain_show_the_same_arithmetic(cluster: MiniCluster) -> None:
    job_id = _submit(cluster, "alice", "--account=risk")
    _wait_adopted(cluster, job_id)
    status = json.loads(cluster.run("fairgpu", "fairgpu", "status", "--json").stdout)
    standing = next(one for one in status["agents"] if one["agent"] == "risk")
    assert (standing["dominant_share"], standing["weight"], standing["weighted_share"]) == ("1", "3/5", "5/3")
    told = json.loads(cluster.run("fairgpu", "fairgpu", "explain", job_id, "--json").stdout)
    place = told["explanation"]["place"]
    assert (place["tag"], place["site_factor"]) == ("5/3", SCALE * 10_000 // 26_666)
    assert place["shown_factor"] == place["site_factor"]


@pytest.mark.usefixtures("full", "rebalancer")
def test_the_kept_cycles_replay_to_the_same_plans(cluster: MiniCluster) -> None:
    _wait_adopted(cluster, _submit(cluster, "bob", "--account=rec"))
    folder = cluster.root / "var/fairgpu/snapshots"
    assert any(snapshot.plan.decisions for snapshot in load_run(folder))
    done = cluster.run("fairgpu", "fairgpu", "replay", str(folder))
    assert "DIFFERENT" not in done.stdout


@pytest.mark.usefixtures("full")
def test_shadow_works_for_an_ordinary_user(cluster: MiniCluster) -> None:
    job_id = _submit(cluster, "bob", "--account=rec")
    cluster.wait(lambda: cluster.state(job_id) == "PENDING", what="the job waits")
    shown = json.loads(cluster.run("mallory", "fairgpu", "shadow", "--json", "--weights", "risk=.6,rec=.4").stdout)
    assert [one["job_id"] for one in shown["fair_order"]] == [job_id]
    gpus = next(one for one in shown["idle"] if one["tres"] == "gres/gpu")
    assert (gpus["idle"], gpus["wanted"]) == (0, 1)
