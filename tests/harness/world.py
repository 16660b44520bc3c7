"""Random clusters and workloads, and the border between the model and the core: observe and enact."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import assert_never

from policies.plan import Plan, SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor, StartNow
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
)
from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy
from tests.harness.model import CPU, GPU, REQUEUE_DELAY_S, Job, Qos, Slurm

START_S = 1_000_000.0
CYCLE_S = 10.0
PASSES = 3
PARTITION = PartitionName("p")
_GUARANTEED_PRIORITY = 100


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """One cluster with its agents; ``appetite`` says how much each agent wants to have in the queue, in GPUs."""

    rng: random.Random
    slurm: Slurm
    site: SitePolicy
    quotas: tuple[AgentQuota, ...]
    nodes: tuple[NodeRecord, ...]
    appetite: dict[str, int]
    next_id: int = 1


def make_world(seed: int) -> World:
    """A random cluster of 8 to 32 GPUs with 2 to 5 agents."""
    rng = random.Random(seed)  # noqa: S311 - random states, no secrets
    n_nodes, gpus = rng.choice([(2, 4), (4, 4), (6, 4), (4, 8), (8, 4)])
    slurm = Slurm(n_nodes, gpus, gpus * 8)
    slurm.requeue_delay_s = rng.choice([CYCLE_S + 2.0, REQUEUE_DELAY_S])
    names = ["a", "b", "c", "d", "e"][: rng.randint(2, 5)]
    agents = tuple(
        AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=Fraction(rng.randint(1, 5)))
        for name in names
    )
    bands = BandPolicy(
        borrow_frac=rng.choice([Fraction(1, 5), Fraction(1), Fraction(3)]),
        opportunistic=rng.random() < 0.5,
        max_reclaims=rng.randint(1, 3),
        starve_after_s=60.0,
    )
    site = SitePolicy(cluster="h", partitions=(PARTITION,), agents=agents, bands=bands)
    nodes = make_nodes(slurm)
    quotas = compute_nominals(site, nodes)
    slurm.qos = make_qos(quotas, bands)
    appetite = dict.fromkeys(names, 0)
    return World(rng=rng, slurm=slurm, site=site, quotas=quotas, nodes=nodes, appetite=appetite)


def make_nodes(slurm: Slurm) -> tuple[NodeRecord, ...]:
    """The model's nodes as the core sees them."""
    gpus, cpus = slurm.shape
    tres = ((CPU, cpus), (GPU, gpus), ("mem", 1_000_000))
    return tuple(
        NodeRecord(name=NodeName(f"n{row}"), partitions=(PARTITION,), state="up", is_schedulable=True, tres=tres)
        for row in range(len(slurm.free))
    )


def make_qos(quotas: tuple[AgentQuota, ...], bands: BandPolicy) -> dict[str, Qos]:
    """The QOSes as ``apply`` would create them."""
    made: dict[str, Qos] = {}
    for quota in quotas:
        assert quota.guaranteed_qos
        assert quota.borrow_qos
        assert quota.nominal is not None
        made[quota.guaranteed_qos] = Qos(
            priority=_GUARANTEED_PRIORITY,
            limits=dict(quota.nominal),
            preempt=frozenset(full_preempt_list(quotas, quota.agent, Band.GUARANTEED)),
        )
        made[quota.borrow_qos] = Qos(
            priority=HIGHEST_BORROW_PRIORITY,
            limits=dict(quota.borrow_cap),
            max_nodes=bands.max_borrow_nodes,
            preempt=frozenset(full_preempt_list(quotas, quota.agent, Band.BORROW)),
        )
        if quota.opportunistic_qos:
            made[quota.opportunistic_qos] = Qos(priority=OPPORTUNISTIC_PRIORITY)
    return made


