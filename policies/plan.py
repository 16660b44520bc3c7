"""What the core decides: an immutable plan whose every decision names its reason and its numbers.

Handle decisions with ``match`` and ``assert_never``; the shell turns each into Slurm calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from policies.records import AgentName, JobId, Tres


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSiteFactor:
    """Write a pending job's site factor.

    Attributes
    ----------
    old : int or None
        The value that Slurm shows now; ``None`` if it shows none, 0 if nobody set one (the hook missed the job).
    tag : Fraction or None
        The share tag behind the number: the agent's weighted dominant share just before this job would start.
        ``None`` (sorts last) for an agent of weight 0.
    is_adoption : bool
        Whether the job carried no factor of ours yet.
    """

    job_id: JobId
    agent: AgentName
    old: int | None
    new: int
    tag: Fraction | None
    is_adoption: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQos:
    """Move a pending job to another band (its QOS), or back."""

    job_id: JobId
    agent: AgentName
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNow:
    """Lift a requeued victim's delay (``StartTime=now``): its agent is below its nominal quota."""

    job_id: JobId
    agent: AgentName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBorrowRank:
    """Write the priority of a borrow QOS: whose loans Slurm recalls first (lowest first)."""

    qos: str
    agent: AgentName
    old: int
    new: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPreemptList:
    """Write which QOSes the jobs of a guaranteed QOS may preempt; both lists are sorted."""

    qos: str
    agent: AgentName
    old: tuple[str, ...]
    new: tuple[str, ...]
    reason: str


Decision = SetSiteFactor | SetQos | StartNow | SetBorrowRank | SetPreemptList
"""Every kind of decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandStanding:
    """One agent's bands in this cycle. Amounts are what Slurm counts against the QOS limits, sorted by TRES name.

    Attributes
    ----------
    nominal, borrow_cap : Tres
        GrpTRES of the guaranteed and the borrow QOS as slurmctld shows them; a TRES that is absent is unlimited.
    guaranteed, borrow, opportunistic : Tres
        In use by band.
    outside : Tres
        In use by the agent's jobs that run in no band (started before ``apply``).
    claim : Tres
        What its jobs ask for that have room in the guaranteed band but find no free resources.
    over : Tres
        By how much its use exceeds its nominal quota, per limited TRES; empty for an agent at or below nominal.
    lent : Tres
        Its part of what others use above their nominal quota: split over all idle quotas in proportion. Over all agents
        the sum is the use above nominal, or the idle quota where that is less.
    n_moved_out : int
        Pending jobs that wait in the borrow or opportunistic band now, before this cycle's moves.
    has_borrow : bool
        Whether slurmctld shows its borrow QOS; without it ``borrow_cap`` means nothing.
    """

    nominal: Tres
    borrow_cap: Tres
    guaranteed: Tres
    borrow: Tres
    opportunistic: Tres
    outside: Tres
    claim: Tres
    over: Tres
    lent: Tres
    n_moved_out: int
    has_borrow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStanding:
    """Where one agent stands in this cycle: what ``fairgpu status`` shows and what the submit hook starts from.

    Attributes
    ----------
    weight, base_weight, sla_factor : Fraction
        ``weight = base_weight * sla_factor``.
    allocation : tuple of int
        TRES amounts that its jobs hold, in the axis order of ``Plan.tres``.
    queued : tuple of int
        The same for its startable pending jobs; ``allocation + queued`` is where the next submitted job starts.
    dominant_share : Fraction
        ``max_r allocation_r / capacity_r``, unweighted.
    weighted_share : Fraction or None
        ``dominant_share / weight``; ``None`` (sorts last) for weight 0 with something running.
    bands : BandStanding or None
        ``None`` where the agent has no bands.
    dominant_tres : str
        The axis of the maximum, empty when nothing runs.
    n_running, n_pending, n_startable : int
        Jobs, array tasks counted one by one. Startable are also those whose reason is a limit that has room now.
    """

    agent: AgentName
    base_weight: Fraction
    sla_factor: Fraction
    weight: Fraction
    allocation: tuple[int, ...]
    queued: tuple[int, ...]
    dominant_share: Fraction
    weighted_share: Fraction | None
    dominant_tres: str
    n_running: int
    n_pending: int
    n_startable: int
    oldest_wait_s: float
    bands: BandStanding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BandMemory:
    """What the bands remember of one job that borrows or has borrowed.

    Attributes
    ----------
    restarts : int
        Slurm's count when the job was last seen; a higher one while it waits in a borrowed band is a reclaim.
    reclaimed_s : tuple of float
        When it was taken back within the window, seconds since the epoch, oldest first.
    is_barred : bool
        Taken back too often: it borrows no more until it has run on the guaranteed band.
    """

    job_id: JobId
    restarts: int
    reclaimed_s: tuple[float, ...] = ()
    is_barred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaMemory:
    """What the SLA weight remembers of one agent between cycles."""

    agent: AgentName
    smoothed: float
    factor: Fraction
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something an operator should see: a refused tag, an unplaceable job, a problem of the reader."""

    kind: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One cycle's outcome.

    Attributes
    ----------
    decisions : tuple of Decision
        Most urgent first (head of the queue): a rate-limited shell enacts a prefix.
    tres : tuple of str
        The TRES axis order of every amount below.
    capacity : tuple of int
        What the agents share, per axis.
    sla_memory : tuple of SlaMemory
        Handed back to the next ``decide``.
    band_memory : tuple of BandMemory
        By job id; handed back to the next ``decide``.
    """

    at_s: float
    policy: str
    decisions: tuple[Decision, ...]
    standings: tuple[AgentStanding, ...]
    tres: tuple[str, ...]
    capacity: tuple[int, ...]
    sla_memory: tuple[SlaMemory, ...]
    findings: tuple[Finding, ...] = ()
    band_memory: tuple[BandMemory, ...] = ()
