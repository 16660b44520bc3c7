"""Replay: decide a recorded cycle again and say where the plan differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policies.cycle import decide, plan_bytes
from policies.errors import PolicyError
from slurm_plugin.rebalancer.decision_view import DecisionView, Key, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.plan import Plan
    from slurm_plugin.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One cycle decided again; ``differences`` is empty if the plan has the same bytes."""

    cycle_id: str
    n_jobs: int
    n_decisions: int
    differences: tuple[str, ...]


def replay(snapshot: Snapshot) -> Replayed:
    """Decide again from what was recorded and compare the plans byte by byte."""
    try:
        plan = decide(
            snapshot.observation, snapshot.site_policy, snapshot.sla_memory, snapshot.band_memory, now=snapshot.now_s
        )
    except PolicyError as err:
        differences: tuple[str, ...] = (str(err),)
    else:
        is_same = plan_bytes(plan) == plan_bytes(snapshot.plan)
        differences = () if is_same else tuple(compare_plans(snapshot.plan, plan))
    return Replayed(
        cycle_id=snapshot.cycle_id,
        n_jobs=len(snapshot.observation.jobs),
        n_decisions=len(snapshot.plan.decisions),
        differences=differences,
    )


def compare_plans(recorded: Plan, now: Plan) -> Iterator[str]:
    """Return what differs, one line each: decisions by job, then their order, then the rest by field."""
    before, after = _by_key(recorded), _by_key(now)
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            yield f"{_name(key)}: recorded {_short(before.get(key))}, now {_short(after.get(key))}"
    if before == after and list(before) != list(after):
        yield "the same decisions in another order"
    for name in ("at_s", "policy", "tres", "capacity", "standings", "sla_memory", "band_memory", "findings"):
        was, became = getattr(recorded, name), getattr(now, name)
        if was != became:
            yield f"{name}: recorded {_clip(was)}, now {_clip(became)}"


def _by_key(plan: Plan) -> dict[Key, DecisionView]:
    return {decision.key: decision for decision in map(view, plan.decisions)}


def _name(key: Key) -> str:
    kind, subject = key
    return f"job {subject}" if kind == "SetSiteFactor" else f"{kind} {subject}"


def _short(decision: DecisionView | None) -> str:
    if decision is None:
        return "no decision"
    tag = f", tag {decision.tag}" if decision.kind == "SetSiteFactor" else ""
    return f"{decision.old} -> {decision.new} (agent {decision.agent}{tag}, {decision.reason})"


def _clip(value: Any) -> str:  # noqa: ANN401 - any field of a plan
    return f"{value!r:.300}"
