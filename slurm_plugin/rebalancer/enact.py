"""Enact: a plan's decisions become writes to Slurm, head first, under the rate limit, undoable.

Before the first write to a job its former value is in the journal. The kill switch is asked before every chunk,
a stop is honoured between two. What is not written now is decided again in the next cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policies.plan import Decision
from policies.records import JobId, JobRecord
from policies.site_policy import Mode
from slurm_plugin.client import SlurmClient, UpdateStatus
from slurm_plugin.errors import FairGpuError, SlurmAuthError, SlurmError, StaleStateError
from slurm_plugin.rebalancer.history import History
from slurm_plugin.rebalancer.journal import former_factor
from slurm_plugin.rebalancer.pauses import Pauses
from slurm_plugin.rebalancer.rate_limit import TokenBucket
from slurm_plugin.rebalancer.reset import ResetReport, apply_restores, find_strays
from slurm_plugin.rebalancer.store import TouchedJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.plan import Plan
    from policies.records import Observation
    from policies.site_policy import SitePolicy

CHUNK: Final = 100
"""Updates per command: about 0.1 s between two looks at the kill switch."""

MAX_AGE_S: Final = 60.0
"""An observation older than this is not acted on."""

MIN_JOB_AGE_S: Final = 5
"""Below Slurm 24.11 an update of a job that slurmdbd does not know yet sleeps a second or more in slurmctld."""

_SLEEPS_BEFORE: Final = (24, 11)
_NO_EFFECT: Final = "no effect so far (priority pinned by an administrator?), left alone for a minute"


class EnactOutcome(StrEnum):
    """What became of a decision."""

    WRITTEN = "written"
    GONE = "gone"
    REJECTED = "rejected"
    UNANSWERED = "unanswered"
    DEFERRED = "deferred"
    YOUNG = "young"
    PAUSED = "paused"
    UNJOURNALLED = "unjournalled"
    NOT_ENFORCED = "not_enforced"
    OFF = "off"
    STOPPED = "stopped"
    STALE = "stale"


FAILED: Final = frozenset({EnactOutcome.REJECTED, EnactOutcome.UNANSWERED, EnactOutcome.UNJOURNALLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Enacted:
    """One decision and what became of it; ``text`` is Slurm's message."""

    decision: Decision
    outcome: EnactOutcome
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnactReport:
    """All decisions of a plan in its order; ``error`` is what stopped the writing, if anything did."""

    enacted: tuple[Enacted, ...]
    error: FairGpuError | None = None

    @classmethod
    def refused(cls, plan: Plan, error: StaleStateError) -> EnactReport:
        """Report of a plan that was not acted on."""
        stale = EnactOutcome.STALE
        return cls(enacted=tuple(Enacted(decision=d, outcome=stale) for d in plan.decisions), error=error)

    def count(self, *outcomes: EnactOutcome) -> int:
        """Return how many decisions ended so."""
        return sum(one.outcome in outcomes for one in self.enacted)


