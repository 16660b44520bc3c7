"""What one observation of a Slurm cluster says: rows of jobs and nodes, in Slurm's own words.

The shell (``slurm_plugin``) builds these from Slurm's answers; the core trusts them. Amounts are whole numbers in
Slurm's TRES units (``cpu`` in CPUs, ``mem`` in MiB, ``gres/*`` in pieces), times are seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

AccountName = NewType("AccountName", str)
AgentName = NewType("AgentName", str)
JobId = NewType("JobId", str)
NodeName = NewType("NodeName", str)
PartitionName = NewType("PartitionName", str)

Tres = tuple[tuple[str, int], ...]
"""TRES names with amounts, sorted by name, without zeros: ``(("cpu", 4), ("gres/gpu", 2), ("mem", 8192))``."""


class JobState(StrEnum):
    """Slurm's base job states, in Slurm's spelling (``squeue``'s ``%T``)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"
    SIGNALING = "SIGNALING"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    POWER_UP_NODE = "POWER_UP_NODE"
    UPDATE_DB = "UPDATE_DB"
    UNKNOWN = "UNKNOWN"
    """A state that this release of FairGPU does not know; counted and reported by the reader."""

    @property
    def is_pending(self) -> bool:
        """Whether a job in this state waits for resources."""
        return self in _PENDING

    @property
    def holds_resources(self) -> bool:
        """Whether a job in this state occupies its nodes' TRES (suspended jobs keep memory and GPUs)."""
        return self in _HOLDING


_PENDING = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_FED,
        JobState.REQUEUE_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.RESV_DEL_HOLD,
    }
)
_HOLDING = frozenset(
    {
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.COMPLETING,
        JobState.CONFIGURING,
        JobState.STAGE_OUT,
        JobState.STOPPED,
        JobState.SIGNALING,
        JobState.RESIZING,
        JobState.POWER_UP_NODE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One line of Slurm's job table: a job, a het component, a split array task or an unsplit array.

    Attributes
    ----------
    job_id : JobId
        The id that ``scontrol update jobid=`` takes for exactly this record: ``"12"`` for a plain job and for an
        unsplit array (its meta record), ``"12_3"`` for a split array task, ``"13+1"`` for a het component.
    n_tasks : int
        Array tasks that this record stands for (those that have not started), else 1.
    tres : Tres
        What one task asks for (pending) or holds (otherwise), typed GPUs beside ``gres/gpu`` as Slurm prints them.
    requested_types : tuple of str
        The typed TRES that the user named (``("gres/gpu:a100",)``); placement luck does not appear here.
    reason : str
        Slurm's reason for waiting, verbatim (``Resources``, ``JobHeldUser``, ...), empty if there is none.
    is_batch, is_requeueable : bool
        A batch job that Slurm may requeue; anything else dies when it is preempted.
    site_factor : int or None
        ``SITE`` as ``sprio`` shows it; ``None`` where it shows nothing (held or running).
    priority : int
        Slurm's priority; 0 means held.
    comment : str
        The comment, untrusted text of any length.
    """

    job_id: JobId
    array_job_id: str = ""
    array_task_id: str = ""
    het_job_id: str = ""
    n_tasks: int = 1
    name: str = ""
    user: str
    uid: int
    account: AccountName
    qos: str = ""
    partitions: tuple[PartitionName, ...]
    state: JobState
    reason: str = ""
    tres: Tres
    requested_types: tuple[str, ...] = ()
    n_nodes: int = 1
    is_batch: bool = True
    is_requeueable: bool = True
    nice: int = 0
    priority: int = 0
    site_factor: int | None = None
    submit_s: int
    eligible_s: int | None = None
    start_s: int | None = None
    time_limit_s: int | None = None
    restarts: int = 0
    nodes: str = ""
    reservation: str = ""
    wckey: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One compute node.

    Attributes
    ----------
    state : str
        Slurm's long state with its flags, lower case, joined by ``+`` (``"mixed+drain"``).
    is_schedulable : bool
        Whether Slurm may start a new job here now or when the present ones end (not down, drained, draining,
        failing, in maintenance or powered down for good).
    tres : Tres
        Configured amounts.
    out_since_s : int or None
        Since when a node that is down, drained or failed is so; ``None`` for any other, and where Slurm does not say.
    """

    name: NodeName
    partitions: tuple[PartitionName, ...]
    state: str
    is_schedulable: bool
    tres: Tres
    out_since_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRecord:
    """One QOS as slurmctld has it in memory (``scontrol show assoc_mgr flags=qos``).

    Attributes
    ----------
    grp_tres, max_tres_per_job : Tres
        Limits; a TRES that is not named is unlimited. An explicit 0 is kept.
    preempt : tuple of str
        Names of the QOSes that a job of this one may preempt, sorted.
    """

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""
    grace_s: int = 0
    grp_tres: Tres = ()
    max_tres_per_job: Tres = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorSample:
    """One SLA indicator of one agent: ``name`` is ``p99_latency_s`` or ``error_rate_frac``, ``at_s`` its age stamp."""

    agent: AgentName
    name: str
    value: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything one cycle read, sorted, so that equal clusters give equal observations.

    Attributes
    ----------
    at_s : float
        When it was read (seconds since the epoch, the controller's clock).
    qos : tuple of QosRecord
        By name; empty where bands are not used.
    groups_by_user : tuple of (str, tuple of str)
        Unix groups of the users in sight as far as known; a user who is absent has unknown groups.
    problems : tuple of (str, int)
        What the reader could not understand, with counts (``("job state FOO", 2)``): reported, never dropped.
    """

    at_s: float
    cluster: str
    slurm_version: str = ""
    jobs: tuple[JobRecord, ...]
    nodes: tuple[NodeRecord, ...]
    qos: tuple[QosRecord, ...] = ()
    indicators: tuple[IndicatorSample, ...] = ()
    groups_by_user: tuple[tuple[str, tuple[str, ...]], ...] = ()
    problems: tuple[tuple[str, int], ...] = ()
