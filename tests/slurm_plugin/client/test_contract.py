"""What every Slurm client promises, on recordings of four releases and on the fake that ships."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.records import JobId, JobState, NodeName, PartitionName, QosRecord
from slurm_plugin.client import CliSettings, CliSlurm, FakeSlurm, UpdateStatus
from tests.slurm_plugin.client.recordings import RELEASES, RecordedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.records import JobRecord, NodeRecord, Observation
    from slurm_plugin.client import SlurmClient

NOW_S = 1_796_043_811.0
"""2026-11-30T13:03:31Z, when the recordings were taken."""


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    """Recorded times are ISO, in the cluster's zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture(params=[(kind, release) for kind in ("cli", "fake") for release in RELEASES], ids="-".join)
def client(request: pytest.FixtureRequest) -> SlurmClient:
    kind, release = request.param
    cli = CliSlurm(CliSettings(runner=RecordedCluster(release=release), now=lambda: NOW_S))
    return cli if kind == "cli" else FakeSlurm.from_observation(replace(cli.observe(), qos=tuple(cli.fetch_qos()[0])))


@pytest.fixture
def seen(client: SlurmClient) -> Observation:
    return client.observe()


def by_name(seen: Observation, name: str) -> JobRecord:
    return next(job for job in seen.jobs if job.name == name)


def node(seen: Observation, name: str) -> NodeRecord:
    return next(node for node in seen.nodes if node.name == name)


def test_the_cluster_and_its_release_are_named(seen: Observation) -> None:
    assert seen.cluster == "fg"
    assert seen.slurm_version in RELEASES
    assert seen.at_s == NOW_S


def test_nothing_in_the_recordings_is_unknown(seen: Observation) -> None:
    assert seen.problems == ()


def test_reading_twice_gives_equal_observations(client: SlurmClient) -> None:
    assert client.observe() == client.observe()


def test_jobs_are_sorted_by_number(seen: Observation) -> None:
    ids = [int(job.job_id.replace("+", "_").partition("_")[0]) for job in seen.jobs]
    assert ids == sorted(ids)


def test_a_typed_request_names_its_type(seen: Observation) -> None:
    job = by_name(seen, "typed")
    assert job.tres == (("cpu", 4), ("gres/gpu", 2), ("gres/gpu:a100", 2), ("mem", 16384))
    assert job.requested_types == ("gres/gpu:a100",)


def test_an_untyped_pending_request_has_no_type(seen: Observation) -> None:
    assert by_name(seen, "pref").tres == (("cpu", 1), ("gres/gpu", 2), ("mem", 1000))


def test_a_requeued_job_forgets_the_type_of_its_earlier_run(seen: Observation) -> None:
    job = by_name(seen, "nodefail")
    assert (job.state, job.restarts) == (JobState.PENDING, 1)
    assert job.tres == (("cpu", 1), ("gres/gpu", 1), ("mem", 1000))


def test_gpus_of_the_whole_job_are_not_multiplied(seen: Observation) -> None:
    job = by_name(seen, "overquota")
    assert (dict(job.tres)["gres/gpu"], job.n_nodes) == (6, 2)
    assert job.requested_types == ("gres/gpu:a100",)


@pytest.mark.parametrize(("name", "gpus"), [("gpus", 2), ("dep", 2), ("reclaim", 4), ("held", 1), ("cpuonly", 0)])
def test_gpus_are_counted_in_every_spelling(seen: Observation, name: str, gpus: int) -> None:
    assert dict(by_name(seen, name).tres).get("gres/gpu", 0) == gpus


def test_a_running_job_shows_what_it_holds_with_its_type(seen: Observation) -> None:
    assert ("gres/gpu:a100", 2) in by_name(seen, "gpus").tres
    assert by_name(seen, "gpus").requested_types == ()


def test_an_array_is_one_record_for_its_waiting_tasks(seen: Observation) -> None:
    meta = next(job for job in seen.jobs if job.name == "arr" and not job.array_task_id)
    assert meta.n_tasks == 5
    assert meta.job_id == meta.array_job_id
    assert dict(meta.tres)["gres/gpu"] == 1


def test_a_started_array_task_has_its_own_id(seen: Observation) -> None:
    task = next(job for job in seen.jobs if job.name == "arr" and job.array_task_id)
    assert task.job_id == f"{task.array_job_id}_1"
    assert task.state is JobState.RUNNING


def test_het_components_have_ids_and_requests_of_their_own(seen: Observation) -> None:
    first, second = (job for job in seen.jobs if job.het_job_id)
    assert (first.job_id, second.job_id) == (f"{first.het_job_id}+0", f"{first.het_job_id}+1")
    assert dict(first.tres)["gres/gpu"] == 1
    assert second.requested_types == ("gres/gpu:a100",)


