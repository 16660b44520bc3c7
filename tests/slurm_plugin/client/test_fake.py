from __future__ import annotations

import pytest

from policies.records import AccountName, JobId, JobRecord, JobState, NodeName, NodeRecord, PartitionName
from slurm_plugin.client import FakeSlurm, UpdateStatus
from slurm_plugin.errors import SlurmAuthError, SlurmUnavailable

ONE = JobId("1")


def job(job_id: str = "1", n_tasks: int = 1) -> JobRecord:
    return JobRecord(
        job_id=JobId(job_id),
        n_tasks=n_tasks,
        user="alice",
        uid=2001,
        account=AccountName("rec"),
        partitions=(PartitionName("main"),),
        state=JobState.PENDING,
        tres=(("cpu", 1),),
        priority=100,
        submit_s=0,
        eligible_s=0,
    )


@pytest.fixture
def fake() -> FakeSlurm:
    slurm = FakeSlurm(now_s=100.0)
    slurm.add_job(job())
    return slurm


def shown_factor(fake: FakeSlurm, job_id: JobId = ONE) -> int | None:
    return next(job.site_factor for job in fake.observe().jobs if job.job_id == job_id)


def test_a_written_factor_is_seen(fake: FakeSlurm) -> None:
    assert shown_factor(fake) == 0
    fake.set_site_factors([(ONE, 7)])
    assert shown_factor(fake) == 7
    assert fake.written == ((ONE, 7),)


def test_a_lost_update_is_answered_with_ok_and_never_seen(fake: FakeSlurm) -> None:
    fake.lose_updates(1)
    assert fake.set_site_factors([(ONE, 7)])[0].status is UpdateStatus.OK
    assert shown_factor(fake) == 0
    fake.set_site_factors([(ONE, 7)])
    assert shown_factor(fake) == 7


def test_a_late_update_is_seen_one_observation_later(fake: FakeSlurm) -> None:
    fake.delay_updates(1)
    fake.set_site_factors([(ONE, 7)])
    assert shown_factor(fake) == 0
    assert shown_factor(fake) == 7


def test_a_late_update_of_a_job_that_ended_is_nothing(fake: FakeSlurm) -> None:
    fake.delay_updates(1)
    fake.set_site_factors([(ONE, 7)])
    fake.finish_job(ONE)
    fake.observe()
    assert fake.observe().jobs == ()


def test_a_rejected_update_has_slurms_words(fake: FakeSlurm) -> None:
    fake.reject_updates(ONE, "Job is special")
    (found,) = fake.set_site_factors([(ONE, 7)])
    assert (found.status, found.text) == (UpdateStatus.REJECTED, "Job is special")
    assert shown_factor(fake) == 0


def test_a_caller_who_is_no_operator_gets_an_error(fake: FakeSlurm) -> None:
    fake.deny_updates()
    with pytest.raises(SlurmAuthError):
        fake.set_site_factors([(ONE, 7)])
    fake.deny_updates(is_denied=False)
    assert fake.set_site_factors([(ONE, 7)])[0].status is UpdateStatus.OK


def test_a_controller_that_is_away_comes_back(fake: FakeSlurm) -> None:
    fake.be_unavailable(2)
    for _ in range(2):
        with pytest.raises(SlurmUnavailable):
            fake.observe()
    assert len(fake.observe().jobs) == 1


def test_running_and_held_jobs_keep_a_factor_that_is_not_shown(fake: FakeSlurm) -> None:
    fake.set_site_factors([(ONE, 7)])
    fake.hold_job(ONE)
    assert shown_factor(fake) is None
    fake.release_job(ONE)
    fake.start_job(ONE, nodes="node01")
    assert shown_factor(fake) is None
    assert fake.job(ONE).site_factor == 7


def test_a_requeued_job_waits_before_it_is_eligible(fake: FakeSlurm) -> None:
    fake.set_site_factors([(ONE, 7)])
    fake.start_job(ONE)
    fake.requeue_job(ONE)
    assert shown_factor(fake) is None
    fake.advance(121)
    assert shown_factor(fake) == 7
    assert fake.job(ONE).restarts == 1


def test_a_suspended_job_holds_its_resources(fake: FakeSlurm) -> None:
    fake.start_job(ONE)
    fake.suspend_job(ONE)
    assert fake.job(ONE).state.holds_resources


def test_a_started_task_leaves_its_array(fake: FakeSlurm) -> None:
    fake.add_job(job("5", n_tasks=2))
    assert fake.start_task(JobId("5"), 0) == "5_0"
    assert [(job.job_id, job.n_tasks) for job in fake.observe().jobs] == [("1", 1), ("5", 1), ("5_0", 1)]
    fake.start_task(JobId("5"), 1)
    assert [job.job_id for job in fake.observe().jobs] == ["1", "5_0", "5_1"]


def test_a_node_changes_its_state(fake: FakeSlurm) -> None:
    name = NodeName("n1")
    fake.add_node(NodeRecord(name=name, partitions=(), state="idle", is_schedulable=True, tres=(("cpu", 8),)))
    fake.set_node_state(name, "idle+drain")
    assert not fake.observe().nodes[0].is_schedulable


def test_the_test_chooses_configuration_statistics_and_who_acts(fake: FakeSlurm) -> None:
    fake.config["PriorityType"] = "priority/basic"
    fake.diag["x"] = "1"
    fake.is_acting = False
    assert fake.fetch_config()["PriorityType"] == "priority/basic"
    assert fake.fetch_diag() == {"x": "1"}
    assert not fake.is_primary()


@pytest.mark.parametrize(("qos", "want"), [("fg_c_rec_borrow", True), ("fg_c_rec_opp", True), ("fg_c_rec", False)])
def test_only_the_move_onto_borrowed_quota_makes_a_job_requeueable(fake: FakeSlurm, qos: str, *, want: bool) -> None:
    fake.set_requeueable(ONE, is_requeueable=False)  # its user, after we looked
    fake.set_job_qos([(ONE, qos)])
    assert (fake.job(ONE).qos, fake.job(ONE).is_requeueable) == (qos, want)
