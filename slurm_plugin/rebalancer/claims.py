"""Which claim each victim was taken for, when several claims run at once.

A claim that started takes the victims of its own nodes, a waiting one any. The highest priority goes first; a claim
whose request is covered by the victims that it has gives way to the next. Victims with the fewest claims on their nodes
choose first, so that a claim elsewhere does not lose the only victim it can have had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.nodelist import expand_nodes
from policies.quota.amounts import GPU
from policies.quota.names import Band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.records import JobId, JobRecord, Observation
    from slurm_plugin.rebalancer.own_qos import OwnQos


def assign_claims(
    victims: Sequence[JobRecord], before: Observation, seen: Observation, own: OwnQos
) -> Mapping[JobId, JobRecord]:
    """Return the claim of each victim by the victim's job id; a victim for whom nobody is seen is left out."""
    ran = {job.job_id for job in before.jobs if job.state.holds_resources}
    ours = sorted((job for job in seen.jobs if job.qos in own.bands), key=lambda job: -job.priority)
    started = [job for job in ours if job.state.holds_resources and job.job_id not in ran]
    waiting = [job for job in ours if job.state.is_pending and job.priority > 0]
    on_nodes = {victim.job_id: _started_on_its_nodes(victim, started, own) for victim in victims}
    taken: dict[JobId, int] = {}
    found: dict[JobId, JobRecord] = {}
    for victim in sorted(victims, key=lambda one: len(on_nodes[one.job_id])):
        here = on_nodes[victim.job_id]
        candidates = [*here, *(job for job in waiting if _may_take(job, victim, own))]
        claim = next((job for job in candidates if not _is_covered(job, taken)), candidates[0] if candidates else None)
        if claim is not None:
            found[victim.job_id] = claim
            taken[claim.job_id] = taken.get(claim.job_id, 0) + dict(victim.tres).get(_unit(claim), 0)
    return found


def _started_on_its_nodes(victim: JobRecord, started: Sequence[JobRecord], own: OwnQos) -> list[JobRecord]:
    nodes = frozenset(expand_nodes(victim.nodes))
    return [job for job in started if _may_take(job, victim, own) and not nodes.isdisjoint(expand_nodes(job.nodes))]


def _may_take(job: JobRecord, victim: JobRecord, own: OwnQos) -> bool:
    """Whether the job's band may take from the victim's."""
    band = own.bands[job.qos][1]
    if job.job_id == victim.job_id or band is Band.OPPORTUNISTIC:
        return False
    return band is Band.GUARANTEED or own.bands[victim.qos][1] is Band.OPPORTUNISTIC


def _unit(claim: JobRecord) -> str:
    """The TRES in which a claim is counted: GPUs where it asks for any."""
    return GPU if dict(claim.tres).get(GPU) else "cpu"


def _is_covered(claim: JobRecord, taken: Mapping[JobId, int]) -> bool:
    asked = dict(claim.tres).get(_unit(claim), 0)
    if claim.state.is_pending:
        asked *= max(1, claim.n_tasks)
    return 0 < asked <= taken.get(claim.job_id, 0)