def submit(world: World, now: float) -> None:
    """Each agent tops its queue up to its appetite, which changes now and then: idle, quota-sized, greedy."""
    rng, slurm = world.rng, world.slurm
    size = slurm.shape[0] * len(slurm.free)
    for quota in world.quotas:
        agent = str(quota.agent)
        if rng.random() < 0.2:
            world.appetite[agent] = rng.choice([0, 0, size // 4, size, 2 * size])
        queued = sum(job.gpus * job.n_nodes for job in slurm.pending.values() if job.agent == agent)
        while queued < world.appetite[agent]:
            job = _make_job(world, quota, now)
            slurm.pending[job.job_id] = job
            queued += job.gpus * job.n_nodes


def _make_job(world: World, quota: AgentQuota, now: float) -> Job:
    rng = world.rng
    gpus = min(world.slurm.shape[0], rng.choice([1, 1, 1, 1, 2, 4]))
    world.next_id += 1
    assert quota.guaranteed_qos
    return Job(
        job_id=world.next_id,
        agent=str(quota.agent),
        gpus=gpus,
        cpus=gpus * rng.choice([1, 4, 8]),
        n_nodes=rng.choice([1] * 9 + [2]),
        run_s=rng.choice([15.0, 30.0, 200.0, 400.0]),
        is_requeueable=rng.random() < 0.9,
        qos=quota.guaranteed_qos,
        submit_s=now,
        eligible_s=now,
    )


def observe(world: World, now: float) -> Observation:
    """What slurmctld shows."""
    slurm = world.slurm
    jobs = [_record(job, is_running=job.job_id in slurm.running) for job in _all_jobs(slurm)]
    qos = tuple(
        QosRecord(
            name=name,
            priority=shown.priority,
            preempt=tuple(sorted(shown.preempt)),
            grp_tres=tuple(sorted(shown.limits.items())),
            max_tres_per_job=() if shown.max_nodes is None else (("node", shown.max_nodes),),
        )
        for name, shown in sorted(slurm.qos.items())
    )
    return Observation(at_s=now, cluster="h", jobs=tuple(jobs), nodes=world.nodes, qos=qos)


def _all_jobs(slurm: Slurm) -> list[Job]:
    return sorted([*slurm.running.values(), *slurm.pending.values()], key=lambda job: job.job_id)


def _record(job: Job, *, is_running: bool) -> JobRecord:
    return JobRecord(
        job_id=JobId(str(job.job_id)),
        user="u",
        uid=1,
        account=AccountName(job.agent),
        qos=job.qos,
        partitions=(PARTITION,),
        state=JobState.RUNNING if is_running else JobState.PENDING,
        reason="None" if is_running else job.reason,
        tres=((CPU, job.cpus * job.n_nodes), (GPU, job.gpus * job.n_nodes)),
        n_nodes=job.n_nodes,
        is_requeueable=job.is_requeueable,
        priority=1,
        site_factor=None if is_running else job.factor,
        submit_s=int(job.submit_s),
        eligible_s=int(job.eligible_s),
        restarts=job.restarts,
        nodes=",".join(f"n{row}" for row in job.nodes),
    )


def enact(world: World, plan: Plan, now: float) -> None:
    """Do what the plan says, as Slurm would."""
    slurm = world.slurm
    for decision in plan.decisions:
        match decision:
            case SetSiteFactor():
                slurm.pending[int(decision.job_id)].factor = decision.new
            case SetQos():
                slurm.pending[int(decision.job_id)].qos = decision.new
            case StartNow():
                slurm.pending[int(decision.job_id)].eligible_s = now
            case SetBorrowRank():
                slurm.qos[decision.qos].priority = decision.new
            case SetPreemptList():
                slurm.qos[decision.qos].preempt = frozenset(decision.new)
            case _:
                assert_never(decision)


def as_if_all_could_be_requeued(observation: Observation) -> Observation:
    """The same cluster, seen by somebody who does not look at ``--no-requeue``."""
    return replace(observation, jobs=tuple(replace(job, is_requeueable=True) for job in observation.jobs))
