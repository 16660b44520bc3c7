"""What slurmdbd should hold for the bands of a site file: our QOSes and who may use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.layout import (
    HIGHEST_BORROW_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    full_preempt_list,
    keep_opportunistic,
)
from policies.quota.names import Band, loan_band, own_prefix
from policies.records import AccountName, AgentName
from policies.site_policy import TagSource
from slurm_plugin.bands.accounting import Accounting, AssocKey, canonical, tres_text
from slurm_plugin.bands.priorities import guaranteed_priority
from slurm_plugin.client.qos import parse_limits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from policies.quota.nominal import AgentQuota
    from policies.records import Tres
    from policies.site_policy import BandPolicy, SitePolicy
    from slurm_plugin.bands.accounting import AssocRow, QosRow

COPIED: Final = (
    "flags",
    "usagethreshold",
    "usagefactor",
    "limitfactor",
    "maxtresperjob",
    "maxtrespernode",
    "maxtresminsperjob",
    "maxwalldurationperjob",
    "maxtresperuser",
    "maxtresrunminsperuser",
    "maxjobsperuser",
    "maxsubmitjobsperuser",
    "maxtresperaccount",
    "maxtresrunminsperaccount",
    "maxjobsperaccount",
    "maxsubmitjobsperaccount",
    "mintresperjob",
)
"""What ours take over from the template: limits of a job, a user or an account, and flags."""

NOT_COPIED_GROUP: Final = ("grptres", "grptresmins", "grptresrunmins", "grpjobs", "grpsubmitjobs", "grpwall")
"""Limits of a whole QOS: ours have their own, several copies would not be the same limit."""

DROPPED_FLAGS: Final = frozenset({"NoReserve", "DenyOnLimit", "Relative"})
"""NoReserve starves large jobs, DenyOnLimit rejects jobs when a quota shrinks, Relative reads GrpTRES as percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QosSpec:
    """One QOS of ours; ``fields`` as in :class:`~slurm_plugin.bands.accounting.QosRow`."""

    name: str
    agent: AgentName
    band: Band
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssocGoal:
    """What an association shall allow; ``default`` is ``None`` where it is left alone.

    Attributes
    ----------
    inherited : tuple of str
        Those of ``qos`` that the account's own association will allow anyway.
    """

    key: AssocKey
    qos: tuple[str, ...]
    default: str | None
    inherited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The goal: our QOSes by name, and the associations of the agents' accounts.

    Attributes
    ----------
    closed : frozenset of str
        Opportunistic QOSes that stay although the band is off: nobody may use them, borrow lists name them.
    """

    qos: tuple[QosSpec, ...]
    associations: tuple[AssocGoal, ...]
    closed: frozenset[str] = frozenset()


def compute_desired(
    policy: SitePolicy,
    quotas: tuple[AgentQuota, ...],
    accounting: Accounting,
    groups_by_user: Mapping[str, tuple[str, ...]],
    *,
    created: Collection[str] = (),
) -> Desired:
    """Return what slurmdbd should hold.

    Parameters
    ----------
    groups_by_user : mapping
        Unix groups of the users who have associations; tells who may write whose tag.
    created : collection of str
        QOSes that the journal knows: those of former agents that still exist stay in the Preempt lists.

    Notes
    -----
    Each association of an agent's account allows that agent's QOSes. A user who may write an agent's tag by name or
    group may use its QOSes too, from any account; that is what the tag means.
    """
    if policy.bands is None:
        return Desired(qos=(), associations=())
    present = {row.name for row in accounting.qos}
    kept = keep_opportunistic(quotas, policy.cluster, present)
    current = frozenset(name for quota in kept for name in band_names(quota))
    retired = tuple(sorted(present.intersection(created) - current))
    specs = tuple(spec for quota in kept for spec in _agent_specs(quota, (kept, retired), policy.bands, accounting))
    return Desired(
        qos=tuple(sorted(specs, key=lambda spec: spec.name)),
        associations=_goals(policy, quotas, accounting, groups_by_user),
        closed=frozenset() if policy.bands.opportunistic else _opportunistic(kept, retired),
    )


def band_names(quota: AgentQuota) -> tuple[str, ...]:
    """Return the QOSes of one agent, guaranteed first."""
    names = (quota.guaranteed_qos, quota.borrow_qos, quota.opportunistic_qos)
    return tuple(name for name in names if name is not None)


def site_maximum(rows: Iterable[QosRow], cluster: str) -> int:
    """Return the highest priority among QOSes that are not ours, former agents' included."""
    prefix = own_prefix(cluster)
    return max((row.priority for row in rows if not row.name.startswith(prefix)), default=0)


