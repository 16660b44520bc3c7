"""Speed of the core: ``python benchmarks/bench_core.py [--runs N]``; ``benchmarks/run.py`` records it.

Each line is the median of k runs, and its ratio to a reference calculation timed in the same run (sorting 10,000
floats), because absolute times mean little on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from policies.census import compute_state
from policies.cycle import decide
from policies.fairness.progressive_filling import progressive_filling
from policies.fairness.share import standing_tag
from policies.fairness.site_factor import compute_site_factor
from policies.plan import BandMemory, SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor, StartNow
from policies.quota.amounts import add_tres, n_fitting
from policies.quota.layout import HIGHEST_BORROW_PRIORITY, OPPORTUNISTIC_PRIORITY, full_preempt_list
from policies.quota.names import Band
from policies.quota.nominal import AgentQuota, compute_nominals
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
    QosRecord,
    Tres,
)
from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

GPU = PartitionName("gpu")
NOW = 1_800_000_000.0
N_NODES, GPUS_PER_NODE, N_AGENTS, N_PENDING = 125, 8, 100, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured line; the best run is the one that other processes disturbed least."""

    name: str
    median_ms: float
    best_ms: float
    runs: int
    ratio: float
    target_ms: float | None = None


def make_site() -> SitePolicy:
    """100 agents with uneven weights."""
    rng = random.Random(1)
    agents = tuple(
        AgentPolicy(
            name=AgentName(f"agent{i:03}"),
            accounts=(AccountName(f"acc{i:03}"),),
            base_weight=Fraction(rng.randint(1, 100), 100),
        )
        for i in range(N_AGENTS)
    )
    return SitePolicy(cluster="bench", partitions=(GPU,), agents=agents)


def make_observation() -> Observation:
    """1,000 GPUs full of 1-GPU jobs and 10,000 pending jobs: 80 shapes, 1,000 distinct comments."""
    rng = random.Random(2)
    node_tres = (("cpu", 128), ("gres/gpu", GPUS_PER_NODE), ("mem", 2_063_000))
    nodes = tuple(
        NodeRecord(name=NodeName(f"gpu{i:03}"), partitions=(GPU,), state="mixed", is_schedulable=True, tres=node_tres)
        for i in range(N_NODES)
    )
    shapes: list[Tres] = [
        (("cpu", rng.randint(1, 16)), ("gres/gpu", rng.randint(1, 8)), ("mem", 1000 * rng.randint(8, 128)))
        for _ in range(80)
    ]
    jobs = [_job(i, rng, shapes, is_running=True) for i in range(N_NODES * GPUS_PER_NODE)]
    jobs += [_job(1000 + i, rng, shapes, is_running=False) for i in range(N_PENDING)]
    return Observation(at_s=NOW, cluster="bench", jobs=tuple(jobs), nodes=nodes)


def _job(number: int, rng: random.Random, shapes: list[Tres], *, is_running: bool) -> JobRecord:
    agent = rng.randrange(N_AGENTS)
    return JobRecord(
        job_id=JobId(str(number + 1)),
        user=f"user{agent:03}",
        uid=1000 + agent,
        account=AccountName(f"acc{agent:03}"),
        partitions=(GPU,),
        state=JobState.RUNNING if is_running else JobState.PENDING,
        reason="None" if is_running else rng.choice(("Priority", "Resources", "Priority", "Dependency")),
        tres=(("cpu", 8), ("gres/gpu", 1), ("mem", 64_000)) if is_running else rng.choice(shapes),
        priority=1000,
        submit_s=int(NOW) - rng.randint(0, 100_000),
        nodes=f"gpu{number % N_NODES:03}" if is_running else "",
        comment=f"agent=agent{agent:03} stage=train run={rng.randrange(10)}",
        site_factor=None if is_running else 0,
    )


def with_own_comments(observation: Observation) -> Observation:
    """The same jobs, but no two comments are alike."""
    jobs = tuple(replace(job, comment=f"{job.comment} model=bert@{job.job_id}") for job in observation.jobs)
    return replace(observation, jobs=jobs)


def settle(observation: Observation, site: SitePolicy) -> Observation:
    """The observation after the plan was enacted: the steady state."""
    decisions = decide(observation, site, now=NOW).decisions
    new = {decision.job_id: decision.new for decision in decisions if isinstance(decision, SetSiteFactor)}
    jobs = tuple(replace(job, site_factor=new.get(job.job_id, job.site_factor)) for job in observation.jobs)
    return replace(observation, jobs=jobs)


def with_bands(site: SitePolicy, observation: Observation) -> tuple[SitePolicy, Observation]:
    """The same cluster after ``fairgpu apply``: running jobs fill each agent's quota, then its cap, then go beyond."""
    site = replace(site, bands=BandPolicy())
    quotas = compute_nominals(site, observation.nodes)
    used: dict[str, dict[str, int]] = {}
    by_account = {agent.accounts[0]: quota for agent, quota in zip(site.agents, quotas, strict=True)}
    jobs = tuple(replace(job, qos=_band(job, by_account[job.account], used)) for job in observation.jobs)
    qos = sorted((record for quota in quotas for record in _records(quota, quotas)), key=lambda record: record.name)
    return site, replace(observation, jobs=jobs, qos=tuple(qos))


def _band(job: JobRecord, quota: AgentQuota, used: dict[str, dict[str, int]]) -> str:
    for name, limits in ((quota.guaranteed_qos, quota.nominal), (quota.borrow_qos, quota.borrow_cap)):
        in_use = used.setdefault(str(name), {})
        if job.state is JobState.PENDING or n_fitting(limits or (), in_use, job.tres, 1):
            add_tres(in_use, job.tres if job.state is JobState.RUNNING else ())
            return str(name)
    return str(quota.opportunistic_qos)


