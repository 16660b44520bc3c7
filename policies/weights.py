"""The agents' weights in this cycle: normalised base weight times SLA factor."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from policies.fairness.sla_weight import IndicatorReading, read_indicators, update_sla_factor
from policies.plan import SlaMemory
from policies.records import AgentName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.site_policy import AgentPolicy, SitePolicy
    from policies.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWeight:
    """One agent's weight and what it is made of.

    Attributes
    ----------
    base_weight : Fraction
        Normalised: the base weights of all agents sum to 1.
    oldest_wait_s : float
        Longest wait among its startable pending jobs, seconds; 0 if nothing waits.
    memory : SlaMemory
        For the next cycle; holds the factor.
    """

    agent: AgentName
    base_weight: Fraction
    readings: tuple[IndicatorReading, ...]
    oldest_wait_s: float
    memory: SlaMemory

    @property
    def sla_factor(self) -> Fraction:
        """In [1/b, b]."""
        return self.memory.factor

    @property
    def weight(self) -> Fraction:
        """``base_weight * sla_factor``; not normalised again, so that one agent's SLA moves no other's tags."""
        return self.base_weight * self.memory.factor


def normalise_base_weights(agents: Sequence[AgentPolicy]) -> tuple[Fraction, ...]:
    """Base weights divided by their sum; all 0 if the sum is 0.

    Weights thus mean the same whatever units the admin used (6/3/1 or 0.6/0.3/0.1).
    """
    total = sum((agent.base_weight for agent in agents), start=Fraction(0))
    return tuple(agent.base_weight / total if total else Fraction(0) for agent in agents)


def compute_weights(
    state: ClusterState, site: SitePolicy, sla_memory: Sequence[SlaMemory], *, now: float
) -> tuple[AgentWeight, ...]:
    """One weight per agent of the state, in its order."""
    remembered: Mapping[AgentName, SlaMemory] = {memory.agent: memory for memory in sla_memory}
    waits = _longest_waits(state, now)
    weights = []
    for agent, base, wait_s in zip(state.agents, normalise_base_weights(state.agents), waits, strict=True):
        readings = read_indicators(
            agent.sla,
            (sample for sample in state.indicators if sample.agent == agent.name),
            queue_wait_s=wait_s,
            max_age_s=site.sla.max_age_s,
            now=now,
        )
        memory = update_sla_factor(agent.name, readings, memory=remembered.get(agent.name), tuning=site.sla, now=now)
        weights.append(
            AgentWeight(
                agent=agent.name,
                base_weight=base,
                readings=readings,
                oldest_wait_s=wait_s or 0.0,
                memory=memory,
            )
        )
    return tuple(weights)


def _longest_waits(state: ClusterState, now: float) -> list[float | None]:
    waits: list[float | None] = [None] * len(state.agents)
    pending = state.pending
    is_startable = pending.is_startable
    owners, since = pending.agent[is_startable], pending.wait_from_s[is_startable]
    for agent in range(len(waits)):
        own = since[owners == agent]
        if own.size:
            waits[agent] = max(0.0, now - float(own.min()))
    return waits
