"""The client on a real Slurm: what it reads is what users asked for, and an update reaches one record alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.records import JobId, JobState
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner, UpdateStatus
from slurm_plugin.errors import SlurmAuthError, SlurmUnavailable

if TYPE_CHECKING:
    from policies.records import JobRecord, Observation
    from tests.e2e.mini_cluster import MiniCluster


@pytest.fixture(autouse=True)
def _empty_queue(cluster: MiniCluster) -> None:
    cluster.clear_jobs()


def connect(cluster: MiniCluster, user: str = "fairgpu") -> CliSlurm:
    return CliSlurm(CliSettings(runner=ProcessRunner(prefix=tuple(cluster.argv(user)))))


@pytest.fixture
def slurm(cluster: MiniCluster) -> CliSlurm:
    return connect(cluster)


def find(seen: Observation, job_id: str) -> JobRecord:
    return next(job for job in seen.jobs if job.job_id == job_id)


def n_running(slurm: CliSlurm) -> int:
    return sum(job.state is JobState.RUNNING for job in slurm.observe().jobs)


@pytest.mark.parametrize(
    ("arguments", "gpus", "types"),
    [
        (["--gres=gpu:2"], 2, ()),
        (["--gres=gpu:a100:2", "-N2"], 4, ("gres/gpu:a100",)),
        (["--gpus=3"], 3, ()),
        (["--gpus=a100:4", "-N2"], 4, ("gres/gpu:a100",)),
        (["--gpus-per-node=2", "-N2"], 4, ()),
        (["--gpus-per-node=h100:1", "-N2"], 2, ("gres/gpu:h100",)),
        (["--gpus-per-task=1", "-n3"], 3, ()),
        (["--gpus-per-task=a100:1", "-n2"], 2, ("gres/gpu:a100",)),
        (["--gpus-per-socket=1", "--sockets-per-node=1"], 1, ()),
        (["-c2"], 0, ()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_gpus_are_counted_in_every_spelling(
    cluster: MiniCluster, slurm: CliSlurm, arguments: list[str], gpus: int, types: tuple[str, ...]
) -> None:
    job_id = cluster.sbatch("alice", "--hold", *arguments)
    job = find(slurm.observe(), job_id)
    assert dict(job.tres).get("gres/gpu", 0) == gpus
    assert job.requested_types == types
    assert {name for name, _ in job.tres if ":" in name} == set(types)


def test_a_running_job_shows_what_it_holds(cluster: MiniCluster, slurm: CliSlurm) -> None:
    job_id = cluster.sbatch("alice", "--gres=gpu:1", "--mem=300M")
    cluster.wait(lambda: cluster.state(job_id) == "RUNNING")
    job = find(slurm.observe(), job_id)
    assert (job.state, job.user, job.account, job.requested_types) == (JobState.RUNNING, "alice", "risk", ())
    assert dict(job.tres)["gres/gpu"] == 1
    assert dict(job.tres)["mem"] == 300
    assert job.nodes
    assert job.start_s is not None


def test_hostile_texts_change_no_other_field(cluster: MiniCluster, slurm: CliSlurm) -> None:
    comment = "agent=risk|RUNNING\n999 root PENDING \x1b[2J \udcff\udcfe _c_r 'x' \"y\" " + "z" * 900
    first = cluster.sbatch("alice", "--hold", "--job-name=a|b\nc", f"--comment={comment}", "--gres=gpu:1")
    second = cluster.sbatch("bob", "--hold", "--gres=gpu:2")
    seen = slurm.observe()
    job = find(seen, first)
    assert job.comment == comment.replace("\udcff\udcfe", "\\xff\\xfe")
    assert job.name == "a|b\nc"
    assert dict(job.tres)["gres/gpu"] == 1
    assert find(seen, second).user == "bob"
    assert [found.job_id for found in seen.jobs] == [first, second]
    assert seen.problems == ()


def test_an_update_of_a_partly_started_array_reaches_its_waiting_tasks_alone(
    cluster: MiniCluster, slurm: CliSlurm
) -> None:
    array = cluster.sbatch("alice", "--array=0-5%2", "--gres=gpu:1")
    cluster.wait(lambda: n_running(slurm) == 2)
    cluster.run("root", "scontrol", "requeue", f"{array}_0")
    cluster.wait(lambda: n_running(slurm) == 2 and any(job.restarts for job in slurm.observe().jobs))
    before = {job.job_id: job.n_tasks for job in slurm.observe().jobs}
    assert before == {array: 3, f"{array}_0": 1, f"{array}_1": 1, f"{array}_2": 1}
    outcomes = slurm.set_site_factors([(JobId(array), 77), (JobId(f"{array}_0"), 11)])
    assert [found.status for found in outcomes] == [UpdateStatus.OK, UpdateStatus.OK]
    assert {job.job_id: job.n_tasks for job in slurm.observe().jobs} == before
    log = [line for line in cluster.log("slurmctld").splitlines() if "setting AdinPrioFactor" in line][-2:]
    assert [line.rpartition("JobId=")[2].partition("(")[0] for line in log] == [f"{array}_*", f"{array}_0"]


def test_a_site_factor_is_read_back(cluster: MiniCluster, slurm: CliSlurm) -> None:
    cluster.sbatch("alice", "-N4", "--exclusive")
    array = cluster.sbatch("bob", "--array=1-3", "--gres=gpu:4", "-N4")
    plain = cluster.sbatch("bob", "-N4", "--gres=gpu:4")
    wanted = {JobId(array): 77, JobId(plain): -5}
    cluster.wait(lambda: all(find(slurm.observe(), job_id).site_factor is not None for job_id in wanted))
    slurm.set_site_factors(list(wanted.items()))
    seen = slurm.observe()
    assert {job_id: find(seen, job_id).site_factor for job_id in wanted} == wanted


def test_het_components_are_updated_one_by_one(cluster: MiniCluster, slurm: CliSlurm) -> None:
    cluster.sbatch("alice", "-N4", "--exclusive")
    leader = cluster.run(
        "carol",
        *("sbatch", "--parsable", "--output=/dev/null", "-N4", "--gres=gpu:4", ":", "--gres=gpu:a100:1"),
        "--wrap=sleep 600",
    ).stdout.strip()
    ids = [JobId(f"{leader}+0"), JobId(f"{leader}+1")]
    cluster.wait(lambda: all(find(slurm.observe(), job_id).site_factor is not None for job_id in ids))
    slurm.set_site_factors([(ids[1], 9)])
    seen = slurm.observe()
    assert [find(seen, job_id).site_factor for job_id in ids] == [0, 9]
    assert [dict(find(seen, job_id).tres)["gres/gpu"] for job_id in ids] == [16, 1]
    assert find(seen, ids[1]).requested_types == ("gres/gpu:a100",)


def test_a_requeued_job_asks_again_for_what_its_user_named(cluster: MiniCluster, slurm: CliSlurm) -> None:
    job_id = cluster.sbatch("alice", "--gres=gpu:1")
    cluster.wait(lambda: cluster.state(job_id) == "RUNNING")
    cluster.run("root", "scontrol", "requeuehold", job_id)
    cluster.wait(lambda: find(slurm.observe(), job_id).state is JobState.PENDING)
    job = find(slurm.observe(), job_id)
    assert (job.restarts, job.priority, job.site_factor) == (1, 0, None)
    assert {name for name, _ in job.tres} == {"cpu", "mem", "gres/gpu"}


def test_held_and_suspended_jobs(cluster: MiniCluster, slurm: CliSlurm) -> None:
    held = cluster.sbatch("alice", "--hold")
    running = cluster.sbatch("alice", "--gres=gpu:1")
    cluster.wait(lambda: cluster.state(running) == "RUNNING")
    cluster.run("root", "scontrol", "suspend", running)
    cluster.wait(lambda: cluster.state(running) == "SUSPENDED")
    seen = slurm.observe()
    assert (find(seen, held).priority, find(seen, held).reason) == (0, "JobHeldUser")
    assert find(seen, running).state.holds_resources
    assert dict(find(seen, running).tres)["gres/gpu"] == 1


def test_a_drained_node_is_not_schedulable(cluster: MiniCluster, slurm: CliSlurm) -> None:
    name = next(node.name for node in slurm.observe().nodes if "gres/gpu" in dict(node.tres))
    cluster.run("root", "scontrol", "update", f"nodename={name}", "state=drain", "reason=a|b\nc")
    try:
        node = next(node for node in slurm.observe().nodes if node.name == name)
        assert (node.state, node.is_schedulable) == ("idle+drain", False)
    finally:
        cluster.run("root", "scontrol", "update", f"nodename={name}", "state=resume")


def test_jobs_that_are_gone_do_not_stop_the_others(cluster: MiniCluster, slurm: CliSlurm) -> None:
    job_id = JobId(cluster.sbatch("alice", "--hold"))
    changes = [(JobId("999999"), 1), (job_id, 2), (JobId("999998"), 3)]
    statuses = [found.status for found in slurm.set_site_factors(changes)]
    assert statuses == [UpdateStatus.GONE, UpdateStatus.OK, UpdateStatus.GONE]


def test_an_ordinary_user_may_read_but_not_write(cluster: MiniCluster) -> None:
    job_id = JobId(cluster.sbatch("alice", "--hold"))
    slurm = connect(cluster, "alice")
    assert find(slurm.observe(), job_id).user == "alice"
    with pytest.raises(SlurmAuthError):
        slurm.set_site_factors([(job_id, 5)])


def test_a_command_without_its_configuration_is_unavailable(cluster: MiniCluster) -> None:
    runner = ProcessRunner(prefix=(*cluster.argv("fairgpu"), "env", "SLURM_CONF=/nonexistent", "timeout", "1"))
    with pytest.raises(SlurmUnavailable):
        CliSlurm(CliSettings(runner=runner, timeout_s=0.5)).fetch_config()


def test_the_cluster_says_who_it_is(slurm: CliSlurm) -> None:
    seen = slurm.observe()
    assert seen.cluster == slurm.fetch_config()["ClusterName"]
    assert seen.slurm_version == slurm.version()
    assert slurm.is_primary()
    assert "Main schedule statistics (microseconds)/Last cycle" in slurm.fetch_diag()
