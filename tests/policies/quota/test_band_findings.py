"""What an operator should see of jobs that die when they are taken back, and of lists that nobody can steer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.quota.band_report import MAX_FINDINGS
from policies.quota.names import Band, is_borrowed_qos, may_be_preempted_by
from policies.records import JobState
from tests.policies.quota.band_cases import QUOTAS, elsewhere, plan_of, running, texts
from tests.strategies import make_quota, make_running

if TYPE_CHECKING:
    from policies.records import JobRecord


@pytest.mark.parametrize("band", ["_borrow", "_opp"])
def test_a_running_job_that_no_requeue_saves_is_named_with_its_agent_and_the_next_step(band: str) -> None:
    jobs = [running("1", band=band, is_batch=False, user="alice"), running("2", band=band, is_requeueable=False)]
    srun, batch = texts(plan_of(jobs), "would_die")
    assert srun.startswith(f"1: runs in fg_c_a{band}, on borrowed quota of agent a")
    assert "ask alice" in srun
    assert "scontrol update jobid=2 requeue=1" in batch


@pytest.mark.parametrize(
    "job",
    [
        running("1", band="_opp"),
        running("1", is_batch=False),
        running("1", band="_opp", is_batch=False, state=JobState.COMPLETING),
        make_running("1", "a", qos="normal", is_batch=False),
    ],
    ids=["may be requeued", "guaranteed", "ends", "no QOS of ours"],
)
def test_other_jobs_are_not(job: JobRecord) -> None:
    assert texts(plan_of([job]), "would_die") == []


def test_a_job_outside_the_managed_partitions_is_named_too() -> None:
    (text,) = texts(plan_of([elsewhere("3", band="_opp", is_batch=False)]), "would_die")
    assert "agent a" in text


def test_many_such_jobs_are_counted() -> None:
    found = texts(
        plan_of([running(str(n), band="_opp", is_batch=False) for n in range(1, MAX_FINDINGS + 4)]), "would_die"
    )
    assert len(found) == MAX_FINDINGS + 1
    assert found[0].startswith("1: ")
    assert found[-1].startswith("more jobs: 3 more job(s)")


def test_a_foreign_name_in_a_list_is_named_with_its_qos_and_the_fix() -> None:
    listed = ("fg_c_b_opp", "fg_c_gone_borrow", "scav")
    qos = [replace(one, preempt=listed) for one in make_quota("a", 4)] + list(QUOTAS[3:])
    found = texts(plan_of([], qos), "foreign_in_list")
    assert [text.partition(":")[0] for text in found] == ["fg_c_a", "fg_c_a_borrow"]
    assert "names scav, which" in found[0]
    assert "names fg_c_gone_borrow, scav, which" in found[1]
    assert all("agent a" in text and "'fairgpu apply'" in text for text in found)


def test_lists_of_our_own_names_are_fine_even_of_a_retired_agent() -> None:
    assert (
        texts(
            plan_of([], (*make_quota("a", 4, preempt=("fg_c_b_opp", "fg_c_gone_opp")), *QUOTAS[3:])), "foreign_in_list"
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "guaranteed", "borrow"),
    [
        ("fg_c_a_opp", True, True),
        ("fg_c_a_borrow", True, False),
        ("fg_c_a", False, False),
        ("fg_other_a_opp", False, False),
        ("fg_c__opp", False, False),
        ("fg_c_opp", False, False),
        ("fg_c_A_opp", False, False),
        ("fg_c_a b_opp", False, False),
        ("fg_c_a_opp\n", False, False),
        ("a_opp", False, False),
        ("scav", False, False),
        ("", False, False),
    ],
)
def test_only_lower_names_of_ours_may_be_listed(name: str, *, guaranteed: bool, borrow: bool) -> None:
    assert may_be_preempted_by("C", Band.GUARANTEED, name) is guaranteed
    assert may_be_preempted_by("C", Band.BORROW, name) is borrow
    assert not may_be_preempted_by("C", Band.OPPORTUNISTIC, name)


@pytest.mark.parametrize(
    ("name", "want"), [("fg_c_a_opp", True), ("fg_c_a_borrow", True), ("fg_c_a", False), ("a_opp", False)]
)
def test_a_borrowed_band_is_known_by_its_name(name: str, *, want: bool) -> None:
    assert is_borrowed_qos(name) is want