def _opportunistic(quotas: Iterable[AgentQuota], retired: Iterable[str]) -> frozenset[str]:
    own = frozenset(quota.opportunistic_qos for quota in quotas if quota.opportunistic_qos is not None)
    return own.union(name for name in retired if loan_band(name) is Band.OPPORTUNISTIC)


def _agent_specs(
    quota: AgentQuota,
    listed: tuple[tuple[AgentQuota, ...], tuple[str, ...]],
    bands: BandPolicy,
    accounting: Accounting,
) -> list[QosSpec]:
    quotas, retired = listed
    base = _template_fields(accounting.find_qos(bands.template_qos))
    by_band = {
        Band.GUARANTEED: (
            quota.guaranteed_qos,
            {
                "priority": str(guaranteed_priority(site_maximum(accounting.qos, accounting.cluster))),
                "preemptmode": "cluster",
                "gracetime": "0",
                "grptres": tres_text(quota.nominal or ()),
            },
        ),
        Band.BORROW: (
            quota.borrow_qos,
            {
                "priority": str(HIGHEST_BORROW_PRIORITY),
                "preemptmode": "requeue",
                "gracetime": str(bands.grace_s),
                "grptres": tres_text(quota.borrow_cap),
                "maxtresperjob": _with_nodes(base.get("maxtresperjob", ""), bands.max_borrow_nodes),
            },
        ),
        Band.OPPORTUNISTIC: (
            quota.opportunistic_qos,
            {
                "priority": str(OPPORTUNISTIC_PRIORITY),
                "preemptmode": "requeue",
                "gracetime": "0",
                "grptres": "",
            },
        ),
    }
    return [
        QosSpec(
            name=name,
            agent=quota.agent,
            band=band,
            fields={
                **base,
                **fields,
                "preempt": ",".join(full_preempt_list(quotas, quota.agent, band, retired=retired)),
            },
        )
        for band, (name, fields) in by_band.items()
        if name is not None
    ]


def _template_fields(template: QosRow | None) -> dict[str, str]:
    if template is None:
        return {}
    fields = {word: template.fields[word] for word in COPIED if word in template.fields}
    kept = [flag for flag in fields.get("flags", "").split(",") if flag not in DROPPED_FLAGS]
    return {**fields, "flags": canonical("flags", ",".join(kept))}


def _with_nodes(limits: str, nodes: int) -> str:
    found = dict(parse_limits(limits))
    merged: Tres = tuple(sorted({**found, "node": min(nodes, found.get("node", nodes))}.items()))
    return tres_text(merged)


def _goals(
    policy: SitePolicy,
    quotas: tuple[AgentQuota, ...],
    accounting: Accounting,
    groups_by_user: Mapping[str, tuple[str, ...]],
) -> tuple[AssocGoal, ...]:
    by_agent = {quota.agent: quota for quota in quotas}
    owner = {account: by_agent[agent.name] for agent in policy.agents for account in agent.accounts}
    is_default_ours = policy.bands is not None and policy.bands.set_default_qos
    goals = []
    for row in accounting.associations:
        quota = owner.get(AccountName(row.key.account))
        own = () if quota is None else band_names(quota)
        names = {*own, *_tag_names(policy, by_agent, row, groups_by_user)}
        default = quota.guaranteed_qos if quota is not None and is_default_ours else None
        if names:
            inherited = tuple(sorted(own)) if row.key.user else ()
            goals.append(AssocGoal(key=row.key, qos=tuple(sorted(names)), default=default, inherited=inherited))
    return tuple(goals)


def _tag_names(
    policy: SitePolicy,
    by_agent: Mapping[AgentName, AgentQuota],
    row: AssocRow,
    groups_by_user: Mapping[str, tuple[str, ...]],
) -> set[str]:
    user = row.key.user
    if not user or policy.tag_source is TagSource.ACCOUNT:
        return set()
    groups = groups_by_user.get(user, ())
    return {
        name
        for agent in policy.agents
        if user in agent.users or not set(groups).isdisjoint(agent.groups)
        for name in band_names(by_agent[agent.name])
    }
