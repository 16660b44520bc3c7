"""``fairgpu explain`` says which band, why, who may take it back, and whom it takes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from policies.explanation import JobExplanation, explain_job
from policies.plan import BandMemory
from policies.quota.names import Band
from policies.records import JobId, JobState
from tests.policies.quota.band_cases import QUOTAS, SITE, plan_of, running, victim, waiting
from tests.strategies import NOW, make_job, make_observation, make_quota, make_running, make_site

if TYPE_CHECKING:
    from policies.quota.band_explanation import BandExplanation
    from policies.records import JobRecord

FULL = [running(str(n)) for n in range(1, 5)]


def told(jobs: list[JobRecord], job_id: str, qos: Any = QUOTAS, **changes: Any) -> JobExplanation:
    observation = make_observation(jobs, qos=tuple(qos))
    memory = changes.get("memory", ())
    return explain_job(observation, changes.get("site", SITE), (), job_id, now=NOW, band_memory=memory)


def bands(jobs: list[JobRecord], job_id: str, qos: Any = QUOTAS, **changes: Any) -> BandExplanation:
    found = told(jobs, job_id, qos, **changes).bands
    assert found is not None
    return found


def test_pending_job_says_where_it_should_wait_and_why() -> None:
    found = bands([*FULL, waiting("10")], "10")
    assert (found.band, found.wanted) == (Band.GUARANTEED, Band.BORROW)
    assert found.reason.startswith("the guaranteed band is full for it: 4 of 4 gres/gpu taken")
    assert found.move is not None
    assert found.move.new == "fg_c_a_borrow"
    assert found.may_not_borrow == ""


def test_what_keeps_a_job_from_borrowing() -> None:
    for changes, words in (
        ({"is_batch": False}, "srun and salloc"),
        ({"is_requeueable": False}, "--no-requeue"),
        ({"het_job_id": "10"}, "het job"),
    ):
        assert words in bands([*FULL, waiting("10", **changes)], "10").may_not_borrow


def test_reclaims_are_listed_and_the_bar_is_named() -> None:
    memory = (BandMemory(job_id=JobId("10"), restarts=2, reclaimed_s=(NOW - 9, NOW - 5)),)
    found = bands([*FULL, victim("10", restarts=3)], "10", memory=memory)
    assert found.reclaimed_s == (NOW - 9, NOW - 5, NOW)
    assert "taken back too often" in found.may_not_borrow


def test_victim_that_starts_at_once_says_so() -> None:
    found = bands([victim("10")], "10")
    assert found.start_now is not None
    assert found.wanted is Band.GUARANTEED


def test_former_victim_that_waits_while_nothing_is_idle_does_not_hear_that_something_is() -> None:
    full = [*FULL, *(running(str(n), "b") for n in range(5, 9))]
    for band, words in (("_borrow", "within the borrow cap"), ("_opp", "beyond the borrow cap")):
        found = bands([*full, waiting("10", band=band, restarts=1)], "10")
        assert found.wanted is found.band
        assert found.reason.endswith(f"it waits on {words}, nothing that it could borrow is idle now")
    assert bands([*FULL, waiting("10", band="_borrow")], "10").reason.endswith("on resources that are idle")


def test_held_job_is_left_alone() -> None:
    found = bands([waiting("10", band="_opp", priority=0)], "10")
    assert (found.band, found.wanted, found.move) == (Band.OPPORTUNISTIC, None, None)
    assert found.reason.startswith("it could not start now")


def test_running_job_says_who_may_take_it_back() -> None:
    loans = [running(str(n), band="_opp") for n in range(1, 6)]
    assert "of other agents, since its agent is above" in bands(loans, "1").reason
    assert bands(loans[:2], "1").reason.endswith("guaranteed jobs of its own agent may take it back")
    assert bands(FULL, "1").reason == "nobody may take it back"


def test_claimant_names_those_it_takes_from() -> None:
    # b's loans leave a's list in this very cycle, so a takes its own
    qos = (*make_quota("a", 4, preempt=("fg_c_a_borrow", "fg_c_b_borrow")), *QUOTAS[3:])
    jobs = [
        *(running(str(n), "b", "_borrow") for n in range(1, 4)),
        *(running(str(n), band="_opp") for n in range(4, 9)),
    ]
    assert bands([*jobs, waiting("10")], "10", qos).takes_back == ("4",)
    assert bands([*jobs, waiting("10", gpus=4)], "10").takes_back == ("4", "5", "6", "7")


def test_jobs_that_are_ending_for_a_claim_are_not_predicted_again() -> None:
    loans = [running(str(n), band="_opp") for n in range(1, 9)]
    ending = [replace(job, state=JobState.COMPLETING) for job in loans[:2]]
    one = bands([*ending, *loans[2:], waiting("10")], "10")
    assert (one.takes_back, len(one.ending)) == ((), 2)
    three = bands([*ending, *loans[2:], waiting("10", gpus=3)], "10")
    assert (three.takes_back, three.ending) == (("3",), ("1", "2"))
    assert bands([*loans, waiting("10")], "10").ending == ()


def test_a_job_that_ends_without_being_on_loan_does_not_end_for_a_claim() -> None:
    loans = [running(str(n), band="_opp") for n in range(1, 8)]
    other = replace(running("8", "b"), state=JobState.COMPLETING)
    found = bands([*loans, other, waiting("10")], "10")
    assert found.ending == ()


def test_claimant_knows_how_many_claims_come_before() -> None:
    jobs = [*(running(str(n), band="_opp") for n in range(1, 9)), waiting("10"), waiting("11"), waiting("12", "b")]
    assert [bands(jobs, job_id).n_claims_before for job_id in ("1", "10", "11", "12")] == [0, 1, 2, 0]


def test_claim_that_nobody_can_satisfy_names_nobody() -> None:
    jobs = [*(running(str(n), "b", "") for n in range(1, 9)), waiting("10")]
    assert bands(jobs, "10").takes_back == ()


def test_foreign_job_belongs_to_no_agent() -> None:
    found = told([make_job("10", "a", qos="premium")], "10")
    assert (found.submission.agent, found.bands, found.place) == (None, None, None)
    assert found.submission.reason == "its QOS premium is not managed here: foreign use"


def test_without_bands_there_is_nothing_to_tell() -> None:
    assert told([make_running("1", "a")], "1", site=make_site({"a": 1})).bands is None
    assert told([make_job("10", "a", qos="normal")], "10", ()).bands is None


def test_job_larger_than_its_quota_hears_so_and_what_can_take_it() -> None:
    for reason in ("QOSGrpGRES", "Priority", "None"):
        found = told([waiting("10", gpus=5, reason=reason)], "10")
        assert found.waits_because == (
            "asks for more than its agent's whole quota (5 gres/gpu of 4): only the opportunistic band can take it"
        )
        assert "moved there when what it asks for is idle" in found.next_step
        assert found.bands is not None
        assert found.bands.reason.startswith("it asks for more than the whole guaranteed band: 5 gres/gpu of 4; ")


def test_job_larger_than_its_quota_and_than_every_other_band_never_starts() -> None:
    qos = (*make_quota("a", 4, opp=False), *QUOTAS[3:])
    found = told([waiting("10", gpus=5, reason="QOSGrpGRES")], "10", qos)
    assert found.waits_because.endswith("no other band can take it")
    assert "never starts as it is" in found.next_step


def test_held_job_larger_than_its_quota_still_hears_that_it_is_held() -> None:
    found = told([waiting("10", gpus=5, reason="JobHeldUser")], "10")
    assert (found.waits_because, found.next_step) == (
        "is held by its user (scontrol release lets it go)",
        "scontrol release JOBID",
    )


def test_limit_that_slurm_saw_before_room_came_free_is_told_as_slurms_last_word() -> None:
    found = told([*FULL[:3], waiting("10", reason="QOSGrpGRES")], "10")
    assert found.waits_because == (
        "Slurm last said that its agent's quota was in use (QOSGrpGRES); by FairGPU's count there is room in it now"
    )
    assert found.next_step.startswith("none: Slurm looks at it again")
    lent = told([*FULL, waiting("10", band="_borrow", reason="QOSGrpGRES")], "10")
    assert lent.waits_because.startswith("Slurm last said that what its agent may borrow was in use")
    full = told([*FULL, waiting("10", reason="QOSGrpGRES")], "10")
    assert full.waits_because == "its agent's quota is in use (QOSGrpGRES)"


def test_claim_whose_reason_is_of_slurms_last_look_counts_as_startable() -> None:
    others = [running(str(n), "b", "_opp") for n in range(1, 9)]
    jobs = [*others, waiting("10", reason="QOSGrpGRES"), waiting("11", reason="AssocGrpGRES"), waiting("12")]
    (a, _) = plan_of(jobs).standings
    assert a.bands is not None
    assert (dict(a.bands.claim)["gres/gpu"], a.n_startable) == (2, 2)
    alone = plan_of([*others, waiting("10", reason="QOSGrpGRES")]).standings[0]
    assert (alone.n_startable, alone.oldest_wait_s) == (1, 100.0)
    full = plan_of([*FULL, waiting("10", reason="QOSGrpGRES")]).standings[0]
    assert full.n_startable == 0
