"""Where pending jobs wait: out of the guaranteed band only while it is full, back first, as many as could start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from policies.plan import BandMemory, SetQos
from policies.records import JobId, JobState, PartitionName
from policies.site_policy import AgentPolicy, BandPolicy, Quota, QuotaKind
from tests.policies.quota.band_cases import (
    QUOTAS,
    SITE,
    moves,
    plan_of,
    reason_of,
    running,
    starts,
    texts,
    victim,
    waiting,
)
from tests.strategies import (
    NOW,
    make_job,
    make_node,
    make_quota,
    make_running,
    make_site,
    make_tres,
    site_factors,
)

if TYPE_CHECKING:
    from policies.records import JobRecord

FULL = [running(str(n)) for n in range(1, 5)]  # a's 4 guaranteed GPUs of 8


def test_first_one_borrows_then_the_rest_is_opportunistic_up_to_what_is_idle() -> None:
    # 8 GPUs, 4 in use: of a's 6 waiting jobs one borrows (cap 1), three take what is idle, two stay
    plan = plan_of([*FULL, *(waiting(str(n)) for n in range(10, 16))])
    assert moves(plan) == {"10": "a_borrow", "11": "a_opp", "12": "a_opp", "13": "a_opp"}
    assert reason_of(plan, "10") == (
        "the guaranteed band is full for it: 4 of 4 gres/gpu taken, it asks for 1; "
        "within the borrow cap, on resources that are idle"
    )


def test_nothing_moves_while_the_guaranteed_band_has_room() -> None:
    assert moves(plan_of([*FULL[:2], waiting("10"), waiting("11")])) == {}


def test_nothing_borrows_what_a_claimant_will_take() -> None:
    # b's four jobs are ahead in their own band: no idle GPU is left for a
    jobs = [*FULL, *(waiting(str(n), "b") for n in range(20, 24)), waiting("10")]
    assert moves(plan_of(jobs)) == {}


def test_a_job_goes_back_before_others_leave() -> None:
    # a GPU of the quota came free: the borrower that still waits gets it, the next one may leave
    plan = plan_of([*FULL[:3], waiting("10", band="_borrow"), waiting("11")])
    changes = [(str(d.job_id), d.new) for d in plan.decisions if isinstance(d, SetQos)]
    assert changes == [("10", "fg_c_a"), ("11", "fg_c_a_borrow")]
    assert reason_of(plan, "10") == "its guaranteed band has room for it"


def test_a_borrower_waits_on_in_its_band_while_nothing_is_idle() -> None:
    full = [*FULL, *(running(str(n), "b") for n in range(5, 9))]
    assert moves(plan_of([*full, waiting("10", band="_borrow"), waiting("11", band="_opp")])) == {}


def test_borrowers_beyond_a_cap_that_shrank_go_home() -> None:
    full = [*FULL, *(running(str(n), "b") for n in range(5, 9))]
    jobs = [*full, waiting("10", band="_borrow"), waiting("11", band="_borrow")]
    assert moves(plan_of(jobs)) == {"11": "a"}


@pytest.mark.parametrize(
    "changes", [{"is_batch": False}, {"is_requeueable": False}, {"het_job_id": "10"}], ids=["srun", "no-requeue", "het"]
)
@pytest.mark.parametrize("reason", ["Priority", "Dependency"])
def test_what_would_die_never_borrows(changes: dict[str, Any], reason: str) -> None:
    # not even when its user put it there
    assert moves(plan_of([*FULL, waiting("10", **changes)])) == {}
    assert moves(plan_of([*FULL, waiting("10", band="_opp", reason=reason, **changes)])) == {"10": "a"}


def test_every_managed_job_starts_out_in_its_guaranteed_band() -> None:
    jobs = [
        make_job("10", "a", qos="normal"),
        make_job("11", "a", qos=""),
        make_job("12", "a", qos="normal", priority=0, reason="JobHeldUser"),
        make_job("13", "a", qos="fg_c_b"),  # tagged for a by a user of b
        make_job("14", "a", qos="premium"),
    ]
    plan = plan_of(jobs)
    assert moves(plan) == {"10": "a", "11": "a", "12": "a", "13": "a"}
    assert reason_of(plan, "12") == "each job starts out in its guaranteed band"
    assert plan.standings[0].n_pending == 4


def test_foreign_qos_is_foreign_use() -> None:
    plan = plan_of([make_running("1", "a", qos="premium", tres=make_tres(gpu=3))])
    assert plan.capacity[2] == 5
    assert plan.standings[0].allocation == (0, 0, 0)


def test_a_held_job_stays_where_it_is() -> None:
    assert moves(plan_of([*FULL, waiting("10", band="_opp", priority=0)])) == {}


def test_waiting_for_a_limit_of_ours_counts_as_waiting_for_room() -> None:
    jobs = [*FULL, waiting("10", reason="QOSGrpGRES"), waiting("11", reason="AssocGrpGRES")]
    assert moves(plan_of(jobs)) == {"10": "a_borrow"}
    elsewhere = make_job("10", "a", qos="normal", reason="QOSGrpGRES")
    assert moves(plan_of([*FULL, elsewhere])) == {"10": "a"}


def test_a_limit_on_memory_overflows_memory_bound_jobs_only() -> None:
    qos = (*make_quota("a", 4, limits=(("gres/gpu", 4), ("mem", 1500))), *QUOTAS[3:])
    jobs = [running("1"), waiting("10"), waiting("11", tres=make_tres(cpu=1, gpu=1))]
    assert moves(plan_of(jobs, qos)) == {"10": "a_borrow"}


def test_completing_jobs_hold_nodes_but_no_quota() -> None:
    jobs = [*FULL[:3], running("4", state=JobState.COMPLETING), waiting("10")]
    assert moves(plan_of(jobs)) == {}


def test_job_larger_than_a_borrow_job_may_be_is_opportunistic() -> None:
    qos = (*make_quota("a", 4, borrow=4, max_nodes=1), *QUOTAS[3:])
    nodes = [make_node("n1"), make_node("n2")]
    big = waiting("10", gpus=2, n_nodes=2)
    assert moves(plan_of([*FULL, big], qos, nodes=nodes)) == {"10": "a_opp"}


def test_job_that_would_straddle_two_bands_is_opportunistic() -> None:
    # 1 left of the quota and 1 of the cap: a job of 2 fits neither alone (facts/bands.md 22)
    assert moves(plan_of([*FULL[:3], waiting("10", gpus=2)])) == {"10": "a_opp"}


def test_unsplit_array_moves_as_a_whole_when_a_task_could_start() -> None:
    plan = plan_of([*FULL, waiting("10", n_tasks=20)])
    assert moves(plan) == {"10": "a_borrow"}


def test_moved_counts_what_waits_in_a_borrowed_band_now_not_what_is_planned() -> None:
    planned = plan_of([*FULL, waiting("10", n_tasks=20)]).standings[0].bands
    there = plan_of([waiting("10", band="_opp", n_tasks=20), waiting("11", priority=0, band="_borrow")])
    assert moves(there) == {"10": "a"}
    now = there.standings[0].bands
    assert planned is not None
    assert now is not None
    assert (planned.n_moved_out, now.n_moved_out) == (0, 21)


def test_array_with_room_for_some_tasks_stays_on_its_quota() -> None:
    assert moves(plan_of([*FULL[:2], waiting("10", n_tasks=20)])) == {}


def test_only_nodes_of_its_partitions_count_as_idle() -> None:
    nodes = [make_node("n1"), make_node("n2", partitions=("big",)), make_node("n3", up=False)]
    site = replace(SITE, partitions=(PartitionName("gpu"), PartitionName("big")))
    jobs = [*FULL, *(running(str(n), "b", nodes="n1") for n in range(5, 9)), waiting("10")]
    assert moves(plan_of(jobs, nodes=nodes, site=site)) == {}
    both = [*jobs[:-1], waiting("10", partitions=("gpu", "big"))]
    assert moves(plan_of(both, nodes=nodes, site=site)) == {"10": "a_borrow"}


def test_unknown_tres_never_fits() -> None:
    tres = (("cpu", 1), ("gres/fpga", 1), ("gres/gpu", 1))
    plan = plan_of([*FULL, running("5", "b", tres=tres), waiting("10", tres=tres)])
    assert moves(plan) == {}


# A claim: b has room, nothing is idle


def test_claim_is_counted_once_per_task_and_shown() -> None:
    jobs = [*(running(str(n), band="_opp") for n in range(1, 8)), waiting("20", "b", n_tasks=3)]
    plan = plan_of(jobs)
    assert plan.standings[1].bands is not None
    assert dict(plan.standings[1].bands.claim)["gres/gpu"] == 2


def test_what_is_free_beside_a_claim_is_kept_for_it() -> None:
    # n1 has one free GPU, n2 two: b's 4-GPU job waits for a node, a's job must not take GPUs of n2
    nodes = [make_node(name, tres=make_tres(cpu=64, mem=64_000, gpu=4)) for name in ("n1", "n2")]
    jobs = [
        running("1", gpus=3, nodes="n1"),
        running("2", gpus=1, nodes="n2"),
        running("3", band="_borrow", nodes="n2"),
    ]
    plan = plan_of([*jobs, waiting("20", "b", gpus=4), waiting("10"), waiting("11")], nodes=nodes)
    assert moves(plan) == {"10": "a_opp"}


# A requeued victim


def test_victim_with_room_goes_home_and_starts_at_once() -> None:
    plan = plan_of([*FULL[:2], victim("10")])
    assert (moves(plan), starts(plan)) == ({"10": "a"}, ["10"])


def test_victim_of_an_agent_that_is_not_below_nominal_waits_out_the_delay() -> None:
    jobs = [*FULL[:2], *(running(str(n), band="_borrow") for n in (5, 6)), victim("10")]
    plan = plan_of(jobs)
    assert (moves(plan), starts(plan)) == ({"10": "a"}, [])


def test_victim_without_room_stays_in_its_band() -> None:
    plan = plan_of([*FULL, victim("10")])
    assert (moves(plan), starts(plan)) == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [{"restarts": 0}, {"eligible_s": int(NOW) + 7200}, {"reason": "Dependency", "eligible_s": None}],
    ids=["first run", "begin time of the user", "dependency"],
)
def test_who_is_no_victim_is_not_started(changes: dict[str, Any]) -> None:
    assert starts(plan_of([victim("10", **changes)])) == []


def test_only_as_many_victims_start_as_stay_at_or_below_nominal() -> None:
    jobs = [*FULL[:2], running("5", band="_borrow"), *(victim(str(n), "a") for n in (10, 11))]
    assert starts(plan_of(jobs)) == ["10"]


def test_room_that_an_earlier_job_cannot_use_is_no_reason_to_stay_away() -> None:
    # job 10 has the first claim on the last 2 of a's quota, but no node has 2 free GPUs; 11 and 12 wait elsewhere
    nodes = [make_node(name, tres=make_tres(cpu=64, mem=64_000, gpu=2)) for name in ("n1", "n2", "n3", "n4")]
    held = [running(str(n), "b", nodes=f"n{n}") for n in range(1, 5)]
    mine = [running(str(n + 4), "a", nodes=f"n{n}") for n in (1, 2)]
    others = [running(str(n + 4), "b", "_opp", nodes=f"n{n}") for n in (3, 4)]
    first = waiting("10", gpus=2, submit_s=1)
    later = [waiting("11", band="_borrow"), waiting("12", band="_opp"), victim("13")]
    plan = plan_of([*held, *mine, *others, first, *later], nodes=nodes)
    assert moves(plan) == {"11": "a", "12": "a", "13": "a"}
    assert "an earlier job of the agent cannot use now" in reason_of(plan, "12")
    assert starts(plan) == ["13"]


# Quota reservation (facts/bands.md 11)

LARGE = waiting("10", gpus=4, submit_s=int(NOW) - 700)


def test_starving_job_gets_the_band_for_itself() -> None:
    # 3 of 4 in use, nothing idle for later jobs but the one GPU of the quota: they leave it to job 10
    blocked = [running(str(n), "b") for n in range(5, 9)]
    plan = plan_of([*FULL[:3], *blocked, LARGE, waiting("11"), waiting("12")])
    assert moves(plan) == {"11": "a_borrow", "12": "a_opp"}
    assert reason_of(plan, "12") == ("the guaranteed band is kept for job 10, which has waited 700 s for room in it")
    (text,) = texts(plan, "reservation")
    assert text.startswith(
        "10: has waited 700 s for room in the guaranteed band of a: later jobs of the agent leave it"
    )


def test_moves_that_only_keep_the_band_free_come_last() -> None:
    jobs = [*FULL[:3], *(running(str(n), "b") for n in range(5, 9)), LARGE, waiting("11"), waiting("12", site_factor=0)]
    kinds = [type(decision).__name__ for decision in plan_of(jobs).decisions]
    assert kinds[-1] == "SetQos"
    assert kinds.index("SetSiteFactor") < len(kinds) - 1


def test_later_job_beyond_the_cap_waits_on_where_it_is() -> None:
    blocked = [running(str(n), "b") for n in range(5, 10)]
    qos = (*make_quota("a", 4, borrow=0), *QUOTAS[3:])
    plan = plan_of([*FULL[:3], *blocked, LARGE, waiting("11", band="_opp")], qos)
    assert moves(plan) == {}


def test_later_jobs_that_may_not_borrow_are_left_where_they_are() -> None:
    blocked = [running(str(n), "b") for n in range(5, 9)]
    assert moves(plan_of([*FULL[:3], *blocked, LARGE, waiting("11", is_batch=False)])) == {}


def test_a_job_submitted_later_does_not_jump_the_reservation_by_nice() -> None:
    blocked = [running(str(n), "b") for n in range(5, 9)]
    plan = plan_of([*FULL[:3], *blocked, LARGE, waiting("11", nice=-100)])
    assert moves(plan) == {"11": "a_borrow"}


def test_earlier_jobs_keep_the_band() -> None:
    first = waiting("9", submit_s=int(NOW) - 900)
    assert moves(plan_of([*FULL[:3], first, LARGE])) == {"10": "a_opp"}


@pytest.mark.parametrize("waited_s", [599, 600])
def test_reservation_begins_after_the_wait_of_the_site_file(waited_s: int) -> None:
    job = waiting("10", gpus=4, submit_s=int(NOW) - waited_s)
    assert bool(texts(plan_of([*FULL[:3], job]), "reservation")) is (waited_s >= 600)


def test_later_job_in_an_opportunistic_band_that_it_may_not_use_any_more_goes_home() -> None:
    blocked = [running(str(n), "b") for n in range(5, 9)]
    memory = (BandMemory(job_id=JobId("11"), restarts=0, is_barred=True),)
    plan = plan_of([*FULL[:3], *blocked, LARGE, waiting("11", band="_opp")], memory=memory)
    assert moves(plan) == {"11": "a"}


# What can never run, and what only policy keeps idle


def test_job_beyond_every_band_can_never_run() -> None:
    qos = (*make_quota("a", 4, opp=False), *QUOTAS[3:])
    plan = plan_of([waiting("10", gpus=5)], qos)
    assert texts(plan, "exceeds_bands") == [
        "10: can never run: cpu=1,gres/gpu=5,mem=1000 is more than any band it may use admits"
    ]
    assert texts(plan_of([waiting("10", gpus=5, is_batch=False)]), "exceeds_bands")
    assert moves(plan_of([waiting("10", gpus=5)])) == {"10": "a_opp"}


def test_many_jobs_that_can_never_run_are_counted() -> None:
    qos = (*make_quota("a", 4, opp=False), *QUOTAS[3:])
    found = texts(plan_of([waiting(str(n), gpus=5) for n in range(10, 40)], qos), "exceeds_bands")
    assert len(found) == 21
    assert found[-1] == "more jobs: 10 more job(s) ask for more than any band they may use admits"


def test_idle_by_policy_says_how_many_gpus_and_why() -> None:
    plan = plan_of([*FULL, *(waiting(str(n), is_batch=False) for n in (10, 11)), waiting("12", tres=make_tres(cpu=1))])
    (text,) = texts(plan, "idle_by_policy")
    assert text.startswith(
        "gpus: 2 GPU(s) are idle while 2 job(s) wait because of caps (10: the guaranteed band is full"
    )
    assert "; 11: " in text


# Agents without bands


def test_without_quota_an_agent_keeps_its_qos_and_comes_first_where_it_fits() -> None:
    free = AgentPolicy(name="z", accounts=("z",), base_weight=1, quota=Quota(kind=QuotaKind.NONE))  # type: ignore[arg-type]  # plain text for new types
    site = make_site({"a": 1, "z": free}, bands=BandPolicy())
    jobs: list[JobRecord] = [*FULL, *(make_job(str(n), "z", qos="normal") for n in range(20, 24))]
    held = make_job("30", "z", qos="normal", priority=0)
    plan = plan_of([*jobs, held, waiting("10")], QUOTAS[:3], site=site)
    assert moves(plan) == {}
    assert plan.standings[1].bands is None
    assert texts(plan, "bands_missing") == []


def test_quota_that_slurm_does_not_show_is_reported() -> None:
    plan = plan_of([waiting("10", band="_opp")], ())
    assert moves(plan) == {}
    assert texts(plan, "bands_missing") == [
        "agents: slurmctld does not show the QOSes of a, b: they are ordered, not limited (fairgpu apply)"
    ]


def test_share_tags_count_every_band() -> None:
    held = [running("1"), running("2", band="_borrow"), running("3", band="_opp")]
    plan = plan_of([*held, waiting("10", site_factor=0)])
    (decision,) = site_factors(plan)
    assert decision.reason == "wdrf: 3 of 8 gres/gpu held or queued before it, weight 1/2"
