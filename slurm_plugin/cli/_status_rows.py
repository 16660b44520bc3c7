"""What ``fairgpu status`` and ``fairgpu top`` show, as columns and rows: who has what, who is owed what, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.census import compute_state
from policies.quota.disruption import BOUND
from policies.weights import AgentWeight, compute_weights
from slurm_plugin.cli._numbers import amount, amounts, decimal, duration
from slurm_plugin.cli._output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.fairness.sla_weight import IndicatorReading
    from policies.plan import AgentStanding, Decision, Plan
    from policies.records import AgentName
    from slurm_plugin.cli._health import Health
    from slurm_plugin.cli._watch import Seen
    from slurm_plugin.rebalancer.update_budget import ControllerLoad, UpdateBudget
    from slurm_plugin.snapshot import Snapshot

_WORDS: Final = {
    "SetSiteFactor": "site factor(s)",
    "SetQos": "QOS(es) of jobs",
    "StartNow": "begin time(s)",
    "SetBorrowRank": "borrow rank(s)",
    "SetPreemptList": "Preempt list(s)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table; cells are shown as :func:`~slurm_plugin.cli._output.print_table` shows them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def print(self) -> None:
        """Print it on stdout."""
        print_table(self.title, self.columns, self.rows)


def sla_readings(snapshot: Snapshot) -> dict[AgentName, tuple[IndicatorReading, ...]]:
    """Return each agent's indicators against their targets."""
    state = compute_state(snapshot.observation, snapshot.site_policy)
    weights: tuple[AgentWeight, ...] = compute_weights(
        state, snapshot.site_policy, snapshot.sla_memory, now=snapshot.now_s
    )
    return {weight.agent: weight.readings for weight in weights}


def sla_state(readings: Sequence[IndicatorReading]) -> str:
    """Return the SLA state in words: ``met``, ``over by 50 %``, ``unknown``, or ``no target``.

    Over if any indicator is over its target (the worst one counts); met only if all are known.
    """
    if not readings:
        return "no target"
    worst = max((reading.ratio for reading in readings if reading.ratio is not None), default=0)
    if worst > 1:
        return f"over by {min(float(worst) - 1, 9.99):.0%}".replace("%", " %")
    return "met" if all(reading.ratio is not None for reading in readings) else "unknown"


def agent_cells(standing: AgentStanding, readings: Sequence[IndicatorReading]) -> dict[str, object]:
    """Return an agent's row by heading."""
    return {
        "agent": standing.agent,
        "weight": decimal(standing.weight),
        "share": decimal(standing.dominant_share),
        "of": standing.dominant_tres or None,
        "share/weight": decimal(standing.weighted_share),
        "running": standing.n_running,
        "pending": standing.n_pending,
        "startable": standing.n_startable,
        "oldest wait": duration(standing.oldest_wait_s) if standing.n_startable else None,
        "SLA": sla_state(readings),
    }


def agents_section(snapshot: Snapshot, health: Health | None) -> Section:
    """Return the agents with their shares, jobs and SLA state."""
    readings = sla_readings(snapshot)
    rows = [agent_cells(standing, readings[standing.agent]) for standing in snapshot.plan.standings]
    return Section(
        title=f"Cluster {snapshot.site_policy.cluster}: {mode_line(snapshot, health)}",
        columns=tuple(rows[0]) if rows else ("agent",),
        rows=tuple(tuple(row.values()) for row in rows),
    )


def weights_section(snapshot: Snapshot) -> Section:
    """Return how each weight came about, and what the agent holds."""
    readings = sla_readings(snapshot)
    rows = (
        (
            standing.agent,
            decimal(standing.base_weight),
            decimal(standing.sla_factor, 2),
            amounts(snapshot.plan.tres, standing.allocation) or None,
            "; ".join(describe_reading(reading) for reading in readings[standing.agent]) or None,
        )
        for standing in snapshot.plan.standings
    )
    columns = ("agent", "base weight", "SLA factor", "holds", "SLA indicators")
    return Section(title="Weights and holdings", columns=columns, rows=tuple(rows))


def capacity_section(snapshot: Snapshot) -> Section:
    """Return what there is of each TRES and what the agents hold of it."""
    plan = snapshot.plan
    rows = []
    for axis, name in enumerate(plan.tres):
        held = sum(standing.allocation[axis] for standing in plan.standings)
        total = plan.capacity[axis]
        rows.append((name, amount(name, total), amount(name, held), amount(name, total - held)))
    return Section(title="", columns=("tres", "capacity", "held by agents", "not held"), rows=tuple(rows))


def findings_section(plan: Plan) -> Section:
    """Return what an operator should see."""
    rows = tuple((finding.kind, finding.subject, finding.text) for finding in plan.findings)
    return Section(title="Findings", columns=("kind", "subject", "text"), rows=rows)


def mode_line(snapshot: Snapshot, health: Health | None) -> str:
    """Return mode, policy and switch in words."""
    policy = snapshot.site_policy
    text = f"mode {policy.mode.value}, policy {policy.policy}"
    if health is None:
        return f"{text}, snapshot of cycle {snapshot.cycle_id}"
    return f"{text}, on" if health.off_reason is None else f"{text}, OFF ({health.off_reason or 'no reason given'})"


def describe_decisions(decisions: Iterable[Decision]) -> str:
    """Return how many decisions of each kind there are: ``3 site factor(s), 1 borrow rank(s)``."""
    counts = Counter(_WORDS[type(decision).__name__] for decision in decisions)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def describe_reading(reading: IndicatorReading) -> str:
    """Return an indicator against its target in words: ``queue wait 1m30s of 1m00s``."""
    name = reading.name.removesuffix("_s").removesuffix("_frac").replace("_", " ")
    show = _brief if reading.name.endswith("_s") else "{:g}".format
    value = "?" if reading.value is None else show(reading.value)
    note = f" ({reading.note})" if reading.note else ""
    return f"{name} {value} of {show(reading.target)}{note}"


def describe_budget(budget: UpdateBudget | None, load: ControllerLoad | None) -> str:
    """Return what we ask of slurmctld in one line."""
    if budget is None:
        used = "no cycle has told its updates yet"
    else:
        used = (
            f"{budget.sent} of {budget.per_cycle} updates in the last cycle ({budget.per_second} per second), "
            f"{budget.left} left, {budget.deferred} deferred"
        )
    if load is None:
        return f"RPC budget: {used}"
    each = f" ({load.mean_s * 1000:.2f} ms each)" if load.n_rpcs else ""
    return (
        f"RPC budget: {used}; slurmctld spent {load.total_s * 1000:.1f} ms on {load.n_rpcs} RPCs of user "
        f"{load.user}{each}"
    )


def describe_disruption(seen: Seen) -> list[str]:
    """Return what reclaims took for what was claimed, against the bound, in one line; none without bands or history."""
    bands, disruption = seen.snapshot.site_policy.bands, seen.disruption
    if bands is None or disruption is None:
        return []
    told = f"Reclaims in the last {duration(bands.window_s)}: {disruption.n_reclaims} job(s) taken back"
    if disruption.ratio is not None:
        verdict = "within" if disruption.is_within_bound else "above"
        told += (
            f", {disruption.n_taken} GPU(s) for {disruption.n_asked} asked: {float(disruption.ratio):.2f} for one, "
            f"{verdict} the bound of {float(BOUND):g}"
        )
    if disruption.n_unattributed:
        told += f"; {disruption.n_unattributed} with no claim seen"
    return [told]


def _brief(seconds: float) -> str:
    return f"{seconds * 1000:.3g}ms" if 0 < seconds < 1 else duration(seconds)
