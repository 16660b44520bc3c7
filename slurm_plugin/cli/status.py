"""``fairgpu status``: who has what, who is owed what, and whether our own parts live."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from policies.census import compute_state
from policies.site_policy import Mode
from policies.weights import AgentWeight, compute_weights
from slurm_plugin.cli._band_table import print_bands
from slurm_plugin.cli._fresh import look, snapshot_option
from slurm_plugin.cli._numbers import amount, amounts, decimal, duration
from slurm_plugin.cli._options import json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line, print_table
from slurm_plugin.doctor.ping import ping_hook
from slurm_plugin.qos_helper.client import HelperUnavailableError, SocketQosHelper, helper_socket
from slurm_plugin.rebalancer.lease import lease_holder
from slurm_plugin.rebalancer.standings import read_standings_age_s
from slurm_plugin.site.switch import off_reason

if TYPE_CHECKING:
    from pathlib import Path

    from policies.fairness.sla_weight import IndicatorReading
    from policies.plan import AgentStanding, Plan
    from policies.site_policy import SitePolicy
    from slurm_plugin.site import SiteFile
    from slurm_plugin.snapshot import Snapshot


_WORDS: Final = {
    "SetSiteFactor": "site factor(s)",
    "SetQos": "QOS(es) of jobs",
    "StartNow": "begin time(s)",
    "SetBorrowRank": "borrow rank(s)",
    "SetPreemptList": "Preempt list(s)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether our own parts live.

    Attributes
    ----------
    off_reason : str or None
        Why FairGPU is switched off; ``None`` if it is on.
    last_cycle_age_s : float or None
        Age of the rebalancer's last cycle in which it was on, seconds.
    rebalancer : str
        ``pid 12``, ``not running`` or ``unknown`` (this user may not look).
    hook : str
        What a ping said.
    qos_helper : str or None
        What a ping said; ``None`` where the site has no bands.
    """

    off_reason: str | None
    last_cycle_age_s: float | None
    rebalancer: str
    hook: str
    qos_helper: str | None


@click.command("status")
@site_option
@json_option
@slurm_bin_dir_option
@snapshot_option
def status_command(
    site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None, snapshot_path: Path | None
) -> None:
    """Show who has what and who is owed what, from a fresh look at Slurm; it needs no running daemon.

    share/weight is what fairness makes equal among agents with waiting jobs: the smallest is served next.
    'share' is the largest part of any TRES that the agent holds, 'of' names that TRES, 'sla' is the SLA factor. With
    bands, a second table says per agent what it is owed, uses, borrows and has lent.

    \b
    Examples:
      fairgpu status
      fairgpu status --json
      fairgpu status --snapshot cycle.json.gz

    Exit codes: 0 done, 2 site file, 3 Slurm unreachable.
    """
    looked = look(site_path, slurm_bin_dir, snapshot_path)
    health = None if looked.site is None else check_health(looked.site, now_s=time.time())
    if as_json:
        echo_json(_as_json(looked.snapshot, health))
    else:
        _print_status(looked.snapshot, health)


def check_health(site: SiteFile, *, now_s: float) -> Health:
    """Look at the switch, the lease, the standings file and the hook's socket."""
    try:
        holder = lease_holder(site.paths.state_dir)
        rebalancer = "not running" if holder is None else f"pid {holder.pid}"
    except OSError:
        rebalancer = "unknown"
    ping = ping_hook(site.hook.socket, n_pings=1)
    if ping.latency_s is not None:
        hook = f"answers in {ping.latency_s * 1000:.2f} ms, {ping.state}"
    elif ping.is_refused:
        hook = "listens (only root and SlurmUser may ask it)"
    else:
        hook = f"no answer: {ping.error}"
    return Health(
        off_reason=_off_reason(site),
        last_cycle_age_s=read_standings_age_s(site.paths.run_dir, now_s),
        rebalancer=rebalancer,
        hook=hook,
        qos_helper=None if site.policy.bands is None else _ping_helper(site),
    )


def _ping_helper(site: SiteFile) -> str:
    path = helper_socket(site)
    try:
        SocketQosHelper(path=path, timeout_s=1.0).ping()
    except HelperUnavailableError as err:
        if os.access(path, os.F_OK) and not os.access(path, os.W_OK):
            return "listens (only root and the rebalancer's user may ask it)"
        return f"no answer ({err}): jobs are ordered and overflow, but ranks and Preempt lists stay as they are"
    return "answers"


def describe_write(policy: SitePolicy, *, is_off: bool) -> str:
    """Return what becomes of a site factor that should be written."""
    if policy.mode is not Mode.ENFORCE:
        return f"mode {policy.mode.value}, nothing is written"
    return "nothing is written while FairGPU is off" if is_off else "the next cycle writes it"


def is_surely_off(site: SiteFile) -> bool:
    """Return whether the kill switch is seen; a state directory out of sight (a login node) proves nothing here."""
    return os.access(site.paths.state_dir, os.X_OK) and off_reason(site) is not None


