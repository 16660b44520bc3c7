"""A QOS has one account on the whole cluster: what runs outside the managed partitions uses up the same quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.quota.names import Band
from policies.records import JobState
from tests.policies.quota.band_cases import (
    QUOTAS,
    elsewhere,
    lists,
    moves,
    plan_of,
    reason_of,
    running,
    starts,
    texts,
    victim,
    waiting,
)
from tests.policies.quota.test_band_explanation import bands

if TYPE_CHECKING:
    from policies.records import JobRecord

FULL = [running("1"), running("2"), elsewhere("3", gpus=2)]  # 4 of a's 4: 2 here, 2 in another partition


def test_a_quota_that_is_used_elsewhere_is_full_so_jobs_borrow() -> None:
    plan = plan_of([*FULL, waiting("10", reason="QOSGrpGRES"), waiting("11", reason="QOSGrpGRES")])
    assert moves(plan) == {"10": "a_borrow", "11": "a_opp"}
    assert "4 of 4 gres/gpu taken" in reason_of(plan, "10")


def test_it_is_no_claim_on_others() -> None:
    full = [running(str(n), "b", "_opp") for n in range(20, 26)]
    (a, _) = plan_of([*FULL, *full, waiting("10")]).standings
    assert a.bands is not None
    assert (a.bands.claim, dict(a.bands.guaranteed)["gres/gpu"]) == ((), 4)


def test_explain_agrees_with_slurm() -> None:
    found = bands([*FULL, waiting("10", reason="QOSGrpGRES")], "10")
    assert (found.wanted, "4 of 4 gres/gpu taken" in found.reason) == (Band.BORROW, True)


def test_a_borrow_cap_that_is_used_elsewhere_is_full_too() -> None:
    jobs = [*(running(str(n)) for n in range(1, 5)), elsewhere("5", band="_borrow"), waiting("10")]
    assert moves(plan_of(jobs)) == {"10": "a_opp"}


def test_use_elsewhere_counts_against_the_nominal_quota() -> None:
    plan = plan_of([*FULL, running("4", band="_borrow")])
    (a, b) = [standing.bands for standing in plan.standings]
    assert a is not None
    assert b is not None
    assert (dict(a.over), a.outside, dict(a.lent), dict(b.lent)) == ({"gres/gpu": 1}, (), {}, {"gres/gpu": 1})
    assert "a_borrow" in lists(plan)["b"]


def test_a_victim_is_not_started_beyond_a_quota_that_is_used_elsewhere() -> None:
    assert starts(plan_of([*FULL, victim("10")])) == []


def test_a_completing_job_elsewhere_is_not_charged_any_more() -> None:
    done = elsewhere("3", gpus=2, state=JobState.COMPLETING)
    plan = plan_of([*FULL[:2], done, waiting("10")])
    assert (moves(plan), texts(plan, "charged_elsewhere")) == ({}, [])


def test_a_stranger_in_our_qos_is_charged_to_its_agent() -> None:
    stranger = running("3", gpus=2, account="nobody")
    assert moves(plan_of([*FULL[:2], stranger, waiting("10")])) == {"10": "a_borrow"}


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([elsewhere("3", gpus=2)], "2 GPU(s) of its bands are used outside the managed partitions"),
        ([elsewhere("3", tres=(("cpu", 4),))], "cpu=4 of its bands"),
        ([elsewhere(str(n)) for n in (11, 9, 10, 8, 12)], "(jobs 8, 9, 10 and 2 more)"),
    ],
    ids=["GPUs", "CPUs only", "many jobs"],
)
def test_a_finding_says_how_much_and_which_jobs(jobs: list[JobRecord], words: str) -> None:
    (text,) = texts(plan_of(jobs, QUOTAS), "charged_elsewhere")
    assert text.startswith("agent a: ")
    assert words in text
