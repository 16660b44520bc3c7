"""A scripted world: agents with given GPU quotas on given nodes, jobs as told, cycles of the core and the model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from policies.cycle import decide
from policies.plan import BandMemory
from policies.quota.nominal import compute_nominals
from policies.records import AccountName, AgentName
from policies.site_policy import AgentPolicy, BandPolicy, Quota, QuotaKind, SitePolicy
from tests.harness.model import GPU, Job, Slurm, Start, total
from tests.harness.world import CYCLE_S, PARTITION, PASSES, START_S, World, enact, make_nodes, make_qos, observe

FOREVER_S = 1e9


@dataclass(slots=True, kw_only=True, eq=False)
class Play:
    """One scripted run.

    Attributes
    ----------
    quotas : mapping of str to int or None
        GPUs per agent; ``None`` is the automatic quota by weight.
    n_nodes, gpus : int
        Equal nodes.
    """

    quotas: Mapping[str, int | None]
    gpus: int
    n_nodes: int = 1
    weights: Mapping[str, int] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    _world: World = field(init=False)
    _memory: tuple[BandMemory, ...] = ()
    _cycle: int = 0

    def __post_init__(self) -> None:
        agents = tuple(self._agent(name, quota) for name, quota in sorted(self.quotas.items()))
        site = SitePolicy(cluster="h", partitions=(PARTITION,), agents=agents, bands=BandPolicy())
        slurm = Slurm(self.n_nodes, self.gpus, self.gpus * 8)
        nodes = make_nodes(slurm)
        quotas = compute_nominals(site, nodes)
        assert site.bands is not None
        slurm.qos = make_qos(quotas, site.bands)
        rng = random.Random(0)  # noqa: S311 - not used by a scripted run
        self._world = World(rng=rng, slurm=slurm, site=site, quotas=quotas, nodes=nodes, appetite={})

    def submit(self, agent: str, *sizes: int, run_s: float = FOREVER_S) -> Play:
        """Jobs of these sizes in GPUs, one CPU per GPU."""
        now = START_S + self._cycle * CYCLE_S
        for gpus in sizes:
            self._world.next_id += 1
            job = Job(
                job_id=self._world.next_id,
                agent=agent,
                gpus=gpus,
                cpus=gpus,
                run_s=run_s,
                qos=f"fg_h_{agent}",
                submit_s=now,
                eligible_s=now,
            )
            self._world.slurm.pending[job.job_id] = job
        return self

    def run(self, n_cycles: int = 50) -> Play:
        """Observe, decide, enact, let Slurm look at its queue; so many times."""
        world = self._world
        for _ in range(n_cycles):
            now = START_S + self._cycle * CYCLE_S
            world.slurm.finish(now)
            plan = decide(observe(world, now), world.site, (), self._memory, now=now)
            self._memory = plan.band_memory
            enact(world, plan, now)
            for number in range(PASSES):
                at_s = now + (number + 0.5) * CYCLE_S / PASSES
                world.slurm.finish(at_s)
                world.slurm.run_pass(at_s, self._note)
            self._cycle += 1
        return self

    def use(self) -> dict[str, int]:
        """GPUs in use by agent."""
        running = self._world.slurm.running.values()
        return {agent: total(job for job in running if job.agent == agent)[GPU] for agent in sorted(self.quotas)}

    def _note(self, start: Start) -> None:
        for victim in start.victims:
            self.taken[victim.agent] += 1

    def _agent(self, name: str, quota: int | None) -> AgentPolicy:
        explicit = Quota() if quota is None else Quota(kind=QuotaKind.EXPLICIT, amounts=((GPU, quota),))
        weight = Fraction(self.weights.get(name, 1))
        return AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=weight, quota=explicit)
