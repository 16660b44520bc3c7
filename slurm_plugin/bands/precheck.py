"""Whether bands can work on this Slurm, before anything is written: what forbids them, and what to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.layout import HIGHEST_BORROW_PRIORITY
from policies.quota.outage import nodes_not_counted
from policies.records import Observation
from policies.site_policy import QuotaKind
from slurm_plugin.bands.complaint import Complaint
from slurm_plugin.bands.desired import NOT_COPIED_GROUP, band_names, site_maximum
from slurm_plugin.bands.out_nodes import describe_out
from slurm_plugin.bands.partitions import partition_complaints
from slurm_plugin.bands.priorities import RAISED_PRIORITY, BandOrder, guaranteed_priority
from slurm_plugin.bands.quota_complaints import excess_complaints, quota_complaints
from slurm_plugin.priority_factors import factor_maxima

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.quota.nominal import AgentQuota
    from policies.site_policy import SitePolicy
    from slurm_plugin.bands.accounting import Accounting

_LIMITS: Final = frozenset({"limits", "safe", "all"})
_NO_TIME: Final = frozenset({"", "00:00:00", "0", "NONE"})
_QOS: Final = frozenset({"qos", "all"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Precheck:
    """What was found; anything in ``blockers`` forbids ``apply``."""

    blockers: tuple[Complaint, ...]
    warnings: tuple[Complaint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the checks look at: configuration, partitions, jobs and nodes of this cluster."""

    config: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    observation: Observation


def run_precheck(
    policy: SitePolicy, quotas: tuple[AgentQuota, ...], accounting: Accounting, around: Surroundings
) -> Precheck:
    """Return every complaint, in a fixed order."""
    ours = frozenset(name for quota in quotas for name in band_names(quota))
    blocking, warning = partition_complaints(policy, accounting, around.partitions, ours)
    return Precheck(
        blockers=(
            *setting_complaints(around.config),
            *_untracked(quotas, around.config),
            *_template(policy, accounting),
            *_band_order(policy, accounting, around.config, ours),
            *excess_complaints(policy, around.observation),
            *blocking,
        ),
        warnings=(
            *_exempt_time(around.config),
            *_raised(accounting, ours),
            *_group_limits(policy, accounting),
            *_sub_accounts(policy, accounting),
            *_unknown_accounts(policy, accounting),
            *quota_complaints(policy, quotas, around.observation),
            *_out_nodes(policy, around.observation),
            *warning,
        ),
    )


def compute_band_order(
    policy: SitePolicy, accounting_maximum: int, config: Mapping[str, str], *, guaranteed: int | None = None
) -> BandOrder:
    """Return the band-order rule with this site's numbers.

    Parameters
    ----------
    accounting_maximum : int
        Highest priority among the site's own QOSes.
    guaranteed : int, optional
        Priority of the guaranteed QOSes as they are; default: what ``apply`` would choose.
    """
    chosen = guaranteed_priority(accounting_maximum) if guaranteed is None else guaranteed
    maxima = dict(factor_maxima(config))
    weight = maxima.pop("qos", 0)
    return BandOrder(
        guaranteed=chosen,
        borrow=HIGHEST_BORROW_PRIORITY,
        highest=max(accounting_maximum, chosen),
        weight=weight,
        others=policy.factor_scale + sum(maxima.values()),
    )


