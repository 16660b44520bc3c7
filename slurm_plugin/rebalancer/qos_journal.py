"""The rules of the undo journal of QOSes: where a pending job waited before us, and which jobs go back there.

Whoever waits in a borrow or opportunistic QOS of ours was put there by us, so that a lost journal costs only the name
of the site's own QOS: such a job goes back to its agent's guaranteed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.records import JobRecord
from slurm_plugin.rebalancer.journal import find_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policies.records import JobId
    from slurm_plugin.rebalancer.own_qos import OwnQos
    from slurm_plugin.rebalancer.store import TouchedQos


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRestore:
    """One pending job to move back to ``qos``."""

    job: JobRecord
    qos: str


def former_qos(job: JobRecord, journal: Mapping[JobId, TouchedQos], own: OwnQos) -> str:
    """Return the QOS to give back to ``job``, seen just before we move it."""
    line = find_entry(job, journal)
    if line is not None and (job.qos in {line.former, line.last_written} or own.is_borrowed(job.qos)):
        return line.former
    return own.guaranteed_of(job.qos) if own.is_borrowed(job.qos) else job.qos


def compute_qos_restores(
    jobs: Iterable[JobRecord], journal: Mapping[JobId, TouchedQos], own: OwnQos
) -> tuple[QosRestore, ...]:
    """Return the moves after which no pending job waits where we put it; a running job's QOS cannot change."""
    restores = []
    for job in jobs:
        line = find_entry(job, journal)
        is_ours = own.is_borrowed(job.qos) or (line is not None and job.qos == line.last_written)
        if job.state.is_pending and is_ours:
            qos = former_qos(job, journal, own)
            if qos != job.qos:
                restores.append(QosRestore(job=job, qos=qos))
    return tuple(restores)