def _off_reason(site: SiteFile) -> str | None:
    reason, directory = off_reason(site), site.paths.state_dir
    if reason != "" or os.access(directory, os.X_OK):
        return reason
    if directory.exists():
        return f"perhaps: this user may not look into {directory}"
    return f"perhaps: {directory} is missing on this host"


def _weights(snapshot: Snapshot) -> tuple[AgentWeight, ...]:
    state = compute_state(snapshot.observation, snapshot.site_policy)
    return compute_weights(state, snapshot.site_policy, snapshot.sla_memory, now=snapshot.now_s)


def _print_status(snapshot: Snapshot, health: Health | None) -> None:
    policy, plan = snapshot.site_policy, snapshot.plan
    readings = {weight.agent: weight.readings for weight in _weights(snapshot)}
    columns = (
        *("agent", "base", "sla", "weight", "share", "of", "share/weight"),
        *("running", "pending", "startable", "oldest wait", "holds", "sla because"),
    )
    rows = [_agent_row(standing, plan.tres, readings[standing.agent]) for standing in plan.standings]
    print_table(f"Cluster {policy.cluster}: {_mode_line(snapshot, health)}", columns, rows)
    print_bands(plan)
    print_table("", ("tres", "capacity", "held by agents", "not held"), _capacity_rows(snapshot))
    if any(":" in name for name in plan.tres):
        print_line("A typed GPU counts as held only for jobs that named the type; gres/gpu counts every GPU.")
    if health is not None:
        print_line(f"Rebalancer: {health.rebalancer}, {_last_cycle(health)}")
        print_line(f"Submit hook: {health.hook}")
        if health.qos_helper is not None:
            print_line(f"QOS helper: {health.qos_helper}")
    if plan.findings:
        findings = [(finding.kind, finding.subject, finding.text) for finding in plan.findings]
        print_table("Findings", ("kind", "subject", "text"), findings)
    if plan.decisions:
        is_off = health is not None and health.off_reason is not None
        fate = describe_write(policy, is_off=is_off)
        print_line(f"{_describe_decisions(plan)} differ from the plan of this moment ({fate}).")


def _describe_decisions(plan: Plan) -> str:
    counts = Counter(_WORDS[type(decision).__name__] for decision in plan.decisions)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _agent_row(
    standing: AgentStanding, tres: tuple[str, ...], readings: tuple[IndicatorReading, ...]
) -> tuple[object, ...]:
    return (
        standing.agent,
        decimal(standing.base_weight),
        decimal(standing.sla_factor, 2),
        decimal(standing.weight),
        decimal(standing.dominant_share),
        standing.dominant_tres or None,
        decimal(standing.weighted_share),
        standing.n_running,
        standing.n_pending,
        standing.n_startable,
        duration(standing.oldest_wait_s) if standing.n_startable else None,
        amounts(tres, standing.allocation) or None,
        "; ".join(describe_reading(reading) for reading in readings) or None,
    )


def describe_reading(reading: IndicatorReading) -> str:
    """Return an indicator against its target in words: ``queue wait 1m30s of 1m00s``."""
    name = reading.name.removesuffix("_s").removesuffix("_frac").replace("_", " ")
    show = _brief if reading.name.endswith("_s") else "{:g}".format
    value = "?" if reading.value is None else show(reading.value)
    note = f" ({reading.note})" if reading.note else ""
    return f"{name} {value} of {show(reading.target)}{note}"


def _brief(seconds: float) -> str:
    return f"{seconds * 1000:.3g}ms" if 0 < seconds < 1 else duration(seconds)


def _mode_line(snapshot: Snapshot, health: Health | None) -> str:
    policy = snapshot.site_policy
    text = f"mode {policy.mode.value}, policy {policy.policy}"
    if health is None:
        return f"{text}, snapshot of cycle {snapshot.cycle_id}"
    return f"{text}, on" if health.off_reason is None else f"{text}, OFF ({health.off_reason or 'no reason given'})"


def _last_cycle(health: Health) -> str:
    age_s = health.last_cycle_age_s
    return "no cycle yet" if age_s is None else f"last cycle {duration(age_s)} ago"


def _capacity_rows(snapshot: Snapshot) -> list[tuple[str, str, str, str]]:
    plan = snapshot.plan
    rows = []
    for axis, name in enumerate(plan.tres):
        held = sum(standing.allocation[axis] for standing in plan.standings)
        total = plan.capacity[axis]
        rows.append((name, amount(name, total), amount(name, held), amount(name, total - held)))
    return rows


def _as_json(snapshot: Snapshot, health: Health | None) -> dict[str, Any]:
    plan, policy = snapshot.plan, snapshot.site_policy
    return {
        "cluster": policy.cluster,
        "mode": policy.mode,
        "policy": policy.policy,
        "at_s": snapshot.observation.at_s,
        "tres": plan.tres,
        "capacity": plan.capacity,
        "agents": plan.standings,
        "sla_readings": {weight.agent: weight.readings for weight in _weights(snapshot)},
        "n_decisions": len(plan.decisions),
        "findings": plan.findings,
        "problems": snapshot.observation.problems,
        "health": health,
    }
