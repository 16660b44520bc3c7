"""Nominal quotas: what each agent is owed, from the site file and the configured nodes alone.

SLA state, running jobs and drains do not move them. ``apply`` writes them to slurmdbd; at run time
the limits that slurmctld shows are what counts, so that plan and Slurm agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from policies.axes import BASE_AXES
from policies.quota.apportionment import apportion
from policies.quota.names import Band, band_qos
from policies.records import AgentName, Tres
from policies.site_policy import QuotaKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policies.records import NodeRecord
    from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuota:
    """What one agent is owed and may borrow, with the QOSes that say so.

    Attributes
    ----------
    nominal : Tres or None
        Limits of the guaranteed band, sorted by name, explicit zeros kept; a TRES that is absent is unlimited.
        ``None`` for ``quota: none``: the agent keeps the site's own QOS and has no bands.
    borrow_cap : Tres
        Limits of the borrow band, as above. An absent TRES is unbounded.
    guaranteed_qos, borrow_qos, opportunistic_qos : str or None
        Names; ``None`` where the band does not exist.
    """

    agent: AgentName
    nominal: Tres | None
    borrow_cap: Tres = ()
    guaranteed_qos: str | None = None
    borrow_qos: str | None = None
    opportunistic_qos: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessQuota:
    """Explicit quotas of one TRES that together are above what is configured.

    Attributes
    ----------
    tres : str
        Its name.
    promised, configured : int
        Sum of the explicit quotas, and of the nodes; in Slurm's unit of the TRES.
    agents : tuple of AgentName
        Whose explicit quotas name it, sorted.
    is_split : bool
        Whether ``auto`` quotas get a part of it: of this one they get 0.
    """

    tres: str
    promised: int
    configured: int
    agents: tuple[AgentName, ...]
    is_split: bool


def compute_nominals(site_policy: SitePolicy, nodes: Iterable[NodeRecord]) -> tuple[AgentQuota, ...]:
    """One quota per agent, by name; empty where the site file has no bands.

    Parameters
    ----------
    site_policy : SitePolicy
        Its base weights split each TRES by Webster's method, exactly; ties go to the earlier name.
    nodes : iterable of NodeRecord
        What counts as configured; those outside the managed partitions are ignored. The caller leaves out nodes that
        are away for long.

    Notes
    -----
    Explicit quotas are set aside first; the rest is split among the others. An agent with ``quota: none`` takes part
    in the split, and its part is owed to nobody: its jobs cannot be reclaimed, so it must not eat what others are owed.
    ``auto`` limits ``cpu``, ``mem`` and ``gres/gpu``; typed GPUs are limited only by explicit quotas.
    """
    bands = site_policy.bands
    if bands is None:
        return ()
    agents = tuple(sorted(site_policy.agents, key=lambda agent: agent.name))
    shares = _auto_shares(agents, configured_capacity(site_policy, nodes))
    return tuple(_quota(site_policy.cluster, agent, bands, shares[agent.name]) for agent in agents)


def configured_capacity(site_policy: SitePolicy, nodes: Iterable[NodeRecord]) -> Tres:
    """Sum of what the managed partitions' nodes are configured with, whatever their state, sorted by TRES name."""
    managed = frozenset(site_policy.partitions)
    total: dict[str, int] = {}
    for node in nodes:
        if not managed.isdisjoint(node.partitions):
            for name, amount in node.tres:
                total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))


def excess_quotas(site_policy: SitePolicy, nodes: Iterable[NodeRecord]) -> tuple[ExcessQuota, ...]:
    """Return each TRES of which explicit quotas promise more than is configured, by name.

    Parameters
    ----------
    nodes : iterable of NodeRecord
        All that are configured, those that are away for long, too: they come back, the promise stays.

    Notes
    -----
    Of TRES other than ``cpu``, ``mem`` and ``gres/...`` nodes say nothing, so nothing is said here.
    """
    configured = dict(configured_capacity(site_policy, nodes))
    promises: dict[str, dict[AgentName, int]] = {}
    for agent in sorted(site_policy.agents, key=lambda agent: agent.name):
        for name, amount in agent.quota.amounts:
            if name in BASE_AXES or name.startswith("gres/"):
                promises.setdefault(name, {})[agent.name] = amount
    return tuple(
        ExcessQuota(
            tres=name,
            promised=sum(amounts.values()),
            configured=configured.get(name, 0),
            agents=tuple(amounts),
            is_split=name in BASE_AXES,
        )
        for name, amounts in sorted(promises.items())
        if sum(amounts.values()) > configured.get(name, 0)
    )


def _auto_shares(agents: tuple[AgentPolicy, ...], capacity: Tres) -> Mapping[AgentName, Tres]:
    explicit = [dict(agent.quota.amounts) for agent in agents if agent.quota.kind is QuotaKind.EXPLICIT]
    weights = [Fraction(0) if agent.quota.kind is QuotaKind.EXPLICIT else agent.base_weight for agent in agents]
    configured = dict(capacity)
    shares: dict[AgentName, list[tuple[str, int]]] = {agent.name: [] for agent in agents}
    for axis in sorted(BASE_AXES):
        rest = configured.get(axis, 0) - sum(amounts.get(axis, 0) for amounts in explicit)
        for agent, amount in zip(agents, apportion(max(0, rest), weights), strict=True):
            shares[agent.name].append((axis, amount))
    return {name: tuple(amounts) for name, amounts in shares.items()}


def _quota(cluster: str, agent: AgentPolicy, bands: BandPolicy, auto: Tres) -> AgentQuota:
    if agent.quota.kind is QuotaKind.NONE:
        return AgentQuota(agent=agent.name, nominal=None)
    nominal = auto if agent.quota.kind is QuotaKind.AUTO else tuple(sorted(agent.quota.amounts))
    cap = tuple((name, int(amount * bands.borrow_frac)) for name, amount in nominal)
    return AgentQuota(
        agent=agent.name,
        nominal=nominal,
        borrow_cap=cap if agent.borrowing_limit is None else tuple(sorted(agent.borrowing_limit)),
        guaranteed_qos=band_qos(cluster, agent.name, Band.GUARANTEED),
        borrow_qos=band_qos(cluster, agent.name, Band.BORROW),
        opportunistic_qos=band_qos(cluster, agent.name, Band.OPPORTUNISTIC) if bands.opportunistic else None,
    )
