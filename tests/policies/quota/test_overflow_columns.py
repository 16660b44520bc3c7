"""The columns decide exactly what the pass job by job decides, whatever the cluster looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from policies import factor_plan
from policies.census import compute_state
from policies.cycle import decide, plan_bytes
from policies.plan import BandMemory
from policies.quota.memory import count_reclaims
from policies.quota.overflow import plan_overflow
from policies.records import JobId, Observation, QosRecord, Tres
from policies.site_policy import BandPolicy, SitePolicy
from tests.policies.quota.overflow_by_job import overflow_by_job, plan_bands_by_job, reclaims_by_job
from tests.strategies import NOW, make_job, make_node, make_observation, make_quota, make_running, make_site, make_tres

_QOS = ("fg_c_a", "fg_c_a_borrow", "fg_c_a_opp", "fg_c_b", "fg_c_b_borrow", "fg_c_b_opp", "normal", "premium")
_REASONS = ("Priority", "Resources", "None", "Dependency", "QOSGrpGRES", "QOSMaxGRESPerJob", "AssocGrpGRES")
_TRES = st.builds(make_tres, cpu=st.integers(1, 20), mem=st.just(100), gpu=st.integers(0, 4))
_SHAPES = st.lists(_TRES, min_size=1, max_size=3)
_PENDING = st.fixed_dictionaries(
    {
        "account": st.sampled_from(["a", "a", "b", "z"]),
        "qos": st.sampled_from(_QOS),
        "reason": st.sampled_from(_REASONS),
        "n_tasks": st.integers(1, 3),
        "n_nodes": st.sampled_from([1, 1, 1, 2]),
        "submit_s": st.sampled_from([int(NOW) - 900, int(NOW) - 700, int(NOW) - 10]),
        "eligible_s": st.sampled_from([None, None, int(NOW) + 60]),
        "restarts": st.integers(0, 2),
        "is_requeueable": st.sampled_from([True, True, True, False]),
        "priority": st.sampled_from([1, 1, 1, 0]),
    }
)


@st.composite
def queues(draw: st.DrawFn) -> Observation:
    """Two or three nodes, few shapes, many jobs in any band; an agent may lack a band or have no limit."""
    shapes = st.sampled_from(draw(_SHAPES))
    rows: list[tuple[dict[str, Any], Tres]] = draw(st.lists(st.tuples(_PENDING, shapes), max_size=14))
    running = draw(
        st.lists(st.tuples(st.sampled_from(["a", "b", "nobody"]), st.sampled_from(_QOS[:6]), shapes), max_size=6)
    )
    jobs = [
        make_running(str(number + 1), account, qos=qos, tres=tres, nodes=f"n{1 + number % 2}")
        for number, (account, qos, tres) in enumerate(running)
    ]
    jobs += [make_job(str(100 + number), **fields, tres=tres) for number, (fields, tres) in enumerate(rows)]
    nodes = [make_node(f"n{number}", up=draw(st.booleans()) or number == 1) for number in (1, 2)]
    return make_observation(jobs, nodes, qos=tuple(sorted(draw(_quotas()), key=lambda record: record.name)))


@st.composite
def _quotas(draw: st.DrawFn) -> tuple[QosRecord, ...]:
    gpus, borrow = st.integers(0, 6), st.integers(0, 3)
    limits = (("cpu", draw(st.integers(1, 40))), ("gres/gpu", draw(gpus)))
    first = make_quota("a", draw(gpus), borrow=draw(borrow), max_nodes=draw(st.sampled_from([None, 1])))
    second = make_quota("b", 0, limits=limits, borrow=draw(borrow), opp=draw(st.booleans()))
    return (*(first if draw(st.booleans()) else first[:1]), *second)


@st.composite
def sites(draw: st.DrawFn) -> SitePolicy:
    """Agents a, b and z; starving after 600 s or never."""
    starve_after_s = draw(st.sampled_from([600.0, float("inf")]))
    policy = BandPolicy(starve_after_s=starve_after_s, max_reclaims=draw(st.integers(1, 2)))
    return make_site({"a": 1, "b": 2, "z": 0}, bands=policy)


_MEMORY = st.lists(
    st.builds(
        BandMemory,
        job_id=st.integers(1, 110).map(lambda number: JobId(str(number))),
        restarts=st.integers(0, 2),
        reclaimed_s=st.sampled_from([(), (NOW - 10.0,), (NOW - 4000.0, NOW - 20.0)]),
        is_barred=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda item: item.job_id,
).map(tuple)


@given(queues(), sites(), st.sets(st.integers(100, 113)))
def test_columns_decide_as_the_pass_job_by_job(seen: Observation, site: SitePolicy, numbers: set[int]) -> None:
    state = compute_state(seen, site)
    assert state.bands is not None
    assert site.bands is not None
    order = list(range(len(state.pending)))[::-1]
    barred = frozenset(JobId(str(number)) for number in numbers)
    want = overflow_by_job(state, state.bands, order, policy=site.bands, barred=barred)
    got = plan_overflow(state, state.bands, order, policy=site.bands, barred=barred)
    assert {row: got.wishes.get(row) for row in order} == {row: want.wishes.get(row) for row in order}
    assert (got.never, got.idle_rows, got.idle_gpus) == (want.never, want.idle_rows, want.idle_gpus)
    assert (got.claims, got.claimants, got.victims) == (want.claims, want.claimants, want.victims)
    assert {agent: kept.row for agent, kept in got.reservations.items()} == {
        agent: kept.row for agent, kept in want.reservations.items()
    }


@given(queues(), sites(), _MEMORY)
def test_plans_are_the_same_byte_for_byte(seen: Observation, site: SitePolicy, memory: tuple[BandMemory, ...]) -> None:
    with patch.object(factor_plan, "plan_bands", plan_bands_by_job):
        want = plan_bytes(decide(seen, site, (), memory, now=NOW))
    assert plan_bytes(decide(seen, site, (), memory, now=NOW)) == want


@given(queues(), sites(), _MEMORY, st.sampled_from(["", "1", "100"]))
def test_reclaims_are_counted_as_job_by_job(
    seen: Observation, site: SitePolicy, memory: tuple[BandMemory, ...], array: str
) -> None:
    jobs = tuple(replace(job, array_job_id=array, array_task_id=array and "7") for job in seen.jobs)
    state = compute_state(replace(seen, jobs=jobs), site)
    assert state.bands is not None
    assert site.bands is not None
    want = reclaims_by_job(state, state.bands, memory, site.bands)
    assert count_reclaims(state, state.bands, memory, site.bands) == want
