"""How the QOSes of the bands stand to each other: priorities and full Preempt lists. ``apply`` and ``decide`` share it.

Priorities, lowest first: opportunistic 1, borrow 2 to 9 (its rank), guaranteed above (chosen by ``apply``). Slurm
takes the preemptible job of the lowest QOS priority first, so the agent furthest above its nominal quota has the lowest
borrow rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.quota.names import Band

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def full_preempt_list(quotas: Iterable[AgentQuota], agent: AgentName, band: Band) -> tuple[str, ...]:
    """Which QOSes the jobs of an agent's band may preempt when nobody steers: what ``apply`` writes.

    Parameters
    ----------
    quotas : iterable of AgentQuota
        Of all agents.

    Returns
    -------
    tuple of str
        Sorted. Guaranteed: every borrow and opportunistic QOS, its own included (an agent that had to take from
        others while it keeps own loans would push them below nominal). Borrow: every opportunistic QOS.
        Opportunistic: nothing.
    """
    chosen = tuple(quotas)
    opportunistic = [quota.opportunistic_qos for quota in chosen]
    borrow = [quota.borrow_qos for quota in chosen]
    has_bands = any(quota.agent == agent and quota.guaranteed_qos for quota in chosen)
    names = {Band.GUARANTEED: [*borrow, *opportunistic], Band.BORROW: opportunistic, Band.OPPORTUNISTIC: []}[band]
    return tuple(sorted(name for name in names if name)) if has_bands else ()
