"""Whose loans are recalled: who leaves the Preempt lists, and in which order the others pay."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from policies.plan import SetPreemptList
from policies.quota.steering import rank_class
from policies.site_policy import BandPolicy
from tests.policies.quota.band_cases import QUOTAS, lists, plan_of, ranks, running, waiting
from tests.strategies import make_node, make_quota, make_site, make_tres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.records import JobRecord

FULL = ("fg_c_a_borrow", "fg_c_a_opp", "fg_c_b_borrow", "fg_c_b_opp")
BOTH_FULL = (*make_quota("a", 4, preempt=FULL), *make_quota("b", 4, preempt=FULL))


def test_agent_at_or_below_nominal_leaves_the_others_lists() -> None:
    # a uses 4 of 4 (all of it borrowed), b 5 of 4: only b's loans may be taken back by others (facts/bands.md 3, 6)
    a = [running(str(n), band="_borrow") for n in range(1, 5)]
    b = [running(str(n), "b") for n in range(5, 9)] + [running("9", "b", "_opp")]
    plan = plan_of([*a, *b], BOTH_FULL)
    assert lists(plan) == {
        "a": ("a_borrow", "b_borrow", "b_opp"),
        "b": ("b_borrow", "b_opp"),
        "a_borrow": ("b_opp",),
        "b_borrow": ("b_opp",),
    }
    assert {d.qos: d.reason for d in plan.decisions if isinstance(d, SetPreemptList)} == {
        "fg_c_a": "loans of agents above nominal: b; and its own",
        "fg_c_b": "loans of agents above nominal: b",
        "fg_c_a_borrow": "loans of agents above nominal: b",
        "fg_c_b_borrow": "loans of agents above nominal: b",
    }


@pytest.mark.parametrize(
    "job",
    [
        running("1", band="_opp"),
        waiting("1", band="_opp", reason="Dependency"),
        waiting("1", band="_opp"),  # moved back in this cycle, but it may start before that
        waiting("1", gpus=5),  # moved out in this cycle: more than a's quota of 4
        waiting("1", qos="fg_c_a,fg_c_a_opp"),
        waiting("1", "b", "_opp", qos="fg_c_a_opp"),
    ],
    ids=["runs", "waits there", "goes back", "goes out", "list", "of another agent"],
)
def test_own_band_stays_in_the_own_list_while_a_job_is_or_will_be_in_it(job: JobRecord) -> None:
    found = lists(plan_of([job], (*make_quota("a", 4, preempt=()), *QUOTAS[3:])))
    assert "a_opp" in found["a"]
    assert found["a_borrow"] == ("a_opp",)
    assert "b" not in found


def test_own_band_that_no_job_is_in_leaves_the_own_list() -> None:
    found = lists(plan_of([running("1"), waiting("2")], BOTH_FULL))
    assert (found["a"], found["b"]) == ((), ())


@pytest.mark.parametrize(
    ("jobs", "stand_in"),
    [
        ([running("1")], ("a_opp",)),
        ([running("1"), waiting("2", band="_opp", reason="Dependency")], ("b_opp",)),
    ],
    ids=["nobody lends", "a job waits in the first"],
)
def test_a_borrow_list_is_never_empty(jobs: list[JobRecord], stand_in: tuple[str, ...]) -> None:
    # slurmdbd 22.05 refuses to name a QOS whose own list was emptied
    qos = [replace(one, preempt=FULL) if one.name.endswith("_borrow") else one for one in BOTH_FULL]
    assert lists(plan_of(jobs, qos))["b_borrow"] == stand_in


def test_list_of_a_borrow_qos_never_becomes_empty() -> None:
    # slurmdbd 22.05 would refuse every list that names it; a band that no job is in has nothing to lose
    found = lists(plan_of([running("1"), waiting("2")], BOTH_FULL))
    assert (found["a_borrow"], found["b_borrow"]) == (("a_opp",), ("a_opp",))
    taken = lists(plan_of([running("1"), running("2", band="_opp")], BOTH_FULL))
    assert (taken["a_borrow"], taken["b_borrow"]) == (("a_opp",), ("b_opp",))


def test_equal_lists_are_neighbours() -> None:
    # c and e have loans of their own and are not above nominal; d is above
    names = "abcde"
    site = make_site(dict.fromkeys(names, 1), bands=BandPolicy())
    qos = [record for name in names for record in make_quota(name, 2)]
    jobs = [running("1", "c", "_opp"), running("2", "d", "_opp", gpus=3), running("3", "e", "_borrow")]
    changes = [d for d in plan_of(jobs, qos, site=site).decisions if isinstance(d, SetPreemptList)]
    assert len(changes) == 10
    assert [len(list(run)) for _, run in groupby(changes, key=lambda d: d.new)] == [1, 1, 3, 1, 4]


def test_lists_are_left_alone_when_they_are_right() -> None:
    b = [running(str(n), "b", "_opp") for n in range(1, 6)]
    a = [running(str(n), band="_opp") for n in range(11, 16)]
    qos = [*BOTH_FULL[:1], *BOTH_FULL[2:4], *BOTH_FULL[5:]]
    assert lists(plan_of([*a, *b], qos)) == {}


def test_names_that_are_no_band_here_stay_in_a_list() -> None:
    qos = (*make_quota("a", 4, preempt=("fg_c_gone_borrow", "scavenger", "fg_c_b_borrow")), *BOTH_FULL[3:])
    assert lists(plan_of([], qos))["a"] == ("gone_borrow", "scavenger")


def test_a_long_list_of_agents_is_cut_in_the_reason() -> None:
    names = [f"a{n}" for n in range(7)]
    site = make_site(dict.fromkeys(names, 1), bands=BandPolicy())
    qos = [record for name in names for record in make_quota(name, 0)]
    jobs = [running(str(n), name, "_opp", tres=make_tres(gpu=1)) for n, name in enumerate(names)]
    plan = plan_of(jobs, qos, site=site)
    assert plan.decisions[0].reason.endswith("a0, a1, a2, a3, a4 and 2 more")


@pytest.mark.parametrize(
    ("over", "want"),
    [
        ({}, 7),
        ({"gres/gpu": 1}, 6),  # 1/64 of the cluster and less share the last class above nominal
        ({"gres/gpu": 2}, 6),
        ({"gres/gpu": 5}, 4),
        ({"gres/gpu": 64}, 1),
        ({"gres/gpu": 65}, 0),
        ({"gres/gpu": 2, "cpu": 900}, 0),
        ({"gres/gpu:a100": 3}, 0),  # no capacity on that axis: as far above as can be
    ],
)
def test_rank_classes_are_halves_of_the_cluster(over: Mapping[str, int], want: int) -> None:
    assert rank_class(over, {"gres/gpu": 128, "cpu": 1024}) == want


def test_agent_furthest_above_is_recalled_first() -> None:
    # 16 GPUs: a 9 of 4 is 5 above (class 1), b 5 of 4 is 1 above (class 4)
    nodes = [make_node("n1"), make_node("n2")]
    a = [running(str(n), band="_opp", nodes="n1") for n in range(1, 10)]
    b = [running(str(n), "b", "_opp", nodes="n2") for n in range(10, 15)]
    plan = plan_of([*a, *b], nodes=nodes)
    assert ranks(plan) == {"a": 3, "b": 6}


def test_waiting_claim_counts_for_the_claimant() -> None:
    # a: 2 borrowed + 2 guaranteed of 4, claims 2 more: 2 above; alone it would be at nominal (facts/bands.md 1)
    a = [running("1"), running("2"), running("3", band="_borrow"), running("4", band="_borrow")]
    b = [running(str(n), "b", "_opp") for n in range(5, 9)]
    plan = plan_of([*a, *b, waiting("10", gpus=2)])
    assert ranks(plan) == {"a": 4}
    (reason,) = [d.reason for d in plan.decisions if type(d).__name__ == "SetBorrowRank"]
    assert reason == "gres/gpu=2 above its nominal quota, cpu=1,gres/gpu=2,mem=1000 of it claimed"


def test_rank_that_is_right_is_not_written_and_comes_back() -> None:
    assert ranks(plan_of([], QUOTAS)) == {}
    assert ranks(plan_of([], (*make_quota("a", 4, rank=2), *QUOTAS[3:]))) == {"a": 9}


def test_agent_without_a_borrow_qos_has_no_rank() -> None:
    plan = plan_of([running("1", gpus=5)], (QUOTAS[0], *QUOTAS[3:]))
    assert ranks(plan) == {}
    assert "a_borrow" not in lists(plan)
