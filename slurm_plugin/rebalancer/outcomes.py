"""What became of a plan's decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policies.plan import Decision
from slurm_plugin.errors import FairGpuError, StaleStateError

if TYPE_CHECKING:
    from policies.plan import Plan


class EnactOutcome(StrEnum):
    """What became of a decision."""

    WRITTEN = "written"
    GONE = "gone"
    REJECTED = "rejected"
    UNANSWERED = "unanswered"
    UNHELPED = "unhelped"
    """No QOS helper or no slurmdbd answers: the rank or Preempt list stays as it is."""
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
