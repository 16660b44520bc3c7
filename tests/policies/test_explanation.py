"""The explanation shows the same numbers that decide."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from policies.cycle import decide
from policies.errors import PolicyError
from policies.explanation import JobExplanation, explain_job, find_job
from policies.records import AccountName, AgentName, JobRecord, Observation
from policies.site_policy import AgentPolicy, SitePolicy, SlaTargets
from policies.startability import Startability
from policies.submission.decision import AgentSource, Verdict
from tests.strategies import (
    NOW,
    make_job,
    make_node,
    make_observation,
    make_running,
    make_site,
    make_tres,
    observations,
    site_factors,
)

SITE = make_site({"a": "0.6", "b": "0.4", "z": 0})


def explain(jobs: list[JobRecord], job_id: str, site: SitePolicy = SITE, **changes: Any) -> JobExplanation:
    return explain_job(make_observation(jobs, **changes), site, (), job_id, now=NOW)


def test_every_number_of_the_share() -> None:
    jobs = [
        make_running("1", "a", tres=make_tres(cpu=8, gpu=2)),
        make_job("10", "a", n_tasks=2),
        make_job("11", "a", comment="agent=a stage=train"),
        make_job("12", "b"),
    ]
    explanation = explain(jobs, "11")
    assert explanation.submission.source is AgentSource.TAG
    assert explanation.submission.tags.stage == "train"
    place = explanation.place
    assert place is not None
    gpu = place.axes[2]
    assert (gpu.tres, gpu.capacity, gpu.request, gpu.held, gpu.queued_before) == ("gres/gpu", 8, 1, 2, 2)
    assert (gpu.share, place.dominant_tres, place.dominant_share) == (Fraction(1, 2), "gres/gpu", Fraction(1, 2))
    # 1/2 over 3/5 is 5/6; down to 1/10000 it is 0.8333; 40000 * 10000 // 18333 = 21818.
    assert (place.tag, place.quantised_tag, place.site_factor) == (Fraction(5, 6), Fraction(8333, 10_000), 21_818)
    assert (place.position, place.n_startable, place.is_near, place.shown_factor) == (3, 3, True, 0)
    assert [(n.job_id, n.agent, n.tag) for n in place.before] == [("12", "b", 0), ("10", "a", Fraction(5, 12))]
    assert place.change is not None
    assert place.change.new == 21_818


def test_no_more_than_five_jobs_before_it_nearest_last() -> None:
    jobs = [make_job(str(n), "a", n_tasks=1) for n in range(10, 18)]
    place = explain(jobs, "17").place
    assert place is not None
    assert [neighbour.job_id for neighbour in place.before] == ["12", "13", "14", "15", "16"]


def test_first_job_has_nobody_before_it_and_no_axis() -> None:
    place = explain([make_job("10", "a", site_factor=40_000)], "10").place
    assert place is not None
    assert (place.dominant_tres, place.tag, place.before, place.change) == ("", Fraction(0), (), None)


def test_weight_and_its_indicators() -> None:
    agent = AgentPolicy(
        name=AgentName("a"),
        accounts=(AccountName("a"),),
        base_weight=Fraction(1),
        sla=SlaTargets(queue_wait_s=50.0, error_rate_frac=0.1),
    )
    weight = explain([make_job("10", "a")], "10", make_site({"a": agent, "b": 1})).weight
    assert weight is not None
    assert (weight.base_weight, weight.sla_factor, weight.weight) == (Fraction(1, 2), Fraction(1), Fraction(1, 2))
    assert [(r.name, r.ratio, r.note) for r in weight.readings] == [
        ("queue_wait_s", 2.0, ""),
        ("error_rate_frac", None, "no sample"),
    ]


def test_weight_zero_has_no_tag() -> None:
    place = explain([make_job("10", "z")], "10").place
    assert place is not None
    assert (place.tag, place.quantised_tag, place.site_factor) == (None, None, 1)


def test_refused_tag_is_shown_with_the_message() -> None:
    explanation = explain([make_job("10", "a", comment="agent=b")], "10")
    assert explanation.submission.verdict is Verdict.REJECT
    assert explanation.submission.agent == "a"
    assert "may not use tag agent=b" in explanation.submission.message


def test_foreign_job_has_no_place() -> None:
    explanation = explain([make_job("10", "nobody")], "10")
    assert (explanation.weight, explanation.place) == (None, None)
    assert explanation.startability is Startability.STARTABLE


def test_running_job_does_not_wait() -> None:
    explanation = explain([make_running("1", "a")], "1")
    assert (explanation.startability, explanation.place) == (None, None)
    assert explanation.waits_because == "is not waiting: RUNNING"
    assert explanation.weight is not None


@pytest.mark.parametrize(
    ("changes", "startability", "words"),
    [
        ({"reason": "Resources"}, Startability.STARTABLE, "waits for free resources"),
        ({"reason": "QOSGrpGRES"}, Startability.OVER_LIMIT, "all jobs of its QOS together use the GPUs"),
        (
            {"tres": make_tres(gpu=9)},
            Startability.UNPLACEABLE,
            "can never run: no 1 node(s) of gpu can give gres/gpu=9",
        ),
        ({"priority": 0}, Startability.HELD, "its priority is 0"),
        ({"eligible_s": int(NOW) + 9}, Startability.DELAYED, "its begin time lies ahead"),
        ({"tres": make_tres(gpu=16), "n_nodes": 2}, Startability.NODES_DOWN, "only nodes that are down"),
    ],
)
def test_why_it_waits_in_plain_words(changes: dict[str, Any], startability: Startability, words: str) -> None:
    nodes = [make_node("n1"), make_node("n2", up=False)]
    explanation = explain([make_job("10", "a", **changes)], "10", nodes=nodes)
    assert explanation.startability is startability
    assert words in explanation.waits_because


def test_component_blocked_by_another_says_so() -> None:
    jobs = [
        make_job("13+0", "a", het_job_id="13"),
        make_job("13+1", "a", het_job_id="13", reason="Licenses"),
    ]
    explanation = explain(jobs, "13")
    assert explanation.waits_because == "another component of its het job cannot start"


def test_ids_as_users_write_them() -> None:
    observation = make_observation([make_job("12", array_job_id="12"), make_job("12_3"), make_job("20+0")])
    found = [find_job(observation, text).job_id for text in ("12_3", "12_5", "12_[5-9%2]", "20")]
    assert found == ["12_3", "12", "12", "20+0"]
    for text in ("99", "12_x", "12_", "20_1", "", "_"):
        with pytest.raises(PolicyError, match=f"job {text} is not in this observation"):
            find_job(observation, text)


def test_constant_policy_is_explained_with_its_own_factor() -> None:
    place = explain([make_job("10", "a")], "10", replace(SITE, policy="constant")).place
    assert place is not None
    assert place.site_factor == 20_000
    assert place.change is not None
    assert place.change.reason.startswith("constant:")


@given(observations())
def test_explanation_and_plan_agree(observation: Observation) -> None:
    changes = {decision.job_id: decision for decision in site_factors(decide(observation, SITE, now=NOW))}
    for job in observation.jobs:
        place = explain_job(observation, SITE, (), job.job_id, now=NOW).place
        assert (place.change if place else None) == changes.get(job.job_id)
