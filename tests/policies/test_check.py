"""The policies' contract test accepts ours and rejects each way of breaking it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from policies.check import check_policy
from policies.errors import PolicyError
from policies.records import JobId
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
