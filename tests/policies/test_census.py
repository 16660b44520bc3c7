"""From an observation to columns: owners, capacity, startability, findings."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from policies.census import compute_state, exact_array, split_job_id
from policies.records import AccountName, AgentName, JobRecord, JobState, PartitionName
from policies.site_policy import AgentPolicy, JobOrder, TagSource
from policies.startability import Startability
from policies.state import NO_FACTOR, STARTABILITIES, ClusterState
from tests.strategies import (
    NOW,
    make_job,
    make_node,
    make_observation,
    make_running,
    make_site,
    make_tres,
)

SITE = make_site({"a": "0.6", "b": "0.4"})


def state_of(jobs: list[JobRecord], nodes: Any = None, site: Any = SITE, **changes: Any) -> ClusterState:
    return compute_state(make_observation(jobs, nodes, **changes), site)


def startability(job: JobRecord, **changes: Any) -> Startability:
    state = state_of([job], **changes)
    return STARTABILITIES[int(state.pending.startability[0])]


def kinds(state: ClusterState) -> list[str]:
    return [finding.kind for finding in state.findings]


def test_account_names_the_agent_and_strangers_are_foreign() -> None:
    state = state_of([make_job("1", "a"), make_job("2", "b"), make_job("3", "nobody")])
    assert state.pending.job_ids == ("1", "2")
    assert state.pending.agent.tolist() == [0, 1]


def test_tag_of_an_allowed_user_beats_the_account() -> None:
    agent = AgentPolicy(name=AgentName("b"), accounts=(AccountName("b"),), users=("u",), base_weight=Fraction(1))
    site = make_site({"a": 1, "b": agent})
    assert state_of([make_job("1", "a", comment="agent=b")], site=site).pending.agent.tolist() == [1]


def test_group_counts_when_known() -> None:
    agent = AgentPolicy(name=AgentName("b"), accounts=(), groups=("lab",), base_weight=Fraction(1))
    site = make_site({"a": 1, "b": agent})
    job = make_job("1", "a", comment="agent=b")
    assert state_of([job], site=site, groups_by_user=(("u", ("lab",)),)).pending.agent.tolist() == [1]
    assert state_of([job], site=site).pending.agent.tolist() == [0]


def test_refused_tag_counts_as_the_accounts_agent_with_one_finding() -> None:
    state = state_of([make_job("1", "a", comment="agent=b"), make_job("2", "a", comment="agent=b")])
    assert state.pending.agent.tolist() == [0, 0]
    assert [finding.subject for finding in state.findings] == ["user u"]
    assert state.findings[0].text.startswith("2 pending job(s)")


def test_refused_tag_without_an_agents_account_is_foreign() -> None:
    state = state_of([make_job("1", "nobody", comment="agent=b")])
    assert len(state.pending) == 0
    assert "foreign" in state.findings[0].text


@pytest.mark.parametrize(("source", "expected"), [(TagSource.COMMENT, 0), (TagSource.WCKEY, 1), (TagSource.ACCOUNT, 0)])
def test_tag_source(source: TagSource, expected: int) -> None:
    site = make_site(
        {"a": 1, "b": AgentPolicy(name=AgentName("b"), accounts=(), users=("u",), base_weight=Fraction(1))}
    )
    job = make_job("1", "a", wckey="agent=b", reservation="agent=b")
    assert state_of([job], site=replace(site, tag_source=source)).pending.agent.tolist() == [expected]


def test_one_unmanaged_partition_makes_the_job_foreign() -> None:
    job = make_job("1", partitions=(PartitionName("gpu"), PartitionName("debug")))
    assert len(state_of([job]).pending) == 0


def capacity(jobs: list[JobRecord], nodes: Any = None) -> dict[str, int]:
    state = state_of(jobs, nodes)
    return dict(zip(state.tres, state.capacity, strict=True))


def test_capacity_is_schedulable_managed_nodes() -> None:
    nodes = [make_node("n1"), make_node("n2", up=False), make_node("d1", partitions=(PartitionName("debug"),))]
    assert capacity([], nodes) == {"cpu": 64, "mem": 64_000, "gres/gpu": 8}


def test_what_jobs_hold_on_a_drained_node_counts() -> None:
    nodes = [make_node("n1"), make_node("n2", up=False)]
    job = make_running("1", nodes="n2", tres=make_tres(cpu=2, mem=10, gpu=3))
    assert capacity([job], nodes) == {"cpu": 66, "mem": 64_010, "gres/gpu": 11}


def test_job_across_a_drained_node_counts_in_part_rounded_up() -> None:
    nodes = [make_node("n1"), make_node("n2", up=False)]
    job = make_running("1", nodes="n[1-2]", n_nodes=2, tres=make_tres(cpu=4, mem=10, gpu=3))
    assert capacity([job], nodes) == {"cpu": 66, "mem": 64_005, "gres/gpu": 10}


def test_foreign_use_on_managed_nodes_is_taken_away() -> None:
    nodes = [make_node("n1"), make_node("n2", up=False), make_node("x", partitions=(PartitionName("debug"),))]
    debug = {"partitions": (PartitionName("debug"),), "tres": make_tres(cpu=4, gpu=3)}
    jobs = [
        make_running("1", "nobody", nodes="n1", **debug),
        make_running("2", "nobody", nodes="n[1-2]", **debug),
        make_running("3", "nobody", nodes="x", **debug),
    ]
    # 3 on n1, half of 3 rounded down on n1, nothing of those on n2 and x.
    assert capacity(jobs, nodes)["gres/gpu"] == 8 - 3 - 1


def test_foreign_job_of_unknown_place_counts_by_its_partition() -> None:
    jobs = [
        make_running("1", "nobody", nodes="", tres=make_tres(gpu=2)),
        make_running("2", "nobody", nodes="", tres=make_tres(gpu=2), partitions=(PartitionName("debug"),)),
    ]
    assert capacity(jobs)["gres/gpu"] == 6


def test_capacity_is_never_below_what_is_held_nor_zero() -> None:
    ours = make_running("1", tres=make_tres(cpu=2, gpu=3))
    foreign = make_running("2", "nobody", tres=make_tres(cpu=200, mem=10**6, gpu=8))
    assert capacity([ours, foreign]) == {"cpu": 2, "mem": 1, "gres/gpu": 3}


def test_typed_gpu_is_charged_only_where_it_was_named() -> None:
    node = make_node(tres=make_tres(cpu=64, mem=64_000, gpu=8, a100=8))
    lucky = make_running("1", tres=make_tres(gpu=2, a100=2))
    named = make_running("2", tres=make_tres(gpu=1, a100=1), requested_types=("gres/gpu:a100",))
    state = state_of([lucky, named], [node])
    assert state.held[0].tolist() == [0, 0, 3, 1]


def test_held_sums_over_the_states_that_hold() -> None:
    jobs = [
        make_running("1"),
        make_running("2", state=JobState.SUSPENDED),
        make_running("3", state=JobState.COMPLETING),
        make_running("4", state=JobState.COMPLETED),
    ]
    state = state_of(jobs)
    assert state.held[0].tolist() == [3, 3000, 3]
    assert state.n_running.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Startability.STARTABLE),
        ({"priority": 0}, Startability.HELD),
        ({"state": JobState.REQUEUE_HOLD}, Startability.HELD),
        ({"state": JobState.SPECIAL_EXIT}, Startability.HELD),
        ({"state": JobState.REQUEUED}, Startability.STARTABLE),
        ({"reason": "Dependency"}, Startability.DEPENDENCY),
        ({"eligible_s": int(NOW) + 5}, Startability.DELAYED),
        ({"eligible_s": int(NOW) - 5}, Startability.STARTABLE),
        ({"tres": make_tres(gpu=9)}, Startability.UNPLACEABLE),
        ({"tres": make_tres(gpu=2**63)}, Startability.UNPLACEABLE),
        ({"tres": make_tres(gpu=16), "n_nodes": 2}, Startability.NODES_DOWN),
        ({"tres": make_tres(gpu=16), "n_nodes": 3}, Startability.UNPLACEABLE),
        ({"tres": make_tres(gpu=9), "priority": 0}, Startability.UNPLACEABLE),
    ],
)
def test_startability(changes: dict[str, Any], expected: Startability) -> None:
    nodes = [make_node("n1"), make_node("n2", up=False)]
    assert startability(make_job("1", **changes), nodes=nodes) is expected


def test_partition_without_nodes_can_hold_nothing() -> None:
    assert startability(make_job("1"), nodes=[]) is Startability.UNPLACEABLE


def test_job_is_placeable_if_any_of_its_partitions_can_hold_it() -> None:
    big = make_node("b", partitions=(PartitionName("big"),), tres=make_tres(cpu=64, mem=64_000, gpu=16))
    site = make_site({"a": 1}, partitions=(PartitionName("big"), PartitionName("gpu")))
    job = make_job("1", tres=make_tres(gpu=16), partitions=(PartitionName("gpu"), PartitionName("big")))
    assert startability(job, nodes=[make_node(), big], site=site) is Startability.STARTABLE


def test_het_job_is_blocked_by_one_component() -> None:
    jobs = [
        make_job("13+0", het_job_id="13"),
        make_job("13+1", het_job_id="13", reason="Licenses"),
        make_job("20+0", het_job_id="20"),
    ]
    codes = state_of(jobs).pending.startability.tolist()
    assert [STARTABILITIES[code] for code in codes] == [
        Startability.LICENCES,
        Startability.LICENCES,
        Startability.STARTABLE,
    ]


def test_columns_follow_the_records() -> None:
    jobs = [
        make_job("12", n_tasks=5, array_job_id="12", nice=3),
        make_job("12_7", site_factor=None, eligible_s=int(NOW) - 1),
        make_job("13+1", n_tasks=0),
    ]
    pending = state_of(jobs).pending
    assert pending.n_tasks.tolist() == [5, 1, 1]
    assert pending.id_major.tolist() == [12, 12, 13]
    assert pending.id_minor.tolist() == [-1, 7, 1]
    assert pending.site_factor.tolist() == [0, NO_FACTOR, 0]
    assert pending.wait_from_s.tolist() == [NOW - 100, NOW - 1, NOW - 100]
    assert pending.nice.tolist() == [3, 0, 0]


def test_deadline_is_read_only_for_agents_ordered_by_deadline() -> None:
    agent = AgentPolicy(
        name=AgentName("b"), accounts=(AccountName("b"),), base_weight=Fraction(1), order=JobOrder.DEADLINE
    )
    jobs = [make_job(str(n), who, comment="deadline=2h") for n, who in enumerate("ab")] + [make_job("9", "b")]
    got = state_of(jobs, site=make_site({"a": 1, "b": agent})).pending.deadline_s.tolist()
    assert got == [float("inf"), NOW - 100 + 7200, float("inf")]


def test_arrays_are_read_only() -> None:
    state = state_of([make_job("1")])
    for array in (state.held, state.pending.demand, state.pending.agent, state.pending.site_factor):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_huge_amounts_become_python_integers() -> None:
    assert exact_array([2**63]).dtype == object
    assert exact_array([2**62]).dtype == np.int64
    assert state_of([make_job("1", tres=make_tres(gpu=2**63))]).pending.demand[0, 2] == 2**63


@pytest.mark.parametrize(
    ("job_id", "numbers"), [("12", (12, -1)), ("12_3", (12, 3)), ("13+1", (13, 1)), ("x", (0, -1))]
)
def test_split_job_id(job_id: str, numbers: tuple[int, int]) -> None:
    assert split_job_id(job_id) == numbers


def test_nothing_is_dropped_silently() -> None:
    jobs = [
        make_job("1", reason="Moon"),
        make_job("2", tres=make_tres(gpu=9)),
        make_job("3", state=JobState.UNKNOWN),
    ]
    state = state_of(jobs, problems=(("job state FOO", 1),))
    assert kinds(state) == ["reader", "unknown_state", "unknown_reason", "unplaceable"]
    assert "can never run: no 1 node(s) of gpu can give gres/gpu=9" in state.findings[-1].text


def test_many_unplaceable_jobs_are_counted_in_one_line() -> None:
    jobs = [make_job(str(n), tres=make_tres(gpu=9)) for n in range(60)]
    state = state_of(jobs)
    assert len(state.findings) == 51
    assert state.findings[-1].text == "10 more job(s) can never run"
