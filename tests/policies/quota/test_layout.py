"""What ``apply`` and ``decide`` agree on: priorities and full Preempt lists."""

from __future__ import annotations

from policies.quota.layout import (
    HIGHEST_BORROW_PRIORITY,
    LOWEST_BORROW_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    full_preempt_list,
    keep_opportunistic,
)
from policies.quota.names import Band
from policies.quota.nominal import compute_nominals
from policies.records import AgentName
from policies.site_policy import AgentPolicy, BandPolicy, Quota, QuotaKind
from tests.strategies import make_node, make_site

NONE = AgentPolicy(
    name=AgentName("z"),
    accounts=(),
    base_weight=make_site({"z": 1}).agents[0].base_weight,
    quota=Quota(kind=QuotaKind.NONE),
)
QUOTAS = compute_nominals(make_site({"a": 1, "b": 1, "z": NONE}, bands=BandPolicy()), [make_node()])


def test_opportunistic_lies_below_every_borrow_rank() -> None:
    assert OPPORTUNISTIC_PRIORITY < LOWEST_BORROW_PRIORITY < HIGHEST_BORROW_PRIORITY < 2**16


def test_guaranteed_may_preempt_every_loan_its_own_included() -> None:
    everything = ("fg_c_a_borrow", "fg_c_a_opp", "fg_c_b_borrow", "fg_c_b_opp")
    assert full_preempt_list(QUOTAS, AgentName("a"), Band.GUARANTEED) == everything


def test_borrow_may_preempt_what_is_opportunistic_and_that_nothing() -> None:
    assert full_preempt_list(QUOTAS, AgentName("a"), Band.BORROW) == ("fg_c_a_opp", "fg_c_b_opp")
    assert full_preempt_list(QUOTAS, AgentName("a"), Band.OPPORTUNISTIC) == ()


def test_agent_without_bands_preempts_nobody() -> None:
    assert full_preempt_list(QUOTAS, AgentName("z"), Band.GUARANTEED) == ()
    assert full_preempt_list(QUOTAS, AgentName("unknown"), Band.GUARANTEED) == ()


def test_loans_of_former_agents_stay_in_the_lists_of_what_may_take_them() -> None:
    former = ("fg_c_old", "fg_c_old_borrow", "fg_c_old_opp")
    guaranteed = full_preempt_list(QUOTAS, AgentName("a"), Band.GUARANTEED, retired=former)
    assert {"fg_c_old_borrow", "fg_c_old_opp"} <= set(guaranteed)
    assert "fg_c_old" not in guaranteed
    borrow = full_preempt_list(QUOTAS, AgentName("a"), Band.BORROW, retired=former)
    assert borrow == ("fg_c_a_opp", "fg_c_b_opp", "fg_c_old_opp")


def test_opportunistic_qoses_that_exist_outlive_their_switch() -> None:
    off = compute_nominals(make_site({"a": 1, "b": 1, "z": NONE}, bands=BandPolicy(opportunistic=False)), [make_node()])
    kept = keep_opportunistic(off, "c", {"fg_c_a_opp", "fg_c_z_opp"})
    assert [quota.opportunistic_qos for quota in kept] == ["fg_c_a_opp", None, None]
    assert full_preempt_list(kept, AgentName("b"), Band.BORROW) == ("fg_c_a_opp",)
