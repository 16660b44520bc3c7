"""Why one job waits where it waits: every number of its share tag, as plain values to print (DESIGN.md, promise 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from policies.axes import Axes
from policies.census import compute_state
from policies.eligibility import describe_unplaceable
from policies.errors import UnknownJobError
from policies.factor_plan import PolicyParams, Ranking, make_decision, needs_write, rank_bands, rank_jobs
from policies.fairness.share import dominant_axis
from policies.fairness.site_factor import quantise_tag
from policies.fairness.sla_weight import IndicatorReading
from policies.ownership import Resolver
from policies.plan import SetSiteFactor
from policies.quota.band_explanation import BandExplanation, explain_band
from policies.quota.band_state import is_managed_qos
from policies.reason_advice import ReasonAdvice, advise
from policies.records import AgentName, JobId, JobRecord
from policies.registry import get_policy
from policies.startability import Startability, read_reason
from policies.state import STARTABILITIES, ClusterState
from policies.submission.decision import SubmissionDecision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.plan import BandMemory, SlaMemory
    from policies.records import Observation
    from policies.site_policy import SitePolicy

MAX_JOBS_BEFORE: Final = 5
"""This many of the jobs just before it are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNeighbour:
    """A job just before the explained one in the global order."""

    job_id: JobId
    agent: AgentName
    tag: Fraction | None
    site_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisArithmetic:
    """One axis of the share: ``share = (held + queued_before) / capacity``.

    Attributes
    ----------
    request : int
        What one task of this job asks for.
    queued_before : int
        What the agent's earlier startable pending jobs ask for.
    share : Fraction or None
        ``None`` where the capacity is 0.
    """

    tres: str
    capacity: int
    request: int
    held: int
    queued_before: int
    share: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightArithmetic:
    """``weight = base_weight * sla_factor`` and the indicators behind the factor."""

    base_weight: Fraction
    sla_factor: Fraction
    weight: Fraction
    readings: tuple[IndicatorReading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Where a pending job stands.

    Attributes
    ----------
    axes : tuple of AxisArithmetic
        In the snapshot's axis order.
    dominant_tres : str
        The axis with the largest share, empty if all are 0.
    tag, quantised_tag : Fraction or None
        ``dominant share / weight``, exact and rounded down to 1/10000; ``None`` (sorts last) for weight 0.
    site_factor : int
        What the policy wants; ``shown_factor`` is what Slurm shows now, ``None`` if nothing.
    position : int
        1 for the first; startable jobs before it plus 1.
    n_startable : int
        Startable managed jobs in all.
    before : tuple of QueueNeighbour
        Up to 5 startable jobs just before it, nearest last.
    is_near : bool
        Whether it lies within one cluster capacity of its agent's queue, where factors are kept exact.
    change : SetSiteFactor or None
        What this cycle writes, if anything.
    """

    axes: tuple[AxisArithmetic, ...]
    dominant_tres: str
    dominant_share: Fraction
    tag: Fraction | None
    quantised_tag: Fraction | None
    site_factor: int
    shown_factor: int | None
    position: int
    n_startable: int
    before: tuple[QueueNeighbour, ...]
    is_near: bool
    change: SetSiteFactor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """Everything about one job.

    Attributes
    ----------
    submission : SubmissionDecision
        Agent, what named it, tags, verdict and message.
    weight : WeightArithmetic or None
        ``None`` if the job belongs to no agent.
    startability : Startability or None
        ``None`` if the job is not pending.
    waits_because : str
        Slurm's reason in plain words, or that the job can never run.
    next_step : str
        What its user can do about the reason, empty for nothing.
    place : QueuePlace or None
        ``None`` for a job that is not pending or belongs to no agent.
    bands : BandExplanation or None
        ``None`` where the agent has no bands.
    """

    job: JobRecord
    policy: str
    submission: SubmissionDecision
    weight: WeightArithmetic | None
    startability: Startability | None
    waits_because: str
    place: QueuePlace | None
    bands: BandExplanation | None = None
    next_step: str = ""


def explain_job(  # noqa: PLR0913 - the five inputs of decide, and the job
    observation: Observation,
    site_policy: SitePolicy,
    sla_memory: Sequence[SlaMemory],
    job_id: str,
    *,
    now: float,
    band_memory: Sequence[BandMemory] = (),
) -> JobExplanation:
    """Why the job stands where it stands, from the same functions that decide.

    Parameters
    ----------
    job_id : str
        An id as users write it; a task (``12_3``) or the tasks (``12_[0-9]``) of an unsplit array find it, the id of a
        het job finds its first component.

    Raises
    ------
    UnknownJobError
        The observation has no such job.
    """
    job = find_job(observation, job_id)
    state = compute_state(observation, site_policy)
    submission = Resolver.from_observation(observation, site_policy).decide_one(job)
    params = PolicyParams(site=site_policy, sla_memory=tuple(sla_memory), band_memory=tuple(band_memory))
    ranking = rank_jobs(state, params, now=now)
    if not is_managed_qos(site_policy, job.qos):
        submission = replace(submission, agent=None, reason=f"its QOS {job.qos} is not managed here: foreign use")
    is_ours = submission.agent is not None
    bands = _bands(state, ranking, params, job, submission.agent)
    startability, wait = _explain_wait(state, job, bands)
    return JobExplanation(
        job=job,
        policy=site_policy.policy,
        submission=submission,
        weight=_weight(ranking, submission.agent) if is_ours else None,
        startability=startability,
        waits_because=wait.words,
        place=_place(state, ranking, job, params) if is_ours and job.state.is_pending else None,
        bands=bands,
        next_step=wait.step,
    )


def find_job(observation: Observation, job_id: str) -> JobRecord:
    """The record that an id names.

    Raises
    ------
    UnknownJobError
        There is none.
    """
    by_id = {str(job.job_id): job for job in observation.jobs}
    for candidate in (job_id, f"{job_id}+0"):
        if candidate in by_id:
            return by_id[candidate]
    array, _, task = job_id.partition("_")
    is_task = task.isdecimal() or (task.startswith("[") and task.endswith("]"))
    if array in by_id and by_id[array].array_job_id and is_task:
        return by_id[array]
    raise UnknownJobError(f"job {job_id} is not in this observation; squeue shows the ids that are")


def _explain_wait(
    state: ClusterState, job: JobRecord, bands: BandExplanation | None
) -> tuple[Startability | None, ReasonAdvice]:
    if not job.state.is_pending:
        return None, ReasonAdvice(words=f"is not waiting: {job.state.value}")
    reading = read_reason(job.reason)
    told = advise(job, None) if bands is None else advise(job, bands.band, bands.room)
    if job.job_id not in state.pending.job_ids:
        return reading.startability, told
    startability = STARTABILITIES[int(state.pending.startability[state.pending.job_ids.index(job.job_id)])]
    if startability is reading.startability:
        return startability, told
    own_words = {
        Startability.UNPLACEABLE: ReasonAdvice(
            words=describe_unplaceable(job), step="ask for less per node, or for more nodes"
        ),
        Startability.NODES_DOWN: ReasonAdvice(
            words="only nodes that are down or drained could hold it", step="'sinfo -R' says why they are down"
        ),
        Startability.DELAYED: ReasonAdvice(words="its begin time lies ahead"),
        Startability.HELD: ReasonAdvice(words="is held: its priority is 0", step="scontrol release JOBID"),
    }
    return startability, own_words.get(
        startability, ReasonAdvice(words="another component of its het job cannot start")
    )


def _weight(ranking: Ranking, agent: AgentName | None) -> WeightArithmetic:
    weight = next(weight for weight in ranking.weights if weight.agent == agent)
    return WeightArithmetic(
        base_weight=weight.base_weight,
        sla_factor=weight.sla_factor,
        weight=weight.weight,
        readings=weight.readings,
    )


def _bands(
    state: ClusterState, ranking: Ranking, params: PolicyParams, job: JobRecord, agent: AgentName | None
) -> BandExplanation | None:
    plan = rank_bands(state, ranking, params)
    if plan is None or agent is None:
        return None
    index = next(index for index, own in enumerate(state.agents) if own.name == agent)
    return explain_band(state, plan, job, index)


def _place(state: ClusterState, ranking: Ranking, job: JobRecord, params: PolicyParams) -> QueuePlace:
    queue = ranking.queue
    policy = get_policy(params.site.policy)
    targets = policy.compute_targets(queue, params.site)
    row = state.pending.job_ids.index(job.job_id)
    position = queue.rows.tolist().index(row)
    wanted = int(targets.factors[position])
    is_written = needs_write(state, queue, targets, scale=params.site.factor_scale)[position]
    tag_row = int(queue.tag_rows[position])
    start = [int(amount) for amount in queue.tags.start[tag_row]]
    axis = dominant_axis(start, state.capacity)
    tag = queue.tags.tag(tag_row)
    return QueuePlace(
        axes=_axes(state, job, row, start),
        dominant_tres="" if axis is None else state.tres[axis],
        dominant_share=Fraction(0) if axis is None else Fraction(start[axis], state.capacity[axis]),
        tag=tag,
        quantised_tag=None if tag is None else quantise_tag(tag),
        site_factor=wanted,
        shown_factor=job.site_factor,
        position=1 + int(queue.is_startable[:position].sum()),
        n_startable=int(queue.is_startable.sum()),
        before=_neighbours(state, ranking, targets.factors.tolist(), position),
        is_near=bool(queue.tags.is_near[tag_row]),
        change=make_decision(state, ranking, position, new=wanted, name=policy.name) if is_written else None,
    )


def _axes(state: ClusterState, job: JobRecord, row: int, start: Sequence[int]) -> tuple[AxisArithmetic, ...]:
    held = state.held[state.pending.agent[row]].tolist()
    request = Axes(names=state.tres).charged(job.tres, job.requested_types)
    return tuple(
        AxisArithmetic(
            tres=state.tres[axis],
            capacity=cap,
            request=request[axis],
            held=held[axis],
            queued_before=start[axis] - held[axis],
            share=Fraction(start[axis], cap) if cap else None,
        )
        for axis, cap in enumerate(state.capacity)
    )


def _neighbours(
    state: ClusterState, ranking: Ranking, factors: Sequence[int], position: int
) -> tuple[QueueNeighbour, ...]:
    queue = ranking.queue
    nearest = [place for place in range(position) if queue.is_startable[place]][-MAX_JOBS_BEFORE:]
    return tuple(
        QueueNeighbour(
            job_id=state.pending.job_ids[int(queue.rows[place])],
            agent=state.agents[int(state.pending.agent[int(queue.rows[place])])].name,
            tag=queue.tags.tag(int(queue.tag_rows[place])),
            site_factor=factors[place],
        )
        for place in nearest
    )
