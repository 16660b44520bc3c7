"""The policies' contract test accepts ours and rejects each way of breaking it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from policies.check import check_policy
from policies.errors import PolicyError
from policies.plan import Decision, SetBorrowRank, SetPreemptList, SetQos, StartNow
from policies.records import AgentName, JobId
from policies.registry import POLICIES, get_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.factor_plan import PolicyParams
    from policies.plan import Plan
    from policies.state import ClusterState

DECIDE = get_policy("wdrf").decide


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_registered_policy_keeps_the_contract(name: str) -> None:
    check_policy(POLICIES[name].decide)


def edited(edit: Callable[[Plan], Plan]) -> Any:
    def policy(state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
        return edit(DECIDE(state, params, now=now))

    return policy


def each_decision(**changes: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, decisions=tuple(replace(d, **changes) for d in plan.decisions))


COUNTER = itertools.count()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda plan: replace(plan, at_s=plan.at_s + next(COUNTER)), "not deterministic"),
        (lambda plan: replace(plan, standings=()), "does not give each agent's standing"),
        (lambda plan: replace(plan, decisions=plan.decisions * 2), "decides about a job or QOS twice"),
        (each_decision(reason=""), "no reason"),
        (each_decision(job_id=JobId("999")), "not a managed pending job"),
        (each_decision(new=0), "outside"),
        (each_decision(old=7, new=7), "changes nothing"),
    ],
)
def test_broken_policy_is_rejected(edit: Callable[[Plan], Plan], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_policy(edited(edit))


def adding(*decisions: Decision) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, decisions=(*plan.decisions, *decisions))


A = AgentName("a")
OURS = "fg_check_a_borrow"


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (SetQos(job_id=JobId("10"), agent=A, old="", new="normal", reason="r"), "normal is no QOS of ours"),
        (SetQos(job_id=JobId("10"), agent=A, old=OURS, new=OURS, reason="r"), "job 10: changes nothing"),
        (SetQos(job_id=JobId("999"), agent=A, old="", new=OURS, reason="r"), "job 999: is not a managed pending job"),
        (StartNow(job_id=JobId("999"), agent=A, reason="r"), "job 999: is not a managed pending job"),
        (StartNow(job_id=JobId("10"), agent=A, reason=""), "job 10: no reason"),
        (SetBorrowRank(qos="normal", agent=A, old=9, new=2, reason="r"), "QOS normal: is no QOS of ours"),
        (SetBorrowRank(qos=OURS, agent=A, old=9, new=1, reason="r"), "priority 1 is no borrow rank"),
        (SetBorrowRank(qos=OURS, agent=A, old=9, new=9, reason="r"), f"QOS {OURS}: changes nothing"),
        (SetPreemptList(qos=OURS, agent=A, old=(), new=("normal",), reason="r"), "touches a QOS that is not ours"),
        (SetPreemptList(qos=OURS, agent=A, old=(), new=("fg_b", "fg_a"), reason="r"), "is not sorted"),
        (SetPreemptList(qos=OURS, agent=A, old=(), new=(), reason="r"), f"QOS {OURS}: changes nothing"),
    ],
)
def test_broken_band_decision_is_rejected(decision: Decision, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_policy(edited(adding(decision)))


def test_policy_that_raises_is_rejected_with_the_cluster_it_failed_on() -> None:
    def policy(state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
        if not state.capacity[0]:
            raise ZeroDivisionError("capacity")
        return DECIDE(state, params, now=now)

    with pytest.raises(PolicyError, match="no nodes, no jobs: raises ZeroDivisionError"):
        check_policy(policy)


def test_policy_that_changes_its_input_is_rejected() -> None:
    def policy(state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
        state.pending.nice.flags.writeable = True
        state.pending.nice[:] += 1
        return DECIDE(state, params, now=now)

    with pytest.raises(PolicyError, match="changes its input"):
        check_policy(policy)
