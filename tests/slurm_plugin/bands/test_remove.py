"""The way back: no job stranded, nothing left, whatever kills us on the way."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from policies.records import AccountName, JobId, JobRecord, JobState, PartitionName, QosRecord
from slurm_plugin.bands.apply import Hands
from slurm_plugin.bands.journal import FILE_NAME, open_journal
from slurm_plugin.bands.remove import Removal, RemovalReport, remove_bands, retire
from slurm_plugin.client import FakeSlurm
from tests.slurm_plugin.bands.conftest import apply_once, observation, policy
from tests.slurm_plugin.bands.fake_sacctmgr import FakeSacctmgr, Killed, shop

NAMES = frozenset(f"fg_shop_{agent}{band}" for agent in ("rec", "risk") for band in ("", "_borrow", "_opp"))


def job(job_id: str, qos: str, state: JobState = JobState.PENDING, **changes: Any) -> JobRecord:
    record = JobRecord(
        job_id=JobId(job_id),
        user="alice",
        uid=1000,
        account=AccountName("risk"),
        qos=qos,
        partitions=(PartitionName("gpu"),),
        state=state,
        tres=(("cpu", 1), ("gres/gpu", 1)),
        submit_s=900,
    )
    return dataclasses.replace(record, **changes)


def slurm(*jobs: JobRecord) -> FakeSlurm:
    return FakeSlurm.from_observation(observation(jobs=jobs, qos=tuple(map(_qos, ("normal", "long", "debug")))))


def _qos(name: str) -> QosRecord:
    return QosRecord(name=name)


def remove(fake: FakeSacctmgr, client: FakeSlurm, state_dir: Path, **how: Any) -> tuple[RemovalReport, list[str]]:
    said: list[str] = []
    settings: dict[str, Any] = {"recorded": lambda _job: "", "is_waiting": False, "sleep": lambda _s: None}
    removal = Removal(names=NAMES, template_qos="normal", **(settings | how))
    with open_journal(state_dir, cluster="shop") as journal:
        hands = Hands(runner=fake, journal=journal, cluster="shop", say=said.append)
        return remove_bands(removal, client, hands), said


def qos_of(client: FakeSlurm) -> dict[str, str]:
    return {one.job_id: one.qos for one in client.observe().jobs}


def test_without_jobs_slurmdbd_is_as_before_and_the_journal_is_put_aside(applied: FakeSacctmgr, tmp_path: Path) -> None:
    report, _ = remove(applied, slurm(), tmp_path)
    assert applied.image() == shop().image()
    assert set(report.deleted) == NAMES
    assert not (tmp_path / FILE_NAME).exists()
    assert len(list(tmp_path.glob("bands-removed-*.jsonl"))) == 1


def test_pending_and_held_jobs_go_to_their_former_qos(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(
        job("1", "fg_shop_risk"),
        job("2", "fg_shop_risk_borrow", priority=0, reason="JobHeldUser"),
        job("3", "fg_shop_risk_opp"),
        job("4", "fg_shop_risk", user="bob"),
        job("5", "long", user="bob"),
    )
    report, _ = remove(applied, client, tmp_path, recorded=lambda one: "normal" if one.job_id == "4" else "")
    # 1-3: no default of their own, the template; 4: recorded, although bob's default is long.
    assert qos_of(client) == {"1": "normal", "2": "normal", "3": "normal", "4": "normal", "5": "long"}
    assert set(report.deleted) == NAMES


def test_the_associations_default_comes_before_the_template(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk", user="bob"), job("2", "fg_shop_risk", user="carol"))
    remove(applied, client, tmp_path)
    assert qos_of(client) == {"1": "long", "2": "debug"}


def test_a_recorded_qos_that_may_not_be_used_any_more_is_not_forced(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk"))
    remove(applied, client, tmp_path, recorded=lambda _job: "debug")
    assert qos_of(client) == {"1": "normal"}


def test_a_qos_with_a_running_job_stays_and_is_listed(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk", JobState.RUNNING), job("2", "fg_shop_rec_opp", JobState.COMPLETING))
    report, _ = remove(applied, client, tmp_path)
    assert report.left == (("fg_shop_rec_opp", ("2",)), ("fg_shop_risk", ("1",)))
    assert set(report.deleted) == NAMES - {"fg_shop_risk", "fg_shop_rec_opp"}
    # Closed to new jobs all the same.
    names, default = applied.effective(("risk", "alice", ""))
    assert (names, default) == (["normal"], "")
    assert (tmp_path / FILE_NAME).exists()


def test_later_the_rest_goes_too(applied: FakeSacctmgr, tmp_path: Path) -> None:
    remove(applied, slurm(job("1", "fg_shop_risk", JobState.RUNNING)), tmp_path)
    report, _ = remove(applied, slurm(), tmp_path)
    assert report.deleted == ("fg_shop_risk",)
    assert applied.image() == shop().image()


def test_it_waits_for_running_jobs_and_says_so(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk", JobState.RUNNING))
    waits: list[float] = []

    def end_after_two(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            client.finish_job(JobId("1"))

    report, said = remove(applied, client, tmp_path, is_waiting=True, sleep=end_after_two)
    assert report.left == ()
    assert said.count("waiting for 1 jobs in fg_shop_risk") == 1
    assert applied.image() == shop().image()


def test_a_victim_that_comes_back_to_the_queue_is_moved(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk_borrow", JobState.RUNNING))

    def preempt(_seconds: float) -> None:
        client.requeue_job(JobId("1"))

    report, _ = remove(applied, client, tmp_path, is_waiting=True, sleep=preempt)
    assert report.moved == (("1", "normal"),)
    assert qos_of(client) == {"1": "normal"}


def test_what_the_admin_changed_meanwhile_stays(applied: FakeSacctmgr, tmp_path: Path) -> None:
    applied.associations["risk", "bob", ""].qos.append("debug")
    applied.associations["risk", "alice", ""].default = "long"
    remove(applied, slurm(), tmp_path)
    assert sorted(applied.associations["risk", "bob", ""].qos) == ["debug", "long", "normal"]
    assert applied.associations["risk", "alice", ""].default == "long"


def test_a_former_default_that_is_gone_does_not_stop_the_removal(applied: FakeSacctmgr, tmp_path: Path) -> None:
    applied.associations["risk", "dora", "gpu"].qos.remove("long")
    applied.associations["risk", "bob", ""].qos.remove("long")
    del applied.qos["long"]
    remove(applied, slurm(), tmp_path)
    assert applied.associations["risk", "bob", ""].default == ""


def test_a_job_that_slurm_will_not_move_ends_the_wait_and_is_told(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk"), job("2", "fg_shop_rec", JobState.RUNNING))
    client.reject_updates(JobId("1"), "Invalid qos specification")
    waits: list[float] = []

    def end_the_running_one(seconds: float) -> None:
        waits.append(seconds)
        client.finish_job(JobId("2"))

    report, _ = remove(applied, client, tmp_path, is_waiting=True, sleep=end_the_running_one)
    assert len(waits) == 1
    assert report.refused == (("1", "Invalid qos specification"),)
    assert report.left == (("fg_shop_risk", ("1",)),)
    assert (tmp_path / FILE_NAME).exists()


def test_a_user_without_an_association_goes_to_the_template(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk", user="gone"))
    remove(applied, client, tmp_path)
    assert qos_of(client) == {"1": "normal"}


def _writes() -> int:
    """Writes of an uninterrupted removal; counted while pytest collects, before there is a ``tmp_path``."""
    fake = shop()
    with TemporaryDirectory() as folder:
        apply_once(policy(), fake, Path(folder))
        n_applied = len(fake.written)
        remove(fake, slurm(), Path(folder))
    return len(fake.written) - n_applied


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(_writes()))
def test_killed_at_any_step_the_removal_resumes(
    applied: FakeSacctmgr, tmp_path: Path, step: int, *, is_done: bool
) -> None:
    client = slurm(job("1", "fg_shop_risk"), job("2", "fg_shop_rec_opp", account=AccountName("rec"), user="bob"))
    at = len(applied.written) + step
    applied.die_after, applied.die_before = (at, None) if is_done else (None, at)
    with pytest.raises(Killed):
        remove(applied, client, tmp_path)
    applied.die_after = applied.die_before = None
    remove(applied, client, tmp_path)
    assert applied.image() == shop().image()
    assert qos_of(client) == {"1": "normal", "2": "normal"}


@pytest.mark.parametrize("step", range(0, 14, 3))
def test_an_apply_that_was_killed_can_be_removed(fake: FakeSacctmgr, tmp_path: Path, step: int) -> None:
    fake.die_after = step
    with pytest.raises(Killed):
        apply_once(policy(), fake, tmp_path)
    fake.die_after = None
    remove(fake, slurm(), tmp_path)
    assert fake.image() == shop().image()


def test_a_lost_journal_still_leaves_no_qos_of_ours(applied: FakeSacctmgr, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).unlink()
    remove(applied, slurm(), tmp_path)
    assert "fg_shop" not in applied.image()


def test_only_associations_that_we_changed_are_written(applied: FakeSacctmgr, tmp_path: Path) -> None:
    remove(applied, slurm(), tmp_path)
    touched = {word for argv in applied.written for word in argv if word.startswith("user=")}
    assert touched == {"user=bob", "user=carol", "user=dora", "user=erin"}


def test_what_a_running_loans_list_cannot_do_without_stays_until_it_ends(applied: FakeSacctmgr, tmp_path: Path) -> None:
    client = slurm(job("1", "fg_shop_risk_borrow", JobState.RUNNING))
    report, _ = remove(applied, client, tmp_path)
    assert report.left == (("fg_shop_rec_opp", ()), ("fg_shop_risk_borrow", (JobId("1"),)))
    assert applied.qos["fg_shop_risk_borrow"]["preempt"] == "fg_shop_rec_opp"
    client.finish_job(JobId("1"))
    report, _ = remove(applied, client, tmp_path)
    assert set(report.deleted) == {"fg_shop_rec_opp", "fg_shop_risk_borrow"}
    assert applied.image() == shop().image()


def test_another_opportunistic_qos_stands_in_for_the_last_one_of_a_list(applied: FakeSacctmgr, tmp_path: Path) -> None:
    applied.qos["fg_shop_risk_borrow"]["preempt"] = "fg_shop_rec_opp"
    removal = Removal(
        names=frozenset({"fg_shop_rec_opp"}), template_qos="normal", recorded=lambda _job: "", is_waiting=False
    )
    with open_journal(tmp_path, cluster="shop") as journal:
        hands = Hands(runner=applied, journal=journal, cluster="shop", say=lambda _line: None)
        assert retire(removal, slurm(), hands).deleted == ("fg_shop_rec_opp",)
    assert applied.qos["fg_shop_risk_borrow"]["preempt"] == "fg_shop_risk_opp"
