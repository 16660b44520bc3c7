"""Which QOSes are ours, and where a job belongs that waits in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies.quota.names import Band, band_qos
from policies.records import AgentName

if TYPE_CHECKING:
    from policies.site_policy import SitePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQos:
    """QOSes of the site's agents by name; empty where the site has no bands."""

    cluster: str = ""
    bands: Mapping[str, tuple[AgentName, Band]] = field(default_factory=dict)

    @classmethod
    def from_policy(cls, policy: SitePolicy) -> OwnQos:
        """The QOSes that a site file means."""
        agents = policy.agents if policy.bands is not None else ()
        return cls(
            cluster=policy.cluster,
            bands={band_qos(policy.cluster, agent.name, band): (agent.name, band) for agent in agents for band in Band},
        )

    def is_borrowed(self, qos: str) -> bool:
        """Whether jobs in this QOS run on borrowed quota (borrow or opportunistic)."""
        return qos in self.bands and self.bands[qos][1] is not Band.GUARANTEED

    def guaranteed_of(self, qos: str) -> str:
        """The guaranteed QOS of the agent that ``qos`` belongs to; ``qos`` itself if it is none of ours."""
        if qos not in self.bands:
            return qos
        return band_qos(self.cluster, self.bands[qos][0], Band.GUARANTEED)
