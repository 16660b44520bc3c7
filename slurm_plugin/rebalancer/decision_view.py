"""Any decision seen the same way: what it is about, its values as text. Logs, history and replay use it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, assert_never

from policies.plan import Decision, SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor, StartNow
from policies.records import AgentName

if TYPE_CHECKING:
    from policies.records import JobId

Key = tuple[str, str]
"""Kind and subject: no plan has two decisions of one kind about one job or QOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """One decision.

    Attributes
    ----------
    kind : str
        Name of its class.
    subject : str
        A job id or a QOS.
    old, new : str or None
        Values as text; ``None`` where there is none.
    """

    kind: str
    subject: str
    agent: AgentName
    old: str | None
    new: str | None
    reason: str
    tag: Fraction | None = None

    @property
    def key(self) -> Key:
        """Kind and subject."""
        return self.kind, self.subject


def view(decision: Decision) -> DecisionView:
    """The common view of a decision."""
    old: str | None
    new: str | None
    tag = None
    match decision:
        case SetSiteFactor():
            old, new, tag = None if decision.old is None else str(decision.old), str(decision.new), decision.tag
        case SetQos():
            old, new = decision.old, decision.new
        case StartNow():
            old, new = None, "now"
        case SetBorrowRank():
            old, new = str(decision.old), str(decision.new)
        case SetPreemptList():
            old, new = ",".join(decision.old), ",".join(decision.new)
        case _:
            assert_never(decision)
    return DecisionView(
        kind=type(decision).__name__,
        subject=subject_of(decision),
        agent=decision.agent,
        old=old,
        new=new,
        reason=decision.reason,
        tag=tag,
    )


def subject_of(decision: Decision) -> str:
    """The job id or the QOS that a decision is about."""
    job_id = job_of(decision)
    if job_id is not None:
        return job_id
    assert isinstance(decision, SetBorrowRank | SetPreemptList)  # noqa: S101 - the rest of job_of's match
    return decision.qos


def job_of(decision: Decision) -> JobId | None:
    """The job that a decision is about, ``None`` if it is about a QOS."""
    match decision:
        case SetSiteFactor() | SetQos() | StartNow():
            return decision.job_id
        case SetBorrowRank() | SetPreemptList():
            return None
        case _:
            assert_never(decision)


def key_of(decision: Decision) -> Key:
    """Kind and subject of a decision."""
    return type(decision).__name__, subject_of(decision)
