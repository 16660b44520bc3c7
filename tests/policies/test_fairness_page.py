"""The worked example in docs/explanation/fairness.md says what the code says."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from policies.explanation import explain_job
from policies.records import (
    AccountName,
    AgentName,
    JobId,
    JobRecord,
    JobState,
    NodeName,
    NodeRecord,
    Observation,
    PartitionName,
)
from policies.site_policy import AgentPolicy, SitePolicy

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "fairness.md"
GIB = 1024
MAIN = PartitionName("main")
AGENTS = {"A": AccountName("a"), "B": AccountName("b")}


def make_job(number: int, agent: str, submit_s: int) -> JobRecord:
    cpus, mem_gib = (1, 4) if agent == "A" else (3, 1)
    return JobRecord(
        job_id=JobId(str(number)),
        user="alice",
        uid=1001,
        account=AGENTS[agent],
        partitions=(MAIN,),
        state=JobState.PENDING,
        reason="Priority",
        priority=1,
        tres=(("cpu", cpus), ("mem", mem_gib * GIB)),
        submit_s=submit_s,
        site_factor=0,
    )


def test_the_table_of_the_papers_example_is_what_explain_prints() -> None:
    cells = re.findall(r"^\| (\d) \| (\d+) \| (\w) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {number: (place, agent, *rest.split(" | ")) for place, number, agent, rest in cells}
    jobs = [make_job(number, "B", 10) for number in (201, 202, 203)]
    jobs += [make_job(number, "A", 20) for number in (101, 102, 103, 104)]
    node = NodeRecord(
        name=NodeName("n"), partitions=(MAIN,), state="idle", is_schedulable=True, tres=(("cpu", 9), ("mem", 18 * GIB))
    )
    seen = Observation(at_s=100.0, cluster="c", jobs=tuple(jobs), nodes=(node,))
    agents = tuple(
        AgentPolicy(name=AgentName(name), accounts=(account,), base_weight=Fraction(1, 2))
        for name, account in AGENTS.items()
    )
    site = SitePolicy(cluster="c", partitions=(MAIN,), agents=agents, factor_scale=40_000)
    found = {}
    for job in jobs:
        explained = explain_job(seen, site, (), job.job_id, now=100.0)
        place = explained.place
        assert place is not None
        before = {axis.tres: axis.held + axis.queued_before for axis in place.axes}
        shares = (str(place.dominant_share), str(place.tag), str(place.site_factor))
        amounts = (f"{before['cpu']}/9", f"{before['mem'] // GIB}/18")
        found[job.job_id] = (str(place.position), str(explained.submission.agent), *amounts, *shares)
    assert told == found