def test_a_held_job_has_priority_zero_and_shows_no_site_factor(seen: Observation) -> None:
    job = by_name(seen, "held")
    assert (job.priority, job.site_factor, job.reason) == (0, None, "JobHeldUser")


def test_a_site_factor_may_be_negative(seen: Observation) -> None:
    assert by_name(seen, "pref").site_factor == -200


def test_times_and_limits_are_seconds(seen: Observation) -> None:
    job = by_name(seen, "pref")
    assert job.time_limit_s == 129_600
    assert NOW_S - 120 < job.submit_s < NOW_S
    assert by_name(seen, "dep").start_s is None


def test_nodes_know_all_their_partitions_without_the_default_mark(seen: Observation) -> None:
    assert node(seen, "node01").partitions == (PartitionName("a100"), PartitionName("main"))


def test_drained_and_down_nodes_take_no_job(seen: Observation) -> None:
    schedulable = {node.name: node.is_schedulable for node in seen.nodes}
    assert schedulable == {
        NodeName("node01"): True,
        NodeName("node02"): True,
        NodeName("node03"): False,
        NodeName("node04"): False,
    }


def test_a_node_offers_its_configured_tres(seen: Observation) -> None:
    want = (("cpu", 16), ("gres/gpu", 4), ("gres/gpu:h100", 4), ("mem", 64000))
    assert node(seen, "node04").tres == want


def test_an_update_tells_what_became_of_each_job(client: SlurmClient, seen: Observation) -> None:
    live = by_name(seen, "pref").job_id
    outcomes = client.set_site_factors([(live, 7), (JobId("99999"), 7), (live, 8)])
    assert [(found.job_id, found.status) for found in outcomes] == [
        (live, UpdateStatus.OK),
        (JobId("99999"), UpdateStatus.GONE),
        (live, UpdateStatus.OK),
    ]


def test_a_move_to_another_qos_tells_what_became_of_each_job(client: SlurmClient, seen: Observation) -> None:
    waits = by_name(seen, "pref").job_id
    other = by_name(seen, "dep").job_id
    runs = next(job.job_id for job in seen.jobs if job.state is JobState.RUNNING and not job.array_job_id)
    outcomes = client.set_job_qos([(waits, "borrow"), (JobId("99999"), "borrow"), (runs, "borrow"), (other, "nope")])
    assert [(found.job_id, found.status) for found in outcomes] == [
        (waits, UpdateStatus.OK),
        (JobId("99999"), UpdateStatus.GONE),
        (runs, UpdateStatus.GONE),
        (other, UpdateStatus.REJECTED),
    ]


def test_a_move_onto_borrowed_quota_tells_what_became_of_each_job(client: SlurmClient, seen: Observation) -> None:
    waits = by_name(seen, "pref").job_id
    runs = next(job.job_id for job in seen.jobs if job.state is JobState.RUNNING and not job.array_job_id)
    qos = "fg_fg_rec_borrow"
    if isinstance(client, FakeSlurm):
        client.set_qos(QosRecord(name=qos))
    outcomes = client.set_job_qos([(waits, qos), (JobId("99999"), qos), (runs, qos)])
    assert [found.status for found in outcomes] == [UpdateStatus.OK, UpdateStatus.GONE, UpdateStatus.GONE]


def test_a_delay_is_lifted_for_jobs_that_are_there(client: SlurmClient, seen: Observation) -> None:
    waits = by_name(seen, "pref").job_id
    outcomes = client.start_now([waits, JobId("99999")])
    assert [found.status for found in outcomes] == [UpdateStatus.OK, UpdateStatus.GONE]


def test_qoses_have_limits_rank_and_preempt_list(client: SlurmClient) -> None:
    records, problems = client.fetch_qos()
    by = {record.name: record for record in records}
    assert list(by) == ["borrow", "borrow2", "normal", "rec", "risk", "vision"]
    assert (by["rec"].priority, by["rec"].grp_tres) == (100, (("gres/gpu", 8),))
    assert (by["rec"].preempt, by["rec"].preempt_mode) == (("borrow", "borrow2"), "off")
    assert (by["borrow"].priority, by["borrow"].grp_tres, by["borrow"].preempt_mode) == (10, (), "requeue")
    assert problems == ()


def test_no_changes_need_no_answer(client: SlurmClient) -> None:
    assert list(client.set_site_factors([])) == list(client.set_job_qos([])) == list(client.start_now([])) == []


def test_configuration_is_readable_by_key(client: SlurmClient) -> None:
    assert client.fetch_config()["PriorityType"] == "priority/multifactor"
    assert client.version() in RELEASES
