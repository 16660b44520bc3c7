"""How the QOSes of the bands stand to each other: priorities and full Preempt lists. ``apply`` and ``decide`` share it.

Priorities, lowest first: opportunistic 1, borrow 2 to 9 (its rank), guaranteed above (chosen by ``apply``). Slurm
takes the preemptible job of the lowest QOS priority first, so the agent furthest above its nominal quota has the lowest
borrow rank.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, band_qos, loan_band

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from policies.quota.nominal import AgentQuota
    from policies.records import AgentName

OPPORTUNISTIC_PRIORITY: Final = 1
"""Lowest of ours: opportunistic jobs are taken before any borrowed one."""

N_BORROW_RANKS: Final = 8
"""Classes of over-use: few, so that inside one class Slurm's preference for smaller jobs works."""

LOWEST_BORROW_PRIORITY: Final = OPPORTUNISTIC_PRIORITY + 1
"""Of the agents furthest above nominal."""

HIGHEST_BORROW_PRIORITY: Final = LOWEST_BORROW_PRIORITY + N_BORROW_RANKS - 1
"""Of agents at or below nominal; also what ``apply`` writes into a new borrow QOS."""


def keep_opportunistic(quotas: Iterable[AgentQuota], cluster: str, present: Collection[str]) -> tuple[AgentQuota, ...]:
    """Quotas with the opportunistic QOSes that exist, although the site file has switched the band off.

    Once a borrow QOS's Preempt list was emptied, slurmdbd 22.05 refuses every list that names this QOS. So what the
    borrow lists name stays until all bands are removed; no association may use it.
    """
    kept = []
    for quota in quotas:
        name = band_qos(cluster, quota.agent, Band.OPPORTUNISTIC)
        is_kept = quota.guaranteed_qos is not None and name in present
        kept.append(replace(quota, opportunistic_qos=name) if is_kept else quota)
    return tuple(kept)


def full_preempt_list(
    quotas: Iterable[AgentQuota], agent: AgentName, band: Band, *, retired: Iterable[str] = ()
) -> tuple[str, ...]:
    """Which QOSes the jobs of an agent's band may preempt when nobody steers: what ``apply`` writes.

    Parameters
    ----------
    quotas : iterable of AgentQuota
        Of all agents.
    retired : iterable of str
        QOSes of former agents that still exist: the jobs in their borrowed bands stay loans.

    Returns
    -------
    tuple of str
        Sorted. Guaranteed: every borrow and opportunistic QOS, its own included (an agent that had to take from
        others while it keeps own loans would push them below nominal). Borrow: every opportunistic QOS.
        Opportunistic: nothing.
    """
    chosen = tuple(quotas)
    former = tuple(retired)
    opportunistic = [quota.opportunistic_qos for quota in chosen]
    opportunistic += [name for name in former if loan_band(name) is Band.OPPORTUNISTIC]
    borrow = [quota.borrow_qos for quota in chosen]
    borrow += [name for name in former if loan_band(name) is Band.BORROW]
    has_bands = any(quota.agent == agent and quota.guaranteed_qos for quota in chosen)
    names = {Band.GUARANTEED: [*borrow, *opportunistic], Band.BORROW: opportunistic, Band.OPPORTUNISTIC: []}[band]
    return tuple(sorted(name for name in names if name)) if has_bands else ()
