"""The bands in one snapshot: which QOS is whose band, and the job rows behind the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from policies.plan import Finding
from policies.quota.names import PREFIX, Band, band_qos
from policies.records import JobRecord, JobState, NodeRecord, QosRecord
from policies.site_policy import QuotaKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.records import Observation
    from policies.site_policy import AgentPolicy, SitePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBands:
    """The QOSes of one agent as slurmctld shows them; a band that does not exist is ``None``."""

    guaranteed: QosRecord
    borrow: QosRecord | None = None
    opportunistic: QosRecord | None = None

    def qos(self, band: Band) -> QosRecord | None:
        """The QOS of a band."""
        return {Band.GUARANTEED: self.guaranteed, Band.BORROW: self.borrow, Band.OPPORTUNISTIC: self.opportunistic}[
            band
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BandState:
    """What the band rules look at, beside the columns of ``ClusterState``.

    Attributes
    ----------
    cluster : str
        As the site file spells it; it is in the names of the QOSes.
    agents : tuple of AgentBands or None
        In the order of ``ClusterState.agents``; ``None`` for an agent without bands.
    place_of : mapping of str to (int, Band)
        QOS name -> (index of the agent, band).
    pending : tuple of JobRecord
        In the row order of ``PendingJobs``.
    running : tuple of (int, JobRecord)
        Managed jobs that hold resources, with the index of their agent.
    foreign : tuple of JobRecord
        Other jobs that hold resources; those in a QOS of ours are charged to it all the same.
    nodes : tuple of NodeRecord
        Of the managed partitions.
    """

    cluster: str
    agents: tuple[AgentBands | None, ...]
    place_of: Mapping[str, tuple[int, Band]]
    pending: tuple[JobRecord, ...]
    running: tuple[tuple[int, JobRecord], ...]
    foreign: tuple[JobRecord, ...]
    nodes: tuple[NodeRecord, ...]
    findings: tuple[Finding, ...] = ()

    def band_of(self, agent: int, job: JobRecord) -> Band | None:
        """The agent's own band that the job's QOS is, or ``None``."""
        owner, band = self.place_of.get(job.qos, (-1, Band.GUARANTEED))
        return band if owner == agent else None

    def counted(self) -> list[tuple[int, JobRecord]]:
        """Running jobs that count against limits: a completing job still holds its nodes, but no quota."""
        ours = [(agent, job) for agent, job in self.running if job.state is not JobState.COMPLETING]
        return ours + self.charged_elsewhere()

    def charged_elsewhere(self) -> list[tuple[int, JobRecord]]:
        """Running foreign jobs that Slurm charges to a QOS of ours, with the agent whose it is.

        A QOS has one account on the whole cluster: a job outside the managed partitions uses up the same limits.
        """
        return [
            (self.place_of[job.qos][0], job)
            for job in self.foreign
            if job.qos in self.place_of and job.state is not JobState.COMPLETING
        ]


def compute_band_state(
    observation: Observation,
    site: SitePolicy,
    agents: Sequence[AgentPolicy],
    *,
    jobs: tuple[tuple[JobRecord, ...], tuple[tuple[int, JobRecord], ...], tuple[JobRecord, ...]],
    nodes: tuple[NodeRecord, ...],
) -> BandState:
    """Bands of the agents whose guaranteed QOS slurmctld shows.

    Parameters
    ----------
    jobs : (pending, running, foreign)
        As in :class:`BandState`.
    """
    shown = {record.name: record for record in observation.qos}
    found: list[AgentBands | None] = []
    place_of: dict[str, tuple[int, Band]] = {}
    for index, agent in enumerate(agents):
        names = {band: band_qos(site.cluster, agent.name, band) for band in Band}
        guaranteed = shown.get(names[Band.GUARANTEED])
        if agent.quota.kind is QuotaKind.NONE or guaranteed is None:
            found.append(None)
            continue
        place_of |= {names[band]: (index, band) for band in Band if names[band] in shown}
        found.append(
            AgentBands(
                guaranteed=guaranteed,
                borrow=shown.get(names[Band.BORROW]),
                opportunistic=shown.get(names[Band.OPPORTUNISTIC]),
            )
        )
    return BandState(
        cluster=site.cluster,
        agents=tuple(found),
        place_of=MappingProxyType(place_of),
        pending=jobs[0],
        running=jobs[1],
        foreign=jobs[2],
        nodes=nodes,
        findings=tuple(_missing(agents, found)),
    )


def is_managed_qos(site: SitePolicy, qos: str) -> bool:
    """Whether a job of this QOS is ours to look after; any other explicit QOS passes as foreign use.

    Managed: no QOS at all (no accounting), the site's ``managed_qos``, and QOSes of ours on this cluster.
    """
    if site.bands is None:
        return True
    prefix = f"{PREFIX}{site.cluster}_".lower()
    return all(name in ("", *site.bands.managed_qos) or name.startswith(prefix) for name in qos.split(","))


def _missing(agents: Sequence[AgentPolicy], found: Iterable[AgentBands | None]) -> list[Finding]:
    names = [
        agent.name
        for agent, bands in zip(agents, found, strict=True)
        if bands is None and agent.quota.kind is not QuotaKind.NONE
    ]
    if not names:
        return []
    text = f"slurmctld does not show the QOSes of {', '.join(names)}: they are ordered, not limited (fairgpu apply)"
    return [Finding(kind="bands_missing", subject="agents", text=text)]
