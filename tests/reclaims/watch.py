"""What the core sees of a real cluster, and whom it expects to lose a job to claims that wait there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from policies.census import compute_state
from policies.quota.amounts import GPU
from policies.quota.free_room import FreeRoom
from policies.quota.victims import list_loans, predict_victims
from policies.records import JobId, JobState
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.site import SiteFile, load_site
from tests.e2e.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.quota.band_state import BandState
    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy

SETTLE_S: Final = 1.5
"""Between two looks that must agree: longer than a cycle of the rebalancer."""

N_LOOKS_IDLE: Final = 4
"""While GPUs are idle a victim's delay after the requeue may soon be over."""

MAX_LOOKS: Final = 20
N_GPUS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a lender asks for: GPUs on each of some nodes."""

    agent: str
    gpus: int
    n_nodes: int = 1

    @property
    def options(self) -> tuple[str, ...]:
        """The options of sbatch."""
        return (f"--nodes={self.n_nodes}", f"--gpus-per-node={self.gpus}")

    def __str__(self) -> str:
        """Show it in a line of the report."""
        return f"{self.agent} {self.n_nodes}x{self.gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """A cluster, read as the rebalancer reads it."""

    cluster: MiniCluster
    client: CliSlurm
    site: SiteFile

    @classmethod
    def of(cls, cluster: MiniCluster) -> Self:
        """Return one that reads as user fairgpu."""
        runner = ProcessRunner(prefix=tuple(cluster.argv("fairgpu")))
        site = load_site(cluster.root / "etc/fairgpu-site.yaml")
        return cls(cluster=cluster, client=CliSlurm(CliSettings(runner=runner)), site=site)

    def look(self) -> Observation:
        """Observe now."""
        return observe(self.client, self.site, GroupCache())

    def look_when_settled(self) -> Observation:
        """Observe once nothing completes or changes: since the look before, or longer while GPUs are idle."""
        seen, before, n_same = self.look(), None, 0
        for _ in range(MAX_LOOKS):
            shape = (placements(seen), seen.qos)
            is_quiet = shape == before and not any(job.state is JobState.COMPLETING for job in seen.jobs)
            n_same = n_same + 1 if is_quiet else 0
            if n_same >= (1 if gpus_in_use(seen) == N_GPUS else N_LOOKS_IDLE):
                break
            before = shape
            time.sleep(SETTLE_S)
            seen = self.look()
        return seen


def placements(seen: Observation) -> dict[str, str]:
    """Return the nodes of each running job."""
    return {str(job.job_id): job.nodes for job in seen.jobs if job.state is JobState.RUNNING}


def gpus_in_use(seen: Observation) -> int:
    """Return how many GPUs running jobs hold."""
    return sum(dict(job.tres).get(GPU, 0) for job in seen.jobs if job.state is JobState.RUNNING)


def predict(
    seen: Observation, site: SitePolicy, claims: Sequence[str], *, keeps_nodes: bool = False
) -> frozenset[str] | None:
    """Return the expected victims of claims that Slurm looks at in this order.

    Parameters
    ----------
    keeps_nodes : bool
        Whether later claims leave the nodes of the earlier ones alone, as in backfill.

    Returns
    -------
    frozenset of str or None
        Job ids; ``None`` if one of the claims does not fit even without all loans.
    """
    state = compute_state(seen, site)
    bands = state.bands
    assert bands is not None
    room = FreeRoom(bands.nodes, [held for _, held in bands.running] + list(bands.foreign))
    taken: set[JobId] = set()
    for job in [_waiting(seen, claim) for claim in claims]:
        record = next(record for record in seen.qos if record.name == job.qos)
        loans = [loan for loan in list_loans(state, bands, record.preempt) if loan.job.job_id not in taken]
        victims = predict_victims(job, loans, room)
        if victims is None:
            return None
        for victim in victims:
            room.release(victim.job)
        taken |= {victim.job.job_id for victim in victims}
        room = _without_nodes(room, bands, job) if keeps_nodes else room
        room.place(job)
    return frozenset(map(str, taken))


def _waiting(seen: Observation, claim: str) -> JobRecord:
    job: JobRecord = next(job for job in seen.jobs if job.job_id == JobId(claim))
    assert job.state is JobState.PENDING
    return job


def _without_nodes(room: FreeRoom, bands: BandState, job: JobRecord) -> FreeRoom:
    """Return the room on the nodes that the job would not get."""
    chosen = set(room.where(job) or ())
    names = sorted(node.name for node in bands.nodes)
    kept = {name for row, name in enumerate(names) if row not in chosen}
    nodes = [node for node in bands.nodes if node.name in kept]
    return FreeRoom(nodes, [held for _, held in bands.running] + list(bands.foreign))
