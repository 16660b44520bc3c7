"""Any cluster with bands: the plan is the same whatever the order of the rows, and enacting it settles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from policies.cycle import decide, plan_bytes
from policies.plan import SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor
from policies.quota.names import Band
from policies.site_policy import BandPolicy
from tests.policies.quota.band_cases import QUOTAS
from tests.strategies import NOW, make_site, observations

if TYPE_CHECKING:
    import random

    from policies.plan import BandMemory, Decision, Plan
    from policies.records import Observation

SITE = make_site({"a": 1, "b": 1, "z": 0}, bands=BandPolicy())
_BANDS = ("fg_c_a", "fg_c_a_borrow", "fg_c_a_opp", "fg_c_b", "fg_c_b_borrow", "fg_c_b_opp", "normal", "premium")


@st.composite
def banded(draw: st.DrawFn) -> Observation:
    """A small cluster whose jobs are spread over the bands of a and b and other QOSes."""
    seen = draw(observations())
    jobs = tuple(
        replace(
            job,
            qos=draw(st.sampled_from(_BANDS)),
            is_requeueable=draw(st.booleans()),
            restarts=draw(st.integers(0, 2)),
        )
        for job in seen.jobs
    )
    return replace(seen, jobs=jobs, qos=tuple(sorted(QUOTAS, key=lambda record: record.name)))


def enact(seen: Observation, plan: Plan) -> Observation:
    jobs = {job.job_id: job for job in seen.jobs}
    qos = {record.name: record for record in seen.qos}
    for change in plan.decisions:
        match change:
            case SetQos():
                jobs[change.job_id] = replace(jobs[change.job_id], qos=change.new)
            case SetSiteFactor():
                jobs[change.job_id] = replace(jobs[change.job_id], site_factor=change.new)
            case SetBorrowRank():
                qos[change.qos] = replace(qos[change.qos], priority=change.new)
            case SetPreemptList():
                qos[change.qos] = replace(qos[change.qos], preempt=change.new)
            case _:
                pass
    return replace(seen, jobs=tuple(jobs.values()), qos=tuple(qos.values()))


@given(banded(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(seen: Observation, rng: random.Random) -> None:
    jobs, nodes, qos = list(seen.jobs), list(seen.nodes), list(seen.qos)
    for rows in (jobs, nodes, qos):
        rng.shuffle(rows)
    shuffled = replace(seen, jobs=tuple(jobs), nodes=tuple(nodes), qos=tuple(qos))
    mine, other = decide(seen, SITE, now=NOW), decide(shuffled, SITE, now=NOW)
    assert (mine.decisions, mine.standings, mine.band_memory) == (other.decisions, other.standings, other.band_memory)


@given(banded())
def test_enacting_settles(seen: Observation) -> None:
    # A job that comes from elsewhere may move once more, and lists forget an own QOS only when it is seen empty.
    memory: tuple[BandMemory, ...] = ()
    changes: list[Decision] = []
    for _ in range(4):
        plan = decide(seen, SITE, (), memory, now=NOW)
        seen, memory = enact(seen, plan), plan.band_memory
        changes = [one for one in plan.decisions if isinstance(one, SetQos | SetBorrowRank | SetPreemptList)]
    assert not changes


@given(banded())
def test_what_would_die_is_never_sent_to_borrow(seen: Observation) -> None:
    jobs = {job.job_id: job for job in seen.jobs}
    moved = [change for change in decide(seen, SITE, now=NOW).decisions if isinstance(change, SetQos)]
    assert all(jobs[change.job_id].is_requeueable or change.new in ("fg_c_a", "fg_c_b") for change in moved)


@given(banded())
def test_without_the_section_bands_change_nothing(seen: Observation) -> None:
    plain = replace(SITE, bands=None)
    blank = replace(seen, qos=(), jobs=tuple(replace(job, qos="") for job in seen.jobs))
    assert plan_bytes(decide(seen, plain, now=NOW)) == plan_bytes(decide(blank, plain, now=NOW))


def test_bands_are_three() -> None:
    assert [band.value for band in Band] == ["guaranteed", "borrow", "opportunistic"]