@dataclass(slots=True, kw_only=True)
class Enactor:
    """What enacting needs and remembers between cycles.

    Attributes
    ----------
    is_off, is_stopping : callable
        Asked before every chunk.
    pauses : Pauses
        Jobs that are left alone for a while.
    """

    client: SlurmClient
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
        batch = _Batch(rules=rules, now_s=now_s, jobs={job.job_id: job for job in observation.jobs})
        error = None
        if rules.mode is not Mode.ENFORCE:
            batch.note(plan.decisions, EnactOutcome.NOT_ENFORCED)
        elif plan.decisions:
            check_fresh(plan, observation, now_s=now_s)
            ready = self._ready(plan.decisions, batch, min_age_s=min_job_age_s(observation.slurm_version))
            granted, self.bucket = self.bucket.take(len(ready), now_s=now_s)
            error = self._write(ready[:granted], batch)
        return EnactReport(enacted=tuple(map(batch.enacted, plan.decisions)), error=error)

    def release(self, observation: Observation, policy: SitePolicy, *, now_s: float) -> ResetReport:
        """Give waiting jobs that are no agent's any more their former factor back, under the same limits.

        Raises
        ------
        SlurmUnavailable, SlurmAuthError
            Slurm went away or refuses; what was done so far is noted.
        """
        min_age_s = min_job_age_s(observation.slurm_version)
        ready = [
            restore
            for restore in find_strays(observation, policy, self.history)
            if now_s - restore.job.submit_s >= min_age_s and restore.job.job_id not in self.pauses
        ]
        if not ready or self.is_off() or self.is_stopping():
            return ResetReport()
        granted, self.bucket = self.bucket.take(len(ready), now_s=now_s)
        report = apply_restores(ready[:granted], self.client, self.history, at_s=observation.at_s)
        for job_id, _ in report.failed:
            self.pauses.note_refused(job_id, now_s=now_s)
        return report

    def _ready(self, decisions: Sequence[Decision], batch: _Batch, *, min_age_s: int) -> list[Decision]:
        self.pauses.refresh({decision.job_id for decision in decisions}, batch.jobs, now_s=batch.now_s)
        ready = []
        for decision in decisions:
            job = batch.jobs.get(decision.job_id)
            if job is None:
                batch.note([decision], EnactOutcome.GONE, "not in the observation")
            elif decision.job_id in self.pauses:
                batch.note([decision], EnactOutcome.PAUSED, "its last update was refused or had no effect")
            elif batch.now_s - job.submit_s < min_age_s:
                batch.note([decision], EnactOutcome.YOUNG, f"younger than {min_age_s} s")
            else:
                ready.append(decision)
        return ready

    def _write(self, decisions: Sequence[Decision], batch: _Batch) -> SlurmError | None:
        for start in range(0, len(decisions), CHUNK):
            chunk = decisions[start : start + CHUNK]
            if self.is_off():
                batch.note(decisions[start:], EnactOutcome.OFF)
                return None
            if self.is_stopping():
                batch.note(decisions[start:], EnactOutcome.STOPPED)
                return None
            try:
                self._write_chunk(chunk, batch)
            except SlurmAuthError as err:
                batch.note(chunk, EnactOutcome.REJECTED, str(err))
                return err
            except SlurmError as err:
                batch.note(chunk, EnactOutcome.UNANSWERED, str(err))
                return err
        return None

    def _write_chunk(self, chunk: Sequence[Decision], batch: _Batch) -> None:
        journal = self.history.journal
        entries = [_journal_line(decision, batch, journal) for decision in chunk]
        is_safe = self.history.touch(entries)
        # Without a disk only jobs whose former value is 0 are written: off resets those by their range.
        wanted = [pair for pair in zip(chunk, entries, strict=True) if is_safe or pair[1].former == 0]
        batch.note(chunk, EnactOutcome.UNJOURNALLED, "the former value could not be noted")
        batch.note([decision for decision, _ in wanted], EnactOutcome.UNANSWERED, "no answer")
        changes = [(entry.job_id, entry.last_written) for _, entry in wanted]
        for answer in self.client.set_site_factors(changes) if changes else ():
            batch.outcomes[answer.job_id] = (_OUTCOME_OF[answer.status], answer.text)
            if answer.status is UpdateStatus.REJECTED:
                self.pauses.note_refused(answer.job_id, now_s=batch.now_s)
        for decision in chunk:
            is_written = batch.outcomes[decision.job_id][0] is EnactOutcome.WRITTEN
            job = batch.jobs[decision.job_id]
            if is_written and self.pauses.note_written(job, decision.old, now_s=batch.now_s):
                batch.note([decision], EnactOutcome.WRITTEN, _NO_EFFECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnactRules:
    """What enacting reads of the site file: the mode (a dry run counts as observe) and the factor scale."""

    mode: Mode
    scale: int


@dataclass(slots=True, kw_only=True)
class _Batch:
    """One plan on its way: what is known of its jobs, what became of its decisions."""

    rules: EnactRules
    now_s: float
    jobs: dict[JobId, JobRecord]
    outcomes: dict[JobId, tuple[EnactOutcome, str]] = field(default_factory=dict)

    def note(self, decisions: Sequence[Decision], outcome: EnactOutcome, text: str = "") -> None:
        self.outcomes.update({decision.job_id: (outcome, text) for decision in decisions})

    def enacted(self, decision: Decision) -> Enacted:
        outcome, text = self.outcomes.get(decision.job_id, (EnactOutcome.DEFERRED, "rate limit"))
        return Enacted(decision=decision, outcome=outcome, text=text)


_OUTCOME_OF: Final = {
    UpdateStatus.OK: EnactOutcome.WRITTEN,
    UpdateStatus.GONE: EnactOutcome.GONE,
    UpdateStatus.REJECTED: EnactOutcome.REJECTED,
}


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


def min_job_age_s(slurm_version: str) -> int:
    """Return how old a job must be before its first update, seconds; an unknown release counts as an old one."""
    parts = slurm_version.split(".")
    try:
        release = (int(parts[0]), int(parts[1]))
    except (ValueError, IndexError):
        return MIN_JOB_AGE_S
    return MIN_JOB_AGE_S if release < _SLEEPS_BEFORE else 0


def _journal_line(decision: Decision, batch: _Batch, journal: Mapping[JobId, TouchedJob]) -> TouchedJob:
    job = batch.jobs[decision.job_id]
    return TouchedJob(
        job_id=decision.job_id,
        submit_s=job.submit_s,
        former=former_factor(job, journal, scale=batch.rules.scale),
        last_written=decision.new,
        at_s=batch.now_s,
    )
