"""Reclaims as they are seen: a job that ran on borrowed quota and has one restart more in the next observation.

Slurm itself preempts, at any time between two cycles, so the evidence is in two observations that follow each other.
A job whose nodes are down now was not taken back. Who took the place: see :mod:`slurm_plugin.rebalancer.claims`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.nodelist import expand_nodes
from policies.quota.amounts import GPU, format_tres
from policies.quota.names import Band
from policies.records import AgentName, JobId, JobRecord
from slurm_plugin.rebalancer.claims import assign_claims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.records import Observation
    from slurm_plugin.rebalancer.own_qos import OwnQos


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """One job that was taken back.

    Attributes
    ----------
    job : JobRecord
        As it ran.
    restarts : int
        Slurm's count afterwards.
    ran_s : float
        How long it had run when it was last seen.
    claimant, claim
        Who has or waits for the place, and with which job; ``None`` if nobody was seen.
    reason : str
        In words, for ``fairgpu explain``.
    """

    job: JobRecord
    agent: AgentName
    band: Band
    restarts: int
    ran_s: float
    claimant: AgentName | None
    claim: JobRecord | None
    reason: str

    @property
    def claimant_job(self) -> JobId | None:
        """Id of the job that has or waits for the place."""
        return None if self.claim is None else self.claim.job_id


def find_reclaims(before: Observation, seen: Observation, own: OwnQos) -> tuple[Reclaim, ...]:
    """Return the reclaims between two observations, in the order of jobs."""
    now = {job.job_id: job for job in seen.jobs}
    down = {node.name for node in seen.nodes if "down" in node.state or "fail" in node.state}
    found = []
    for job in before.jobs:
        after = now.get(job.job_id)
        is_back = after is not None and job.state.holds_resources and after.restarts > job.restarts
        if after is None or not is_back or not own.is_borrowed(job.qos):
            continue
        if down.isdisjoint(expand_nodes(job.nodes)):
            found.append((job, after.restarts))
    claims = assign_claims([job for job, _ in found], before, seen, own)
    return tuple(
        _reclaim(job, claims.get(job.job_id), own, restarts=restarts, seen_s=before.at_s) for job, restarts in found
    )


def _reclaim(job: JobRecord, claim: JobRecord | None, own: OwnQos, *, restarts: int, seen_s: float) -> Reclaim:
    agent, band = own.bands[job.qos]
    claimant = None if claim is None else own.bands[claim.qos][0]
    return Reclaim(
        job=job,
        agent=agent,
        band=band,
        restarts=restarts,
        ran_s=max(0.0, seen_s - (job.start_s or seen_s)),
        claimant=claimant,
        claim=claim,
        reason=_words(job, band, claim, claimant),
    )


def describe_reclaim(qos: str, band: Band, claimant: AgentName | None, *, claim: str) -> str:
    """Return why a job was taken back; ``claim`` says which job of the claimant is concerned."""
    lent = "borrowed quota" if band is Band.BORROW else "idle resources beyond the borrow cap"
    if claimant is None:
        return f"it ran on {lent} ({qos}), and somebody who is owed the place needed it"
    return f"it ran on {lent} ({qos}), and agent {claimant} is owed it: {claim}"


def _words(job: JobRecord, band: Band, claim: JobRecord | None, claimant: AgentName | None) -> str:
    told = ""
    if claim is not None:
        verb = "started in its place" if claim.state.holds_resources else "waits for it"
        told = f"its job {claim.job_id} ({format_tres(claim.tres)}) {verb}"
    return describe_reclaim(job.qos, band, claimant, claim=told)


def reclaim_row(reclaim: Reclaim, *, at_s: float) -> Mapping[str, object]:
    """Return the row of the history's table ``reclaims``."""
    job = reclaim.job
    return {
        "at_s": at_s,
        "job_id": job.job_id,
        "restarts": reclaim.restarts,
        "agent": reclaim.agent,
        "user": job.user,
        "qos": job.qos,
        "band": reclaim.band.value,
        "ran_s": reclaim.ran_s,
        "nodes": job.nodes,
        "tres": format_tres(job.tres),
        "claimant": reclaim.claimant,
        "claimant_job": reclaim.claimant_job,
        "n_gpus": _n_gpus(job),
        "n_claimed_gpus": None if reclaim.claim is None else _n_gpus(reclaim.claim),
        "reason": reclaim.reason,
    }


def _n_gpus(job: JobRecord) -> int:
    return dict(job.tres).get(GPU, 0)
