"""GPUs that an agent holds beside its bands are seen, since nobody can take them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.records import JobState
from tests.policies.quota.band_cases import QUOTAS, elsewhere, plan_of, running, texts

if TYPE_CHECKING:
    from policies.records import JobRecord


def test_a_finding_says_how_many_gpus_where_and_which_jobs() -> None:
    jobs = [running(str(n), gpus=2 if n == 9 else 1, qos="normal") for n in (11, 9, 10, 12)]
    jobs.append(running("20", "b", qos="normal"))
    assert texts(plan_of(jobs), "outside_bands") == [
        "agent a: 5 GPU(s) run outside its bands in QOS normal (jobs 9, 10, 11 and 1 more): nobody can take them back",
        "agent b: 1 GPU(s) run outside its bands in QOS normal (jobs 20): nobody can take them back",
    ]


def test_a_job_without_a_qos_is_named_too() -> None:
    (text,) = texts(plan_of([running("1", qos="")]), "outside_bands")
    assert "in QOS (none) (jobs 1)" in text


SILENT = {
    "in its bands": [running("1"), running("2", band="_borrow"), running("3", band="_opp")],
    "without GPUs": [running("1", tres=(("cpu", 4),), qos="normal")],
    "completing": [running("1", qos="normal", state=JobState.COMPLETING)],
    "in a QOS of the site's own": [running("1", qos="long")],
    "in a partition that is not managed": [elsewhere("1", qos="normal")],
}


@pytest.mark.parametrize("jobs", SILENT.values(), ids=SILENT.keys())
def test_nothing_is_said_of_jobs(jobs: list[JobRecord]) -> None:
    assert texts(plan_of(jobs), "outside_bands") == []


def test_nothing_is_said_of_an_agent_without_bands() -> None:
    ours = [qos for qos in QUOTAS if "_a" not in qos.name]
    assert texts(plan_of([running("1", qos="normal")], ours), "outside_bands") == []
