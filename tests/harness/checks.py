"""What must hold (DESIGN section 2, promises 2 to 4), judged from the model alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from tests.harness.model import GPU, Job, Slurm, Start, total
from tests.harness.world import CYCLE_S

if TYPE_CHECKING:
    from tests.harness.world import World

MAX_OWED_S: Final = 2 * CYCLE_S
"""What an agent is owed may be held by loans this long: two cycles, since the model has no grace period."""

OVER_SERVED_FACTOR: Final = 4
"""Rank classes are factors of two wide; four times is more than one class apart."""

Amounts = dict[str, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """Counts over one or many runs; ``broken`` are violations by check.

    Attributes
    ----------
    stale : int
        Victims whose agent fell to nominal since the last observation (or by an earlier victim of the same claim).
    large : int
        Victims so large that their agent ended below what it is owed.
    worse : int
        Reclaims with such a victim, stale or large, that did not improve the potential.
    most_taken : int
        How often the unluckiest job was taken back.
    list_writes : int
        Distinct values of Preempt lists per cycle, summed: ``sacctmgr`` commands.
    """

    cycles: int = 0
    reclaims: int = 0
    victims: int = 0
    stale: int = 0
    large: int = 0
    worse: int = 0
    most_taken: int = 0
    list_writes: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def report(self, check: str, text: str) -> None:
        """Note a violation."""
        self.broken[check] += 1
        self.examples.setdefault(check, text)


class Judge:
    """Watches one world."""

    def __init__(self, world: World, tally: Tally) -> None:
        self.tally = tally
        self.slurm: Slurm = world.slurm
        assert world.site.bands is not None
        self.bands = world.site.bands
        gpus, cpus = self.slurm.shape
        n_nodes = len(self.slurm.free)
        self.capacity = {"cpu": cpus * n_nodes, GPU: gpus * n_nodes}
        self.nominal = {
            str(quota.agent): {name: limit for name, limit in quota.nominal or () if name in self.capacity}
            for quota in world.quotas
        }
        self.weight = {str(agent.name): agent.base_weight for agent in world.site.agents}
        self.seen_use: dict[str, Amounts] = {}
        self.seen_claim: dict[str, Amounts] = {}
        self.starving: dict[str, Job] = {}
        self.observed_s = 0.0
        self.owed_since: dict[int, float] = {}
        self.taken: Counter[int] = Counter()
        self.seen_taken: Counter[int] = Counter()

    def after_plan(self, now: float) -> None:
        """Remember what was observed, and judge where the pending jobs wait now."""
        self.tally.cycles += 1
        self.observed_s = now
        self.seen_taken = self.taken.copy()
        self.seen_use = {agent: self._use(agent) for agent in self.nominal}
        self.starving = {agent: job for agent in self.nominal if (job := self._find_starving(agent, now))}
        for agent in self.nominal:
            self._check_own_first(agent, now)
            self.seen_claim[agent] = self._use_with_claims(agent, now)

    def on_start(self, start: Start) -> None:
        """Judge one start; called right after it."""
        kept = self.starving.get(start.job.agent)
        if kept is not None and kept.job_id in self.slurm.pending and self._jumps(start.job, kept):
            self.tally.report("reservation", f"job {start.job.job_id} started before {kept.job_id}, which starves")
        n_taken = self.seen_taken[start.job.job_id]
        if start.job.qos != _guaranteed(start.job.agent) and n_taken >= self.bands.max_reclaims:
            self.tally.report("no loops", f"job {start.job.job_id} borrows although it was taken {n_taken} times")
        if start.victims:
            self._check_reclaim(start)

    def after_pass(self, now: float) -> None:
        """Judge who still waits, and whether anything died."""
        for agent in self.nominal:
            self._check_owed(agent, now)
        if self.slurm.n_dead:
            self.tally.report("no job dies", f"{self.slurm.n_dead} job(s) without requeue were preempted")
            self.slurm.n_dead = 0

    def _use(self, agent: str) -> Amounts:
        return total(job for job in self.slurm.running.values() if job.agent == agent)

    def _use_with_claims(self, agent: str, now: float) -> Amounts:
        """Its use, with the waiting jobs that its guaranteed band has room for."""
        claimed = self._use(agent)
        used = self.slurm.usage(_guaranteed(agent))
        for job in self._waiting(agent, now):
            if job.qos == _guaranteed(agent) and self._fits_quota(agent, used, job):
                for name, amount in job.amounts.items():
                    used[name] += amount
                    claimed[name] += amount
        return claimed

    def _waiting(self, agent: str, now: float) -> list[Job]:
        jobs = [job for job in self.slurm.pending.values() if job.agent == agent and job.eligible_s <= now]
        return sorted(jobs, key=lambda job: (job.submit_s, job.job_id))

    def _is_over(self, agent: str, use: Amounts) -> bool:
        return any(use.get(name, 0) > limit for name, limit in self.nominal[agent].items())

    def _over_share(self, agent: str, use: Amounts) -> Fraction:
        return max(Fraction(use[name] - self.nominal[agent][name], cap) for name, cap in self.capacity.items())

    def _fits_quota(self, agent: str, used: Amounts, job: Job) -> bool:
        limits = self.nominal[agent]
        return all(used.get(name, 0) + amount <= limits[name] for name, amount in job.amounts.items())

    def _find_starving(self, agent: str, now: float) -> Job | None:
        """The oldest job that fits the quota, but not what is left of it, for too long."""
        used = self.slurm.usage(_guaranteed(agent))
        for job in self._waiting(agent, now):
            is_due = now - job.eligible_s >= self.bands.starve_after_s
            if is_due and self._fits_quota(agent, {}, job) and not self._fits_quota(agent, used, job):
                return job
        return None

    def _check_own_first(self, agent: str, now: float) -> None:
        """A pending job leaves the guaranteed band only while the band is full for it, or kept."""
        waiting = self._waiting(agent, now)
        used = self.slurm.usage(_guaranteed(agent))
        for name, amount in total(job for job in waiting if job.qos == _guaranteed(agent)).items():
            used[name] += amount
        for job in waiting if agent not in self.starving else ():
            if job.qos != _guaranteed(agent) and self._fits_quota(agent, used, job):
                self.tally.report("own quota first", f"job {job.job_id} waits in {job.qos} although it has room")

    def _jumps(self, job: Job, kept: Job) -> bool:
        """Whether a movable younger job that the last plan knew of started on the quota kept for ``kept``."""
        is_movable = job.is_requeueable and f"{_guaranteed(job.agent)}_opp" in self.slurm.qos
        is_younger = kept.submit_s < job.submit_s <= self.observed_s and not self.taken[job.job_id]
        return job.qos == _guaranteed(job.agent) and is_movable and is_younger

    def _check_reclaim(self, start: Start) -> None:
        self.tally.reclaims += 1
        self.tally.victims += len(start.victims)
        before = self._uses_before(start)
        self._check_most_over_served(start)
        is_excused = self._check_protected(start, {agent: dict(use) for agent, use in before.items()})
        if not self._potential(start, is_after=True) < self._potential(start, is_after=False):
            self.tally.worse += is_excused
            if not is_excused:
                self.tally.report("improves", f"job {start.job.job_id} took {[job.job_id for job in start.victims]}")
        for victim in start.victims:
            self.taken[victim.job_id] += 1
            self.tally.most_taken = max(self.tally.most_taken, self.taken[victim.job_id])

    def _uses_before(self, start: Start) -> dict[str, Amounts]:
        uses = {agent: self._use(agent) for agent in self.nominal}
        for job, sign in [(start.job, -1), *((victim, 1) for victim in start.victims)]:
            for name, amount in job.amounts.items():
                uses[job.agent][name] += sign * amount
        return uses

    def _check_protected(self, start: Start, uses: dict[str, Amounts]) -> bool:
        """Nobody at or below nominal loses a job to another agent; whether an excuse was needed (and counted)."""
        is_excused = False
        for name, amount in start.job.amounts.items():
            uses[start.job.agent][name] += amount
        for victim in start.victims:
            agent = victim.agent
            if agent == start.job.agent:
                is_excused |= self._is_large(agent, uses[agent], victim)
                continue
            if not self._is_over(agent, self.seen_use[agent]):
                self.tally.report("at or below nominal", f"job {victim.job_id} of {agent} was taken back")
            elif not self._is_over(agent, uses[agent]):
                self.tally.stale += 1
                is_excused = True
            is_excused |= self._is_large(agent, uses[agent], victim)
        return is_excused

    def _is_large(self, agent: str, use: Amounts, victim: Job) -> bool:
        """Take the victim from the agent's use; whether that leaves the agent below what it is owed (counted)."""
        before = self._deficit(agent, use)
        for name, amount in victim.amounts.items():
            use[name] -= amount
        is_large = self._deficit(agent, use) > before
        self.tally.large += is_large
        return is_large

    def _check_most_over_served(self, start: Start) -> None:
        """A single victim does not come from an agent while another one, four times as far above, could have paid."""
        victim = start.victims[0]
        if len(start.victims) > 1 or victim.agent == start.job.agent or not victim.qos.endswith("_borrow"):
            return
        mine = self._over_share(victim.agent, self.seen_claim[victim.agent])
        free = self.slurm.free_without([start.job])
        for row in victim.nodes:
            free[row][0] -= victim.gpus
            free[row][1] -= victim.cpus
        for job in self.slurm.running.values():
            is_other = job.agent not in (victim.agent, start.job.agent) and job.qos.endswith("_borrow")
            if is_other and self._over_share(job.agent, self.seen_use[job.agent]) >= OVER_SERVED_FACTOR * mine > 0:
                with_it = [list(row) for row in free]
                for row in job.nodes:
                    with_it[row][0] += job.gpus
                    with_it[row][1] += job.cpus
                if self.slurm.place(with_it, start.job) is not None:
                    self.tally.report("most over-served first", f"{victim.agent} paid, {job.agent} was further above")
                    return

    def _potential(self, start: Start, *, is_after: bool) -> tuple[Fraction, list[Fraction], list[Fraction]]:
        """Deficits below nominal, then the weighted shares of opportunistic, then of borrowed work; less is better."""
        uses = {agent: self._use(agent) for agent in self.nominal} if is_after else self._uses_before(start)
        deficit = sum((self._deficit(agent, uses[agent]) for agent in self.nominal), start=Fraction(0))
        running = set(self.slurm.running.values())
        if not is_after:
            running = (running - {start.job}) | set(start.victims)
        return deficit, self._shares(running, "_opp"), self._shares(running, "_borrow")

    def _deficit(self, agent: str, use: Amounts) -> Fraction:
        demand = total(
            job for job in [*self.slurm.running.values(), *self.slurm.pending.values()] if job.agent == agent
        )
        owed = {name: min(limit, demand[name]) for name, limit in self.nominal[agent].items()}
        return max(Fraction(0), self._share(owed) - self._share(use))

    def _share(self, amounts: Amounts) -> Fraction:
        return max(Fraction(amounts[name], cap) for name, cap in self.capacity.items())

    def _shares(self, running: set[Job], suffix: str) -> list[Fraction]:
        shares = []
        for agent in self.nominal:
            used = total(job for job in running if job.agent == agent and job.qos.endswith(suffix))
            shares.append(self._share(used) / self.weight[agent])
        return sorted(shares, reverse=True)

    def _check_owed(self, agent: str, now: float) -> None:
        """What an agent is owed is not held by loans for longer than the bound."""
        use = self._use(agent)
        loans = [job for job in self.slurm.running.values() if self._is_loan_for(agent, job)]
        free = self.slurm.free_without(loans)
        kept = self.starving.get(agent)
        for job in [job for job in self.slurm.pending.values() if job.agent == agent]:
            is_owed = self._fits_quota(agent, use, job) and (kept is None or kept is job)
            if not is_owed or self.slurm.place(free, job) is None:
                self.owed_since.pop(job.job_id, None)
            elif now - self.owed_since.setdefault(job.job_id, now) > MAX_OWED_S:
                self.tally.report("owed quota", f"job {job.job_id} of {agent} waits {job.reason} in {job.qos}")
                self.owed_since[job.job_id] = now

    def _is_loan_for(self, agent: str, job: Job) -> bool:
        is_loan = job.qos != _guaranteed(job.agent)
        return is_loan and (job.agent == agent or self._is_over(job.agent, self.seen_use[job.agent]))


def _guaranteed(agent: str) -> str:
    return f"fg_h_{agent}"
