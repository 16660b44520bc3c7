"""The verb *decide*: from one observation to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.canonical import plan_bytes, plan_digest
from policies.census import compute_state
from policies.factor_plan import PolicyParams
from policies.registry import get_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.plan import BandMemory, Plan, SlaMemory
    from policies.records import Observation
    from policies.site_policy import SitePolicy

__all__ = ["decide", "plan_bytes", "plan_digest"]


def decide(
    observation: Observation,
    site_policy: SitePolicy,
    sla_memory: Sequence[SlaMemory] = (),
    band_memory: Sequence[BandMemory] = (),
    *,
    now: float,
) -> Plan:
    """Plan of one cycle.

    Parameters
    ----------
    observation : Observation
        What this cycle read.
    site_policy : SitePolicy
        Names the scheduling policy.
    sla_memory : sequence of SlaMemory, optional
        ``Plan.sla_memory`` of the cycle before; empty on the first one.
    band_memory : sequence of BandMemory, optional
        ``Plan.band_memory`` of the cycle before; empty on the first one and without bands.
    now : float
        Seconds since the epoch. The only clock.

    Returns
    -------
    Plan
        The same input gives the same plan, byte for byte (:func:`plan_bytes`).

    Raises
    ------
    UnknownPolicyError
        The site policy names a scheduling policy that does not exist.
    """
    policy = get_policy(site_policy.policy)
    state = compute_state(observation, site_policy)
    params = PolicyParams(site=site_policy, sla_memory=tuple(sla_memory), band_memory=tuple(band_memory))
    return policy.decide(state, params, now=now)
