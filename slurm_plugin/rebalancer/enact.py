"""Enact: a plan's decisions become writes to Slurm, head first, under the rate limit, undoable.

Before the first write to a job its former value is in the journal. The kill switch is asked before every chunk,
a stop is honoured between two. What is not written now is decided again in the next cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from policies.plan import SetPreemptList, SetSiteFactor
from policies.site_policy import Mode
from slurm_plugin.client import SlurmClient
from slurm_plugin.client.qos import NO_LISTS
from slurm_plugin.errors import SlurmAuthError, SlurmError, StaleStateError
from slurm_plugin.qos_helper.client import QosHelper
from slurm_plugin.rebalancer.decision_view import job_of, key_of
from slurm_plugin.rebalancer.history import History
from slurm_plugin.rebalancer.outcomes import EnactOutcome, EnactReport
from slurm_plugin.rebalancer.pauses import Pauses, factor_key, move_key
from slurm_plugin.rebalancer.rate_limit import TokenBucket
from slurm_plugin.rebalancer.reset import ResetReport, apply_moves, apply_restores
from slurm_plugin.rebalancer.strays import find_strays
from slurm_plugin.rebalancer.writers import Batch, EnactRules, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policies.plan import Decision, Plan
    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy

CHUNK: Final = 100
"""Updates per command: about 0.1 s between two looks at the kill switch."""

MAX_AGE_S: Final = 60.0
"""An observation older than this is not acted on."""

MIN_JOB_AGE_S: Final = 5
"""Below Slurm 24.11 an update of a job that slurmdbd does not know yet sleeps a second or more in slurmctld."""

_SLEEPS_BEFORE: Final = (24, 11)


@dataclass(slots=True, kw_only=True)
class Enactor:
    """What enacting needs and remembers between cycles.

    Attributes
    ----------
    is_off, is_stopping : callable
        Asked before every chunk.
    pauses : Pauses
        What is left alone for a while.
    """

    client: SlurmClient
    helper: QosHelper
    history: History
    bucket: TokenBucket
    is_off: Callable[[], bool]
    is_stopping: Callable[[], bool] = lambda: False
    pauses: Pauses = field(default_factory=Pauses)

    def enact(self, plan: Plan, observation: Observation, *, rules: EnactRules, now_s: float) -> EnactReport:
        """Write what the plan says; return what became of each decision.

        Raises
        ------
        StaleStateError
            The observation is too old, from the future or incomplete, or the plan is of another observation;
            nothing was written.
        """
        batch = Batch(
            rules=rules,
            now_s=now_s,
            jobs={job.job_id: job for job in observation.jobs},
            is_database_away=any(problem.startswith(NO_LISTS) for problem, _ in observation.problems),
            lists=tuple(one for one in plan.decisions if isinstance(one, SetPreemptList)),
        )
        error = None
        if rules.mode is not Mode.ENFORCE:
            batch.note(plan.decisions, EnactOutcome.NOT_ENFORCED)
        else:
            if plan.decisions:
                check_fresh(plan, observation, now_s=now_s)
            ready = self._ready(plan.decisions, batch, min_age_s=min_job_age_s(observation.slurm_version))
            granted, self.bucket = self.bucket.take(len(ready), now_s=now_s)
            error = self._write(ready[:granted], batch)
        return EnactReport(enacted=tuple(map(batch.enacted, plan.decisions)), error=error)

    def release(self, observation: Observation, policy: SitePolicy, *, now_s: float) -> ResetReport:
        """Give waiting jobs that are no agent's any more their former factor and QOS back, under the same limits.

        Raises
        ------
        SlurmUnavailable, SlurmAuthError
            Slurm went away or refuses; what was done so far is noted.
        """
        min_age_s = min_job_age_s(observation.slurm_version)
        found = find_strays(observation, policy, self.history)
        factors = [one for one in found.factors if factor_key(one.job.job_id) not in self.pauses]
        factors = [one for one in factors if not is_young(one.job, now_s=now_s, min_age_s=min_age_s)]
        moves = [one for one in found.moves if move_key(one.job.job_id) not in self.pauses]
        moves = [one for one in moves if not is_young(one.job, now_s=now_s, min_age_s=min_age_s)]
        if not (factors or moves) or self._stopped() is not None:
            return ResetReport()
        n_granted, self.bucket = self.bucket.take(len(factors) + len(moves), now_s=now_s)
        factors = factors[:n_granted]
        report = apply_restores(factors, self.client, self.history, at_s=observation.at_s)
        moved = apply_moves(moves[: n_granted - len(factors)], self.client)
        for job_id, _ in report.failed:
            self.pauses.note_refused(factor_key(job_id), now_s=now_s)
        for job_id, _ in moved.failed:
            self.pauses.note_refused(move_key(job_id), now_s=now_s)
        return report.plus(moved)

    def _ready(self, decisions: Sequence[Decision], batch: Batch, *, min_age_s: int) -> list[Decision]:
        wrong = {decision.job_id for decision in decisions if isinstance(decision, SetSiteFactor)}
        self.pauses.refresh(wrong, batch.jobs, now_s=batch.now_s)
        ready = []
        for decision in decisions:
            job_id = job_of(decision)
            job = None if job_id is None else batch.jobs.get(job_id)
            if job_id is not None and job is None:
                batch.note([decision], EnactOutcome.GONE, "not in the observation")
            elif key_of(decision) in self.pauses:
                batch.note([decision], EnactOutcome.PAUSED, "its last update was refused or had no effect")
            elif job is not None and is_young(job, now_s=batch.now_s, min_age_s=min_age_s):
                batch.note([decision], EnactOutcome.YOUNG, f"younger than {min_age_s} s")
            else:
                ready.append(decision)
        return ready

    def _write(self, decisions: Sequence[Decision], batch: Batch) -> SlurmError | None:
        writer = Writer(client=self.client, helper=self.helper, history=self.history, pauses=self.pauses)
        left = list(_chunks(decisions))
        while left:
            stopped = self._stopped()
            if stopped is not None:
                batch.note([decision for chunk in left for decision in chunk], stopped)
                return None
            chunk = left.pop(0)
            try:
                writer.write(chunk, batch)
            except SlurmAuthError as err:
                batch.note(chunk, EnactOutcome.REJECTED, str(err))
                return err
            except SlurmError as err:
                batch.note(chunk, EnactOutcome.UNANSWERED, str(err))
                return err
        return None

    def _stopped(self) -> EnactOutcome | None:
        if self.is_off():
            return EnactOutcome.OFF
        return EnactOutcome.STOPPED if self.is_stopping() else None


def _chunks(decisions: Sequence[Decision]) -> Iterator[list[Decision]]:
    """Neighbours of one kind together, in the plan's order; QOSes that get one Preempt list stay together."""
    for (kind, _), run in groupby(decisions, key=_kind):
        alike = list(run)
        step = len(alike) if kind is SetPreemptList else CHUNK
        for start in range(0, len(alike), step):
            yield alike[start : start + step]