def setting_complaints(config: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what in Slurm's configuration forbids bands; each ``what`` starts with the setting's name."""
    preempt_type = config.get("PreemptType", "")
    if preempt_type != "preempt/qos":
        yield Complaint(
            what=f"PreemptType={preempt_type or '(none)'}",
            why="without preempt/qos nobody gets lent GPUs back; leave the bands section out for ordering only",
            fix="slurm.conf: PreemptType=preempt/qos",
        )
    mode = config.get("PreemptMode", "")
    if "OFF" in mode.upper().split(","):
        yield Complaint(what=f"PreemptMode={mode}", why="Slurm preempts nothing", fix="slurm.conf: PreemptMode=REQUEUE")
    words = {word.strip().lower() for word in config.get("AccountingStorageEnforce", "").split(",")}
    if not (words & _LIMITS and words & _QOS):
        yield Complaint(
            what=f"AccountingStorageEnforce={','.join(sorted(words)) or '(none)'}",
            why="Slurm enforces no quota without limits and qos",
            fix="slurm.conf: AccountingStorageEnforce=associations,limits,qos",
        )


def _untracked(quotas: tuple[AgentQuota, ...], config: Mapping[str, str]) -> Iterator[Complaint]:
    tracked = {"cpu", "mem", *(word.strip() for word in config.get("AccountingStorageTRES", "").split(","))}
    limited = {name for quota in quotas for name, _ in (*(quota.nominal or ()), *quota.borrow_cap)}
    missing = sorted(limited - tracked)
    if missing:
        words = [word for word in config.get("AccountingStorageTRES", "").split(",") if word.startswith("gres/")]
        yield Complaint(
            what=f"AccountingStorageTRES lacks {', '.join(missing)}",
            why="slurmdbd knows no such TRES, so it cannot be limited; slurmctld must be restarted after the change",
            fix=f"slurm.conf: AccountingStorageTRES={','.join(sorted({*words, *missing}))}",
        )


def _exempt_time(config: Mapping[str, str]) -> Iterator[Complaint]:
    found = config.get("PreemptExemptTime", "00:00:00")
    if found not in _NO_TIME:
        yield Complaint(
            what=f"PreemptExemptTime={found}",
            why="a borrowed job keeps its GPUs at least that long, however much its owner is owed",
            fix="slurm.conf: PreemptExemptTime=0",
        )


def _template(policy: SitePolicy, accounting: Accounting) -> Iterator[Complaint]:
    if policy.bands is not None and accounting.find_qos(policy.bands.template_qos) is None:
        yield Complaint(
            what=f"bands.template_qos: there is no QOS {policy.bands.template_qos!r}",
            why="our QOSes start from its limits",
            fix=f"site file: bands: {{template_qos: NAME}}  # one of {', '.join(row.name for row in accounting.qos)}",
        )


def _band_order(
    policy: SitePolicy, accounting: Accounting, config: Mapping[str, str], ours: frozenset[str]
) -> Iterator[Complaint]:
    order = compute_band_order(policy, site_maximum(accounting, ours), config)
    if not order.holds:
        yield Complaint(
            what=f"band order: {order.text}",
            why="a borrowed job could start ahead of a guaranteed one and be preempted at once",
            fix=band_order_fix(order, policy.factor_scale),
        )


def band_order_fix(order: BandOrder, scale: int) -> str:
    """Return the line that makes the rule hold: a larger weight, or a smaller scale where that is enough."""
    fix = f"slurm.conf: PriorityWeightQOS={order.needed_weight}"
    room = order.gap - 1 - (order.others - scale)
    return f"{fix}, or site file: site_factor: {{scale: {room}}}" if room >= 100 else fix


def _raised(accounting: Accounting, ours: frozenset[str]) -> Iterator[Complaint]:
    highest = site_maximum(accounting, ours)
    chosen = guaranteed_priority(highest)
    if chosen > highest > 0:
        yield Complaint(
            what=f"our QOS priority {RAISED_PRIORITY} is above the site's maximum {highest}",
            why="Slurm divides by the maximum, so the QOS part of the site's other jobs shrinks",
            fix=f"sacctmgr: raise the highest QOS priority to {RAISED_PRIORITY + 1} or more, in proportion",
        )


def _group_limits(policy: SitePolicy, accounting: Accounting) -> Iterator[Complaint]:
    template = accounting.find_qos(policy.bands.template_qos) if policy.bands is not None else None
    words = [word for word in NOT_COPIED_GROUP if template is not None and template.fields.get(word)]
    if template is not None and words:
        yield Complaint(
            what=f"QOS {template.name} limits {', '.join(words)} of all its jobs together",
            why="that is not copied: jobs in our QOSes do not count there",
        )


def _sub_accounts(policy: SitePolicy, accounting: Accounting) -> Iterator[Complaint]:
    listed = {account: agent.name for agent in policy.agents for account in agent.accounts}
    for row in accounting.associations:
        if not row.key.user and row.parent in listed and row.key.account not in listed:
            yield Complaint(
                what=f"account {row.key.account} is below {row.parent} and not in the site file",
                why="it inherits the parent's QOSes and default: its jobs count against the parent's quota",
                fix=f"site file: agents.{listed[row.parent]}.accounts: add {row.key.account}",  # type: ignore[index]
            )


def _unknown_accounts(policy: SitePolicy, accounting: Accounting) -> Iterator[Complaint]:
    known = {row.key.account for row in accounting.associations}
    for agent in policy.agents:
        for account in agent.accounts:
            if account not in known:
                yield Complaint(
                    what=f"account {account} of agent {agent.name} has no association on this cluster",
                    why="apply again when it exists",
                    fix=f"sacctmgr -i add account {account} cluster={accounting.cluster}",
                )


def _out_nodes(policy: SitePolicy, seen: Observation) -> Iterator[Complaint]:
    out = nodes_not_counted(policy, seen.nodes, seen.at_s)
    if out and any(agent.quota.kind is QuotaKind.AUTO for agent in policy.agents):
        yield Complaint(
            what=f"{describe_out(out)}, not counted",
            why="quota: auto splits what is in service; when a node is back, apply again",
        )
