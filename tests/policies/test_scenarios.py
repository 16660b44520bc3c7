"""Scenarios from peers' bug reports (tests/data/scenarios.json): classes order, account, robust and starve.

Each one has a test here, or a line in ``JUDGED`` that says why it does not apply to this core, or not yet.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policies.census import compute_state
from policies.cycle import decide
from policies.fairness.share import standing_tag
from policies.records import AccountName, AgentName, JobRecord, PartitionName
from policies.site_policy import AgentPolicy, JobOrder, SitePolicy
from tests.strategies import (
    NOW,
    make_job,
    make_node,
    make_observation,
    make_running,
    make_site,
    make_tres,
    site_factors,
)

if TYPE_CHECKING:
    from policies.plan import Plan

CLASSES: Final = ("order", "account", "robust", "starve")
SCENARIOS: Final = {
    entry["id"]: entry
    for entry in json.loads((Path(__file__).parents[1] / "data" / "scenarios.json").read_text(encoding="utf-8"))[
        "scenarios"
    ]
}

JUDGED: Final = {
    "K05": "later: fractions of a GPU (gres/shard) are not an axis yet; whole GPUs of a job are one sum here",
    "K09": "later: requests by GPU memory need gres/shard; no charge is derived from memory here",
    "K10": "not ours: Slurm assigns GPUs and re-tries; we only order pending jobs and keep no placement",
    "O05": "later: the model pool (unloading with callers in flight)",
    "O06": "later: the model pool (a fill that outlives an invalidation)",
    "O08": "later: Airflow operator; FairGPU submits nothing in this issue",
    "O09": "later: Airflow operator; FairGPU submits nothing in this issue",
    "O10": "later: training of the actor",
    "Q26": "no usage history enters a share: only what is held now counts. The one time constant is the SLA "
    "weight's: 0 means no smoothing, not off (test_sla_weight.py)",
    "V11": "later: quotas (GrpTRES); there is no cap to enforce at the edge in this issue",
}
TESTED: Final = {"K06", "K16", "K17", "K18", "Q05", "Q11", "Q12", "Q13", "Q20", "Q24", "Q27", "V07"}
SITE: Final = make_site({"a": 1, "b": 1})


def plan_of(jobs: list[JobRecord], nodes: Any = None, site: SitePolicy = SITE) -> Plan:
    return decide(make_observation(jobs, nodes), site, now=NOW)


def order_of(plan: Plan) -> list[str]:
    return [str(decision.job_id) for decision in site_factors(plan)]


def test_every_scenario_of_these_classes_is_tested_or_judged() -> None:
    wanted = {name for name, entry in SCENARIOS.items() if entry["cls"] in CLASSES}
    assert wanted == TESTED | set(JUDGED)
    assert not TESTED & set(JUDGED)


def test_k06_job_that_fails_to_start_does_not_hold_up_the_others() -> None:
    # Slurm holds a job whose launch failed; from then on it moves nobody's tag.
    failing = make_job("10", "a", reason="launch failed requeued held", priority=0, site_factor=None)
    plan = plan_of([failing, make_job("11", "a"), make_job("12", "b")])
    assert [(str(d.job_id), d.tag) for d in site_factors(plan)] == [("11", Fraction(0)), ("12", Fraction(0))]


def test_k16_absurd_count_can_never_run_and_changes_nothing_else() -> None:
    absurd = make_job("10", "a", tres=make_tres(gpu=2**63))
    plan = plan_of([absurd, make_job("11", "a")])
    assert [finding.kind for finding in plan.findings] == ["unplaceable"]
    assert [d.new for d in site_factors(plan) if d.job_id == "11"] == [40_000]
    assert plan.standings[0].queued == (1, 1000, 1)


def test_k17_array_of_four_counts_four_not_sixteen() -> None:
    plan = plan_of([make_job("10", "a", n_tasks=4, array_job_id="10")])
    assert (plan.standings[0].n_pending, plan.standings[0].queued) == (4, (4, 4000, 4))


@pytest.mark.parametrize("n_small", [10, 500])
def test_k18_old_large_job_is_not_passed_by_later_jobs(n_small: int) -> None:
    # The bound: ahead of it are only jobs of agents that stand lower, and of its own agent the older ones; a stream
    # of later jobs, its own agent's or another's, adds at most what fits below its tag (here b's first two).
    old = make_job("10", "a", tres=make_tres(gpu=6), submit_s=5)
    running = make_running("1", "a", tres=make_tres(gpu=2))
    stream = [make_job(str(100 + n), "ab"[n % 2], submit_s=int(NOW) - 50) for n in range(n_small)]
    assert order_of(plan_of([running, old, *stream])).index("10") == 2


def test_q05_tiny_share_is_not_rounded_to_zero() -> None:
    assert standing_tag((1,), (10**9,), Fraction(300)) == Fraction(1, 300 * 10**9)
    node = make_node(tres=make_tres(cpu=10**9, gpu=8))
    running = make_running("1", "a", tres=make_tres(cpu=1))
    jobs = [running, make_job("10", "a", tres=make_tres(cpu=1)), make_job("11", "b", tres=make_tres(cpu=1))]
    assert order_of(plan_of(jobs, [node])) == ["11", "10"]


def test_q11_node_in_two_managed_partitions_counts_once() -> None:
    both = (PartitionName("big"), PartitionName("gpu"))
    site = replace(SITE, partitions=both)
    assert plan_of([], [make_node(partitions=both)], site).capacity == (64, 64_000, 8)


def test_q12_resource_removed_while_in_use_keeps_shares_finite() -> None:
    # The node vanished from the configuration while its job still runs.
    jobs = [make_running("1", "a", nodes="gone", tres=make_tres(cpu=2, gpu=2)), make_job("10", "a")]
    plan = plan_of(jobs, [make_node(tres=make_tres(cpu=64, mem=64_000))])
    assert plan.capacity == (64, 64_000, 2)
    assert plan.standings[0].dominant_share == 1
    assert [finding.kind for finding in plan.findings] == ["unplaceable"]


def test_q13_removed_agent_leaves_nothing_behind() -> None:
    jobs = [make_running("1", "b", tres=make_tres(gpu=4))]
    plan = plan_of(jobs, site=make_site({"a": 1}))
    assert [(s.agent, s.base_weight) for s in plan.standings] == [("a", Fraction(1))]
    assert plan.capacity[2] == 4


@pytest.mark.parametrize(
    ("order", "nice", "first"),
    [
        (JobOrder.FIFO, 0, "10"),
        (JobOrder.FIFO, 5, "11"),
        (JobOrder.DEADLINE, 0, "11"),
        (JobOrder.DEADLINE, -5, "10"),
    ],
)
def test_q20_each_combination_of_the_two_preferences(order: JobOrder, nice: int, first: str) -> None:
    # 10 is older, 11 has the earlier deadline; nice belongs to 10 and comes first of all.
    agent = AgentPolicy(name=AgentName("a"), accounts=(AccountName("a"),), base_weight=Fraction(1), order=order)
    jobs = [
        make_job("10", "a", nice=nice, comment="deadline=9h", submit_s=int(NOW) - 90),
        make_job("11", "a", comment="deadline=1h", submit_s=int(NOW) - 80),
    ]
    assert order_of(plan_of(jobs, site=make_site({"a": agent})))[0] == first


def test_q24_small_job_behind_a_large_one_has_a_factor_and_the_large_one_keeps_its_place() -> None:
    # Slurm passes over J1 while its GPUs are busy and starts J2; J1 stays ahead in the order.
    busy = make_running("1", "b", tres=make_tres(gpu=8))
    jobs = [busy, make_job("10", "a", tres=make_tres(gpu=8)), make_job("11", "a", tres=make_tres(cpu=1))]
    plan = plan_of(jobs)
    assert order_of(plan) == ["10", "11"]
    assert all(decision.new > 1 for decision in site_factors(plan))


def test_q27_use_without_capacity_is_infinite_not_zero() -> None:
    assert standing_tag((2,), (0,), Fraction(1)) is None


def test_v07_full_cluster_does_not_keep_the_owed_agent_from_the_head() -> None:
    full = make_running("1", "a", tres=make_tres(cpu=8, gpu=8))
    jobs = [full, make_job("10", "a", submit_s=1), make_job("11", "b")]
    state = compute_state(make_observation(jobs), SITE)
    assert state.pending.is_startable.all()
    assert order_of(plan_of(jobs))[0] == "11"
