"""Why Slurm took other jobs than predicted, from what was seen before and after: the first reason that holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from policies.records import JobRecord, JobState, Observation
from tests.reclaims.watch import placements, predict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policies.site_policy import SitePolicy

UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One reclaim.

    Attributes
    ----------
    before, after : Observation
        Just before the claims were released, and when they ran.
    claims : tuple of str
        Job ids, in the order of the prediction.
    predicted, real : frozenset of str
        Victims.
    """

    before: Observation
    after: Observation
    claims: tuple[str, ...]
    predicted: frozenset[str]
    real: frozenset[str]


def explain(seen: Seen, site: SitePolicy) -> str:
    """Return the reason, or ``UNEXPLAINED``."""
    return next(_reasons(seen, site), UNEXPLAINED)


def _reasons(seen: Seen, site: SitePolicy) -> Iterator[str]:
    if len(seen.claims) > 1:
        if predict(seen.before, site, seen.claims[::-1]) == seen.real:
            yield "the claims were served in the other order"
        if _parts(seen, site):
            yield "backfill kept the first claim's nodes for it, and looked for the other's elsewhere"
    if seen.before.qos != seen.after.qos:
        steered = replace(seen.before, qos=seen.after.qos)
        if predict(steered, site, seen.claims) == seen.real:
            yield "ranks or Preempt lists were changed between look and claim; with these it is as predicted"
    yield from _changes(seen)
    if seen.real and _orders(seen, seen.real) == _orders(seen, seen.predicted):
        yield "the jobs taken equal the predicted ones in QOS priority and number of nodes"


def _parts(seen: Seen, site: SitePolicy) -> bool:
    orders = (seen.claims, seen.claims[::-1])
    return any(predict(seen.before, site, order, keeps_nodes=True) == seen.real for order in orders)


def _changes(seen: Seen) -> Iterator[str]:
    """Yield what else started or ended between the look and the claims' start."""
    before, after = placements(seen.before), placements(seen.after)
    ended = sorted(set(before) - set(after) - seen.real)
    started = sorted(set(after) - set(before) - set(seen.claims))
    moved = sorted(seen.real & set(after))
    if ended:
        yield f"{_list(ended)} ended in between by itself"
    if started:
        yield f"{_list(started)} started in between: the queue had changed, or took what was freed for the claim"
    if moved:
        yield f"{_list(moved)} had started again when the claims ran: taken more than once, or for another job"


def _list(job_ids: list[str]) -> str:
    return "jobs " + ", ".join(job_ids) if len(job_ids) > 1 else f"job {job_ids[0]}"


def _orders(seen: Seen, victims: frozenset[str]) -> list[tuple[int, int]]:
    priority = {record.name: record.priority for record in seen.before.qos}
    jobs: dict[str, JobRecord] = {str(job.job_id): job for job in seen.before.jobs if job.state is JobState.RUNNING}
    found = [jobs[job_id] for job_id in victims if job_id in jobs]
    return sorted((priority.get(job.qos, 0), job.n_nodes) for job in found)