def _kind(decision: Decision) -> tuple[type[Decision], tuple[str, ...]]:
    return type(decision), decision.new if isinstance(decision, SetPreemptList) else ()


def check_fresh(plan: Plan, observation: Observation, *, now_s: float) -> None:
    """Check that a plan may be acted on.

    Raises
    ------
    StaleStateError
        As :meth:`Enactor.enact`.
    """
    age_s = now_s - observation.at_s
    if not -MAX_AGE_S <= age_s <= MAX_AGE_S:
        raise StaleStateError(f"the observation is {age_s:.1f} s old: nothing written")
    if plan.at_s != observation.at_s:
        raise StaleStateError("the plan is of another observation: nothing written")
    if not observation.nodes:
        raise StaleStateError("Slurm showed no node at all: nothing written")
    blind = [problem for problem, _ in observation.problems if problem.startswith("no site factors")]
    if blind:
        raise StaleStateError(f"the present site factors could not be read ({blind[0]}): nothing written")


def is_young(job: JobRecord, *, now_s: float, min_age_s: int) -> bool:
    """Return whether an update of the job may make slurmctld sleep; one from the future is old, the clock is not."""
    return -min_age_s <= now_s - job.submit_s < min_age_s


def min_job_age_s(slurm_version: str) -> int:
    """Return how old a job must be before its first update, seconds; an unknown release counts as an old one."""
    parts = slurm_version.split(".")
    try:
        release = (int(parts[0]), int(parts[1]))
    except (ValueError, IndexError):
        return MIN_JOB_AGE_S
    return MIN_JOB_AGE_S if release < _SLEEPS_BEFORE else 0
