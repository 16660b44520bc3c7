"""Whether the bands of the site file hold: preemption, enforcement, defaults and the band order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, band_qos
from policies.quota.nominal import compute_nominals
from policies.quota.outage import nodes_in_service, nodes_not_counted
from policies.site_policy import Mode, QuotaKind
from slurm_plugin.bands.out_nodes import describe_out
from slurm_plugin.bands.precheck import band_order_fix, compute_band_order, setting_complaints
from slurm_plugin.doctor.check import CheckRule, Verdict, fail, ok, unknown, warn
from slurm_plugin.doctor.slurm_checks import requeue_delay_s
from slurm_plugin.qos_helper.probe import WITHOUT, how_to_start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.records import Tres
    from policies.site_policy import AgentPolicy
    from slurm_plugin.bands.complaint import Complaint
    from slurm_plugin.doctor.facts import Facts

_NO_BANDS: Final = "no bands in the site file"
_SHOWN: Final = 5


def _preemption(facts: Facts) -> Verdict:
    return _settings(facts, ("PreemptType", "PreemptMode"))


def _enforcement(facts: Facts) -> Verdict:
    return _settings(facts, ("AccountingStorageEnforce",))


def _settings(facts: Facts, keys: tuple[str, ...]) -> Verdict:
    if facts.site.policy.bands is None:
        return ok(_NO_BANDS)
    wrong = [one for one in setting_complaints(facts.config) if one.what.startswith(keys)]
    if not wrong:
        return ok(", ".join(f"{key}={facts.setting(key)}" for key in keys))
    return _failed(wrong)


def _failed(complaints: Iterable[Complaint]) -> Verdict:
    found = tuple(complaints)
    return fail(
        "; ".join(one.what for one in found),
        "\n".join(one.why for one in found),
        "\n".join(one.fix for one in found if one.fix),
    )


def _applied(facts: Facts) -> Verdict:
    if facts.site.policy.bands is None:
        return ok(_NO_BANDS)
    present = {row.name for row in facts.qos or ()}
    wanted = [_name(facts, agent) for agent in _banded(facts)]
    missing = [name for name in wanted if name not in present]
    if not missing:
        return ok(f"{len(wanted)} guaranteed QOSes")
    return _complain(
        facts,
        f"{len(missing)} QOSes are not there: {_some(missing)}",
        "without them nothing limits an agent and nothing can be lent",
        "sudo fairgpu plan; sudo fairgpu apply",
    )


def _quotas(facts: Facts) -> Verdict:
    """Limits in slurmctld against what the site file gives now."""
    policy, nodes = facts.site.policy, facts.nodes or ()
    if policy.bands is None:
        return ok(_NO_BANDS)
    wanted: dict[str | None, Tres] = {}
    for quota in compute_nominals(policy, nodes_in_service(nodes, facts.asked_s)):
        wanted |= {quota.guaranteed_qos: quota.nominal or (), quota.borrow_qos: quota.borrow_cap}
    found = [record for record in facts.qos_in_use or () if record.name in wanted]
    wrong = [record for record in found if dict(record.grp_tres) != dict(wanted[record.name])]
    if not wrong:
        return ok(f"{len(found)} QOSes limited as the site file gives now")
    out = nodes_not_counted(policy, nodes, facts.asked_s)
    return warn(
        f"{len(wrong)} QOSes have other limits than the site file gives now: "
        + _some([f"{one.name} {_limits(one.grp_tres)}, not {_limits(wanted[one.name])}" for one in wrong]),
        "quotas change only with apply" + (f"; {describe_out(out)}, not counted" if out else ""),
        "sudo fairgpu plan; sudo fairgpu apply",
    )


def _limits(tres: Tres) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(tres)) or "nothing"


def _defaults(facts: Facts) -> Verdict:
    if facts.site.policy.bands is None:
        return ok(_NO_BANDS)
    wanted = {str(account): _name(facts, agent) for agent in _banded(facts) for account in agent.accounts}
    rows = [row for row in facts.assoc_rows or () if row.key.account in wanted]
    wrong = [str(row.key) for row in rows if row.default != wanted[row.key.account]]
    if not wrong:
        return ok(f"the guaranteed one in {len(rows)} associations")
    return _complain(
        facts,
        f"{len(wrong)} of {len(rows)} associations have another one: {_some(wrong)}",
        "a job that bypasses the hook lands outside its agent's quota (promise 1)",
        _default_fix(facts),
    )


def _default_fix(facts: Facts) -> str:
    bands = facts.site.policy.bands
    if bands is not None and not bands.set_default_qos:
        return "site file: bands: {set_default_qos: true}; then: sudo fairgpu apply"
    return "sudo fairgpu plan; sudo fairgpu apply"


def _band_order(facts: Facts) -> Verdict:
    policy = facts.site.policy
    if policy.bands is None:
        return ok(_NO_BANDS)
    rows = facts.qos or ()
    ours = {band_qos(policy.cluster, agent.name, band) for agent in policy.agents for band in Band}
    guaranteed = {_name(facts, agent) for agent in _banded(facts)}
    priorities = [row.priority for row in rows if row.name in guaranteed]
    order = compute_band_order(
        policy,
        max((row.priority for row in rows if row.name not in ours), default=0),
        facts.config,
        guaranteed=min(priorities) if priorities else None,
    )
    if not order.holds:
        return fail(
            order.text,
            "a borrowed job could start ahead of a guaranteed one and be preempted at once",
            band_order_fix(order, policy.factor_scale),
        )
    unbounded = [flag for flag in facts.setting_list("PriorityFlags") if flag.startswith("NO_NORMAL_")]
    if unbounded:
        return warn(
            f"{order.text}, but PriorityFlags={','.join(unbounded)}",
            "these factors are not bounded by their weights, so the rule cannot be shown",
            "slurm.conf: remove the NO_NORMAL_ flags from PriorityFlags",
        )
    return ok(order.text)


def _reclaim_time(facts: Facts) -> Verdict:
    bands = facts.site.policy.bands
    if bands is None:
        return ok(_NO_BANDS)
    kill_s = facts.number("KillWait")
    retry_s = kill_s + facts.number("MessageTimeout")
    if not bands.grace_s:
        return ok(f"a victim ends KillWait = {kill_s} s after SIGTERM at the latest")
    each_s = max(bands.grace_s, retry_s) + kill_s
    return warn(
        f"GraceTime {bands.grace_s} s: claims that meet on a node may start up to {each_s} s after each other",
        "in its grace time a victim stays first in line, so the next claims choose it, too; "
        f"those that do not get its place may preempt again only after KillWait + MessageTimeout = {retry_s} s",
        f"site file: bands: {{grace: 0s}}; victims then have KillWait = {kill_s} s after SIGTERM. "
        f"If they need {bands.grace_s} s, slurm.conf: KillWait={bands.grace_s}",
    )


def _reclaim_counting(facts: Facts) -> Verdict:
    if facts.site.policy.bands is None:
        return ok(_NO_BANDS)
    interval_s, delay_s = facts.site.rebalancer.interval_s, requeue_delay_s(facts)
    found = f"a cycle every {interval_s:g} s, a requeued job waits {delay_s} s"
    if interval_s < delay_s:
        return ok(found)
    return warn(
        found,
        "a victim may start again before the rebalancer sees it wait: it is not counted for max_reclaims and "
        "'fairgpu explain' cannot say who took its place",
        f"site file: rebalancer: {{interval: {max(1, delay_s - 1)}s}}",
    )


def _helper(facts: Facts) -> Verdict:
    probe = facts.host.qos_helper
    if facts.site.policy.bands is None or probe is None:
        return ok(_NO_BANDS)
    if probe.is_closed:
        return unknown("there is a socket", "only root and the rebalancer's user may ask it; run doctor as root")
    if not probe.error:
        return ok("answers")
    start = how_to_start(facts.setting("SlurmUser").partition("(")[0])
    return _complain(facts, f"no answer: {probe.error}", f"while it is away {WITHOUT}", start)


def _complain(facts: Facts, found: str, why: str, fix: str) -> Verdict:
    return (fail if facts.site.policy.mode is Mode.ENFORCE else warn)(found, why, fix)


def _banded(facts: Facts) -> tuple[AgentPolicy, ...]:
    return tuple(agent for agent in facts.site.policy.agents if agent.quota.kind is not QuotaKind.NONE)


def _name(facts: Facts, agent: AgentPolicy) -> str:
    return band_qos(facts.site.policy.cluster, agent.name, Band.GUARANTEED)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


CHECKS: Final = (
    CheckRule(name="preemption", judge=_preemption, needs=("config",)),
    CheckRule(name="quota-enforcement", judge=_enforcement, needs=("config",)),
    CheckRule(name="bands-applied", judge=_applied, needs=("qos",)),
    CheckRule(name="quotas-current", judge=_quotas, needs=("nodes", "qos_in_use")),
    CheckRule(name="default-qos", judge=_defaults, needs=("assoc_rows",)),
    CheckRule(name="reclaim-time", judge=_reclaim_time, needs=("config",)),
    CheckRule(name="band-order", judge=_band_order, needs=("config", "qos")),
    CheckRule(name="qos-helper", judge=_helper),
    CheckRule(name="reclaim-counting", judge=_reclaim_counting, needs=("config",)),
)
