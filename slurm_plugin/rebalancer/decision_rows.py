"""Decisions as rows of the history: site factors in ``decisions``, everything about bands in ``band_decisions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.plan import SetSiteFactor
from slurm_plugin.rebalancer.decision_view import job_of, view

if TYPE_CHECKING:
    from slurm_plugin.rebalancer.outcomes import Enacted


def factor_row(one: Enacted) -> dict[str, Any] | None:
    """Return the row of a site factor without its cycle; ``None`` for another decision."""
    decision = one.decision
    if not isinstance(decision, SetSiteFactor):
        return None
    return {
        "job_id": decision.job_id,
        "agent": decision.agent,
        "kind": type(decision).__name__,
        "reason": decision.reason,
        "tag": None if decision.tag is None else str(decision.tag),
        "old": decision.old,
        "new": decision.new,
        "is_adoption": int(decision.is_adoption),
        "outcome": one.outcome.value,
        "text": one.text,
    }


def band_row(one: Enacted) -> dict[str, Any] | None:
    """Return the row of a decision about bands without its cycle; ``None`` for a site factor."""
    if isinstance(one.decision, SetSiteFactor):
        return None
    seen, job_id = view(one.decision), job_of(one.decision)
    return {
        "kind": seen.kind,
        "job_id": job_id,
        "qos": None if job_id is not None else seen.subject,
        "agent": seen.agent,
        "old": seen.old,
        "new": seen.new,
        "reason": seen.reason,
        "outcome": one.outcome.value,
        "text": one.text,
    }
