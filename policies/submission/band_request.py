"""Whether a job may ask for one of our QOSes by name.

A job in a borrow or opportunistic QOS is preempted with REQUEUE whenever its place is owed to somebody: Slurm kills
what it cannot requeue (srun, salloc, ``--no-requeue``). Such a job is refused at submission, not when it dies
(DESIGN.md, promise 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, band_qos
from policies.records import AgentName
from policies.site_policy import QuotaKind

if TYPE_CHECKING:
    from policies.site_policy import SitePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRequest:
    """The QOS that a job asks for, and whether the job survives a preemption.

    Attributes
    ----------
    qos : str
        As asked, several joined by commas (24.11 and later); empty if none was asked: the account's default.
    is_batch : bool
        False for srun and salloc.
    is_requeueable : bool or None
        ``None`` where Slurm does not tell (an update of a job on releases whose Lua shows no such field).
    is_move : bool
        A job that is there already is moved to this QOS; what it asked for at submission is not.
    """

    qos: str = ""
    is_batch: bool = True
    is_requeueable: bool | None = True
    is_move: bool = False


NO_BAND: Final = BandRequest()
"""No QOS was asked for by name."""


@dataclass(frozen=True, slots=True, eq=False)
class BandNames:
    """The site's QOSes by name (lower case): whose they are and which band.

    Attributes
    ----------
    managed : frozenset of str
        QOSes without a quota whose jobs FairGPU moves into a band while they wait (``managed_qos``).
    """

    by_qos: Mapping[str, tuple[AgentName, Band]]
    cluster: str
    managed: frozenset[str] = frozenset()

    @classmethod
    def from_policy(cls, policy: SitePolicy) -> BandNames:
        """Names of a site policy's bands; none without a ``bands`` section."""
        agents = () if policy.bands is None else policy.agents
        by_qos = {
            band_qos(policy.cluster, agent.name, band): (agent.name, band)
            for agent in agents
            if agent.quota.kind is not QuotaKind.NONE
            for band in Band
        }
        managed = () if policy.bands is None else policy.bands.managed_qos
        return cls(by_qos=MappingProxyType(by_qos), cluster=policy.cluster, managed=frozenset(map(str.lower, managed)))

    def qos_to_set(self, request: BandRequest, agent: AgentName, *, home: AgentName | None) -> str:
        """Guaranteed QOS that a new job is to have instead of what it asks for; empty if it may stay as it is.

        In a managed QOS, or in the default QOS of an account that is not the agent's, a job starts before anybody can
        move it, and nobody can take back what it holds.

        Parameters
        ----------
        agent : AgentName
            Whom the job counts for.
        home : AgentName or None
            The agent of the job's account, whose quota is the default there.
        """
        wanted = band_qos(self.cluster, agent, Band.GUARANTEED)
        is_outside = self._managed_name(request.qos) != "" if request.qos else agent != home
        return wanted if is_outside and wanted in self.by_qos else ""

    def _managed_name(self, asked: str) -> str:
        """The managed QOS among those asked for; empty if there is none or if a QOS of the site's own is there too."""
        names = [name.strip() for name in asked.lower().split(",")]
        if not all(name in self.managed or name in self.by_qos for name in names):
            return ""
        return next((name for name in names if name in self.managed), "")

    def why_refused(self, request: BandRequest, agent: AgentName | None, *, home: AgentName | None = None) -> str:
        """What is wrong with the request, and the next step; empty if nothing is.

        Parameters
        ----------
        agent : AgentName or None
            Whom the job counts for; ``None`` leaves only the question whether the job would survive.
        home : AgentName or None
            The agent of the job's account.
        """
        if agent is not None and request.is_move and self.qos_to_set(request, agent, home=home):
            name = f"QOS {self._managed_name(request.qos)}" if request.qos else "The default QOS of the account"
            return (
                f"{name} has no quota of agent {agent}: nobody could take back what this job holds there. Leave the "
                f"QOS as it is, or ask for {self._guaranteed(agent)}."
            )
        for name in request.qos.lower().split(","):
            owner, band = self.by_qos.get(name.strip(), (None, Band.GUARANTEED))
            if owner is None:
                continue
            if agent is not None and owner != agent:
                return (
                    f"QOS {name.strip()} belongs to agent {owner}, and this job counts for agent {agent}. "
                    f"Leave the QOS out, {agent}'s quota is the default, or ask for {self._guaranteed(agent)}."
                )
            problem = "" if band is Band.GUARANTEED else _why_it_dies(request)
            if problem:
                return (
                    f"Jobs in QOS {name.strip()} may be taken back at any time, and {problem} "
                    f"or ask for {self._guaranteed(owner)}."
                )
        return ""

    def _guaranteed(self, agent: AgentName) -> str:
        return f"qos={band_qos(self.cluster, agent, Band.GUARANTEED)}"


def _why_it_dies(request: BandRequest) -> str:
    if not request.is_batch:
        return "srun and salloc die of it: only batch jobs that may be requeued borrow. Use sbatch,"
    if request.is_requeueable is None:
        return (
            "whether this job may be requeued is not known here. Leave the QOS as it is, since waiting jobs are moved "
            "by FairGPU, say requeue=1 in the same command,"
        )
    return "" if request.is_requeueable else "a job that may not be requeued dies of it. Leave out --no-requeue,"
