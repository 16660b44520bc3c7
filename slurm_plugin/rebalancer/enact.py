"""Enact: a plan's decisions become writes to Slurm, head first, under the rate limit, undoable.

Before the first write to a job its former value is in the journal. The kill switch is asked before every chunk,
a stop is honoured between two. What is not written now is decided again in the next cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from policies.site_policy import Mode
from slurm_plugin.client import SlurmClient
from slurm_plugin.errors import SlurmAuthError, SlurmError, StaleStateError
from slurm_plugin.qos_helper.client import QosHelper
from slurm_plugin.rebalancer.decision_view import Key, job_of, key_of
from slurm_plugin.rebalancer.history import History
from slurm_plugin.rebalancer.outcomes import EnactOutcome, EnactReport
from slurm_plugin.rebalancer.rate_limit import TokenBucket
from slurm_plugin.rebalancer.writers import Batch, EnactRules, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policies.plan import Decision, Plan
    from policies.records import Observation

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
    refused : dict of Key to float
        When a decision may be tried again, seconds since the epoch.
    """

    client: SlurmClient
    helper: QosHelper
    history: History
    bucket: TokenBucket
    is_off: Callable[[], bool]
    is_stopping: Callable[[], bool] = lambda: False
    refused: dict[Key, float] = field(default_factory=dict)

    def enact(self, plan: Plan, observation: Observation, *, rules: EnactRules, now_s: float) -> EnactReport:
        """Write what the plan says; return what became of each decision.

        Raises
        ------
        StaleStateError
            The observation is too old, from the future or incomplete, or the plan is of another observation;
            nothing was written.
        """
        batch = Batch(rules=rules, now_s=now_s, jobs={job.job_id: job for job in observation.jobs})
        error = None
        if rules.mode is not Mode.ENFORCE:
            batch.note(plan.decisions, EnactOutcome.NOT_ENFORCED)
        elif plan.decisions:
            check_fresh(plan, observation, now_s=now_s)
            ready = self._ready(plan.decisions, batch, min_age_s=min_job_age_s(observation.slurm_version))
            granted, self.bucket = self.bucket.take(len(ready), now_s=now_s)
            error = self._write(ready[:granted], batch)
            self.refused |= batch.refused
        return EnactReport(enacted=tuple(map(batch.enacted, plan.decisions)), error=error)

    def _ready(self, decisions: Sequence[Decision], batch: Batch, *, min_age_s: int) -> list[Decision]:
        self.refused = {key: until_s for key, until_s in self.refused.items() if until_s > batch.now_s}
        ready = []
        for decision in decisions:
            job_id = job_of(decision)
            job = None if job_id is None else batch.jobs.get(job_id)
            if job_id is not None and job is None:
                batch.note([decision], EnactOutcome.GONE, "not in the observation")
            elif key_of(decision) in self.refused:
                batch.note([decision], EnactOutcome.PAUSED, "Slurm refused it last time")
            elif job is not None and batch.now_s - job.submit_s < min_age_s:
                batch.note([decision], EnactOutcome.YOUNG, f"younger than {min_age_s} s")
            else:
                ready.append(decision)
        return ready

    def _write(self, decisions: Sequence[Decision], batch: Batch) -> SlurmError | None:
        writer = Writer(client=self.client, helper=self.helper, history=self.history)
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
    """Neighbours of one kind together, in the plan's order."""
    for _, run in groupby(decisions, key=type):
        alike = list(run)
        for start in range(0, len(alike), CHUNK):
            yield alike[start : start + CHUNK]


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