def _records(quota: AgentQuota, quotas: tuple[AgentQuota, ...]) -> list[QosRecord]:
    bands = (
        (Band.GUARANTEED, quota.guaranteed_qos, 100, quota.nominal),
        (Band.BORROW, quota.borrow_qos, HIGHEST_BORROW_PRIORITY, quota.borrow_cap),
        (Band.OPPORTUNISTIC, quota.opportunistic_qos, OPPORTUNISTIC_PRIORITY, ()),
    )
    return [
        QosRecord(
            name=str(name),
            priority=priority,
            grp_tres=limits or (),
            max_tres_per_job=(("node", 1),) if band is Band.BORROW else (),
            preempt=full_preempt_list(quotas, quota.agent, band),
        )
        for band, name, priority, limits in bands
    ]


def settle_bands(observation: Observation, site: SitePolicy) -> tuple[Observation, tuple[BandMemory, ...]]:
    """The observation after a plan with bands was enacted, and what is remembered."""
    plan = decide(observation, site, now=NOW)
    jobs = {job.job_id: job for job in observation.jobs}
    qos = {record.name: record for record in observation.qos}
    for decision in plan.decisions:
        match decision:
            case SetSiteFactor():
                jobs[decision.job_id] = replace(jobs[decision.job_id], site_factor=decision.new)
            case SetQos():
                jobs[decision.job_id] = replace(jobs[decision.job_id], qos=decision.new)
            case SetBorrowRank():
                qos[decision.qos] = replace(qos[decision.qos], priority=decision.new)
            case SetPreemptList():
                qos[decision.qos] = replace(qos[decision.qos], preempt=decision.new)
            case StartNow():
                pass
    return replace(observation, jobs=tuple(jobs.values()), qos=tuple(qos.values())), plan.band_memory


def time_ms(call: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median and best wall time of one call."""
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times), min(times)


def measure(runs: int) -> list[Row]:
    """Every line of the table."""
    site, fresh = make_site(), make_observation()
    steady = settle(fresh, site)
    own_steady = settle(with_own_comments(fresh), site)
    assert not decide(steady, site, now=NOW).decisions
    banded, full = with_bands(site, fresh)
    in_bands, memory = settle_bands(full, banded)
    patient = replace(banded, bands=BandPolicy(starve_after_s=float("inf")))
    in_bands_patient, memory_patient = settle_bands(full, patient)
    assert not decide(in_bands, banded, (), memory, now=NOW).decisions
    rng = np.random.default_rng(3)
    floats = rng.random(10_000).tolist()
    demand = rng.integers(0, 8, (1000, 4)).astype(float)
    weights, tasks = rng.uniform(0.1, 2, 1000), rng.integers(1, 50, 1000).astype(float)
    capacity = demand.sum(axis=0) * np.array([3.0, 5.0, 9.0, 14.0])
    amounts, caps, weight = (12_345, 987_654, 321), (16_000, 257_875_000, 1000), Fraction(137, 10_000)
    reference, best = time_ms(lambda: sorted(floats), runs)

    def hook() -> None:
        for _ in range(1000):
            compute_site_factor(standing_tag(amounts, caps, weight), 40_000)

    def drf() -> None:
        progressive_filling(demand, capacity, weights, max_tasks=tasks)

    calls: list[tuple[str, Callable[[], object], float | None]] = [
        ("decide, steady state (0 updates)", lambda: decide(steady, site, now=NOW), 50.0),
        ("decide, steady state, every comment different", lambda: decide(own_steady, site, now=NOW), 50.0),
        (f"decide, first factors ({N_PENDING} updates)", lambda: decide(fresh, site, now=NOW), None),
        (
            "decide with bands, a job starves in each agent",
            lambda: decide(in_bands, banded, (), memory, now=NOW),
            80.0,
        ),
        (
            "decide with bands, nobody starves",
            lambda: decide(in_bands_patient, patient, (), memory_patient, now=NOW),
            80.0,
        ),
        ("decide with bands, first factors and moves", lambda: decide(full, banded, now=NOW), None),
        ("compute_state, part of all", lambda: compute_state(steady, site), None),
        ("weighted DRF, 1,000 agents x 4 TRES", drf, 1.0),
        ("hook: 1,000 x standing_tag + compute_site_factor", hook, 10.0),
    ]
    rows = [Row(name="reference: sort 10,000 floats", median_ms=reference, best_ms=best, runs=runs, ratio=1.0)]
    for name, call, target in calls:
        call()
        value, best = time_ms(call, runs)
        ratio = value / reference
        rows.append(Row(name=name, median_ms=value, best_ms=best, runs=runs, ratio=ratio, target_ms=target))
    return rows


def sizes() -> str:
    """What was measured, in words."""
    gpus = N_NODES * GPUS_PER_NODE
    return f"{gpus:,} GPUs, {N_AGENTS} agents, {N_PENDING:,} pending jobs; seeds 1 (site), 2 (jobs), 3 (arrays)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    print(f"{sizes()}\n\n{'':50} {'median ms':>10} {'best ms':>10} {'target ms':>10} {'x reference':>12}")
    for row in measure(options.runs):
        target = "" if row.target_ms is None else f"{row.target_ms:g}"
        print(f"{row.name:50} {row.median_ms:10.3f} {row.best_ms:10.3f} {target:>10} {row.ratio:12.2f}")
    print(f"\nmedian of {options.runs} runs; reference in the same run")


if __name__ == "__main__":
    main()
