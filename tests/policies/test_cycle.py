"""One cycle: what is written, what is left alone, and that equal input gives equal bytes."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.canonical import canonical_bytes
from policies.cycle import decide, plan_bytes, plan_digest
from policies.errors import UnknownPolicyError
from policies.fairness.share import standing_tag
from policies.fairness.site_factor import compute_site_factor
from policies.records import AccountName, AgentName, JobRecord, Observation
from policies.registry import POLICIES, get_policy
from policies.site_policy import AgentPolicy, SitePolicy, SlaTargets
from tests.strategies import (
    NOW,
    make_job,
    make_node,
    make_observation,
    make_running,
    make_sample,
    make_site,
    make_tres,
    observations,
    site_factors,
)

if TYPE_CHECKING:
    import random

    from policies.plan import Plan

SITE = make_site({"a": "0.6", "b": "0.4", "z": 0})


def plan_of(jobs: list[JobRecord], site: SitePolicy = SITE, **changes: Any) -> Plan:
    return decide(make_observation(jobs, **changes), site, now=NOW)


def written(plan: Plan) -> dict[str, int]:
    return {str(decision.job_id): decision.new for decision in site_factors(plan)}


def enact(observation: Observation, plan: Plan) -> Observation:
    new = {decision.job_id: decision.new for decision in site_factors(plan)}
    return replace(
        observation,
        jobs=tuple(replace(job, site_factor=new.get(job.job_id, job.site_factor)) for job in observation.jobs),
    )


def test_missed_job_is_adopted_with_its_reason_and_numbers() -> None:
    plan = plan_of([make_running("1", "a"), make_job("10", "a")])
    (decision,) = site_factors(plan)
    assert (decision.old, decision.new, decision.is_adoption) == (0, 33_104, True)
    assert decision.tag == Fraction(1, 8) / Fraction(3, 5)
    assert decision.reason == "wdrf: 1 of 8 gres/gpu held or queued before it, weight 3/5"


def test_first_job_of_an_idle_agent_says_that_nothing_lies_before_it() -> None:
    (decision,) = site_factors(plan_of([make_job("10", "a")]))
    assert (decision.new, decision.reason) == (40_000, "wdrf: nothing held or queued before it, weight 3/5")


def test_right_factor_is_left_alone() -> None:
    assert plan_of([make_job("10", "a", site_factor=40_000)]).decisions == ()


def test_wrong_factor_near_the_head_is_corrected_by_one_point() -> None:
    plan = plan_of([make_job("10", "a", site_factor=39_999)])
    assert written(plan) == {"10": 40_000}
    assert not site_factors(plan)[0].is_adoption


@pytest.mark.parametrize(
    ("shown", "is_written"), [(0, True), (None, True), (1, False), (15_000, False), (15_001 + 400, True)]
)
def test_deep_job_is_written_if_missing_or_clearly_too_high(shown: int | None, *, is_written: bool) -> None:
    # The deep job starts at 8/8 over 3/5 = 5/3: factor 40000 / (1 + 1.6666) = 15000.
    ahead = make_job("10", "a", tres=make_tres(gpu=8), site_factor=40_000)
    plan = plan_of([ahead, make_job("11", "a", site_factor=shown)])
    assert ("11" in written(plan)) is is_written
    assert not is_written or written(plan)["11"] == 15_000


@pytest.mark.parametrize(("shown", "is_written"), [(None, False), (0, True), (30_000, False), (40_001 + 400, True)])
def test_job_that_cannot_start_is_written_if_unset_or_too_high(shown: int | None, *, is_written: bool) -> None:
    plan = plan_of([make_job("10", "a", reason="Dependency", site_factor=shown)])
    assert bool(plan.decisions) is is_written


def test_weight_zero_gets_the_lowest_factor_and_no_tag() -> None:
    (decision,) = site_factors(plan_of([make_job("10", "z")]))
    assert (decision.new, decision.tag) == (1, None)


def test_decisions_come_head_first() -> None:
    jobs = [make_job(str(n), "ab"[n % 2]) for n in range(10, 18)]
    factors = [decision.new for decision in site_factors(plan_of(jobs))]
    assert factors == sorted(factors, reverse=True)


def test_constant_policy_gives_every_job_the_same() -> None:
    site = replace(SITE, policy="constant")
    jobs = [make_job(str(n), "ab"[n % 2], tres=make_tres(gpu=8), site_factor=n) for n in range(10, 18)]
    assert set(written(plan_of(jobs, site)).values()) == {20_000}


def test_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownPolicyError, match="'nope'; there are: constant, wdrf"):
        plan_of([], replace(SITE, policy="nope"))


def test_registry_is_read_only_and_complete() -> None:
    assert sorted(POLICIES) == ["constant", "wdrf"]
    assert get_policy("wdrf").name == "wdrf"


def test_standing_shows_held_queued_and_shares() -> None:
    jobs = [
        make_running("1", "a", tres=make_tres(cpu=8, gpu=2)),
        make_job("10", "a", n_tasks=3),
        make_job("11", "a", priority=0),
        make_job("12", "z"),
    ]
    plan = plan_of(jobs)
    a, b, z = plan.standings
    assert (plan.tres, plan.capacity) == (("cpu", "mem", "gres/gpu"), (64, 64_000, 8))
    assert (a.allocation, a.queued) == ((8, 0, 2), (3, 3000, 3))
    assert (a.dominant_share, a.weighted_share, a.dominant_tres) == (Fraction(1, 4), Fraction(5, 12), "gres/gpu")
    assert (a.n_running, a.n_pending, a.n_startable, a.oldest_wait_s) == (1, 4, 3, 100.0)
    assert (b.weighted_share, b.dominant_tres, b.oldest_wait_s) == (Fraction(0), "", 0.0)
    assert (z.weighted_share, z.n_startable) == (Fraction(0), 1)


def test_weight_zero_that_holds_something_has_no_weighted_share() -> None:
    assert plan_of([make_running("1", "z")]).standings[2].weighted_share is None


def test_next_submitted_jobs_tag_from_the_standing_is_the_rebalancers() -> None:
    """The hook computes from ``allocation + queued`` what the next cycle finds."""
    jobs = [make_running("1", "a"), make_job("10", "a", n_tasks=2)]
    before = plan_of(jobs)
    standing = before.standings[0]
    next_amounts = [h + q for h, q in zip(standing.allocation, standing.queued, strict=True)]
    hook = compute_site_factor(standing_tag(next_amounts, before.capacity, standing.weight), SITE.factor_scale)
    assert written(plan_of([*jobs, make_job("11", "a", submit_s=int(NOW))]))["11"] == hook


def test_base_weights_are_normalised_whatever_their_unit() -> None:
    plan = plan_of([], make_site({"a": 6, "b": 3, "c": 1}))
    assert [standing.base_weight for standing in plan.standings] == [Fraction(n, 10) for n in (6, 3, 1)]


def test_all_weights_zero_is_survived() -> None:
    plan = plan_of([make_job("10", "a")], make_site({"a": 0}))
    assert written(plan) == {"10": 1}


def sla_site() -> SitePolicy:
    sla = SlaTargets(queue_wait_s=50.0, p99_latency_s=0.2)
    agents = {
        "a": AgentPolicy(name=AgentName("a"), accounts=(AccountName("a"),), base_weight=Fraction(1, 2), sla=sla),
        "b": "1/2",
    }
    return make_site(agents)


def test_broken_sla_raises_the_weight_over_cycles_and_memory_carries_it() -> None:
    observation = make_observation(
        [make_job("10", "a")],
        indicators=(make_sample("a", "p99_latency_s", 0.1), make_sample("b", "p99_latency_s", 9.0)),
    )
    memory = decide(observation, sla_site(), now=NOW).sla_memory
    plan = decide(observation, sla_site(), memory, now=NOW + 60)
    a, b = plan.standings
    assert (a.base_weight, b.sla_factor) == (Fraction(1, 2), Fraction(1))
    assert a.sla_factor == Fraction(155, 100)  # waited 160 s for 50 s: clamped to 2, one time constant
    assert a.weight == Fraction(155, 200)
    assert plan.sla_memory[0].at_s == NOW + 60


def test_findings_of_the_state_are_in_the_plan() -> None:
    assert [f.kind for f in plan_of([make_job("10", "a", reason="Moon")]).findings] == ["unknown_reason"]


@given(observations())
def test_same_input_same_bytes(observation: Observation) -> None:
    check_replay(observation)


def check_replay(observation: Observation, implementation: Any = decide) -> None:
    twin = copy.deepcopy(observation)
    first = implementation(observation, SITE, now=NOW)
    assert plan_bytes(implementation(twin, SITE, now=NOW)) == plan_bytes(first)
    assert plan_digest(first) == plan_digest(first)
    assert twin == observation


@given(observations(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(observation: Observation, rng: random.Random) -> None:
    jobs, nodes, agents = list(observation.jobs), list(observation.nodes), list(SITE.agents)
    for rows in (jobs, nodes, agents):
        rng.shuffle(rows)
    shuffled = replace(observation, jobs=tuple(jobs), nodes=tuple(nodes))
    mine = decide(observation, SITE, now=NOW)
    other = decide(shuffled, replace(SITE, agents=tuple(agents)), now=NOW)
    assert (other.decisions, other.standings, other.capacity) == (mine.decisions, mine.standings, mine.capacity)


@given(observations())
def test_second_cycle_after_enacting_changes_nothing(observation: Observation) -> None:
    plan = decide(observation, SITE, now=NOW)
    again = decide(enact(observation, plan), SITE, now=NOW)
    assert again.decisions == ()


def test_canonical_bytes_are_sorted_ascii_with_exact_fractions() -> None:
    plan = replace(plan_of([make_job("10", "a")]), policy="wü")
    text = plan_bytes(plan).decode("ascii")
    assert text.startswith('{"at_s":1000000.0,"band_memory":[],"capacity":[64,64000,8],"decisions":[{"agent":"a"')
    assert '"tag":"0/1"' in text
    assert "w\\u00fc" in text


def test_nan_is_no_canonical_value() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_bytes(float("nan"))


def test_same_plan_with_a_drained_node_and_nothing_on_it() -> None:
    nodes = [make_node(), make_node("n2", up=False)]
    assert plan_of([make_job("10", "a")], nodes=nodes).decisions == plan_of([make_job("10", "a")]).decisions
