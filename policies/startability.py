"""Whether Slurm could start a pending job: its reasons, each with what it means for the share tags.

Only startable jobs move their agent's later tags: a job that cannot start must not push its agent's other jobs
back (DESIGN.md section 3; facts/bands.md 14). Reasons are Slurm's, from ``job_reason_codes.html`` and what
``squeue`` printed on 22.05, 24.11, 25.11 and 26.05. A reason that is not in the tables counts as startable and is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Startability(StrEnum):
    """Why a pending job can or cannot start now."""

    STARTABLE = "startable"
    HELD = "held"
    DEPENDENCY = "dependency"
    DELAYED = "delayed"
    OVER_LIMIT = "over limit"
    PARTITION_DOWN = "partition down"
    NODES_DOWN = "nodes down"
    RESERVATION = "reservation"
    LICENCES = "licences"
    STAGING = "staging"
    BAD_CONSTRAINTS = "bad constraints"
    INVALID = "invalid account or QOS"
    UNPLACEABLE = "can never run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonReading:
    """One of Slurm's reasons, understood: its class and plain words; ``part`` is the word of Slurm that counts."""

    startability: Startability
    words: str
    part: str
    is_known: bool = True


_S = Startability

_WORDS: Final[dict[str, tuple[Startability, str]]] = {
    "": (_S.STARTABLE, "waits for Slurm's next look at the queue"),
    "None": (_S.STARTABLE, "waits for Slurm's next look at the queue"),
    "Priority": (_S.STARTABLE, "jobs before it in Slurm's order wait too"),
    "Resources": (_S.STARTABLE, "is first in line and waits for free resources"),
    "Cleaning": (_S.STARTABLE, "an earlier run of the job is still being cleaned up"),
    "Prolog": (_S.STARTABLE, "its prolog runs"),
    "SchedDefer": (_S.STARTABLE, "Slurm starts it in a later scheduling pass"),
    "FedJobLock": (_S.STARTABLE, "waits for the federation's lock on the job"),
    "NodeDown": (_S.STARTABLE, "a node of its last run failed; it waits to start again"),
    "NonZeroExitCode": (_S.STARTABLE, "its last run failed; it waits to start again"),
    "ReqNodeNotAvail": (_S.STARTABLE, "some nodes that it could use are down, drained or busy"),
    "PartitionConfig": (_S.STARTABLE, "waits for its partition's limits to allow it"),
    "JobHeldUser": (_S.HELD, "is held by its user (scontrol release lets it go)"),
    "JobHeldAdmin": (_S.HELD, "is held by an administrator"),
    "JobHoldMaxRequeue": (_S.HELD, "was requeued too often and is held"),
    "MaxRequeue": (_S.HELD, "was requeued too often and is held"),
    "job_requeued_in_held_state": (_S.HELD, "was requeued and is held (scontrol release lets it go)"),
    "launch_failed_requeued_held": (_S.HELD, "could not be launched, was requeued and is held"),
    "JobLaunchFailure": (_S.HELD, "could not be launched"),
    "ReservationDeleted": (_S.HELD, "its reservation was deleted; it is held"),
    "Dependency": (_S.DEPENDENCY, "waits for another job (its dependency)"),
    "DependencyNeverSatisfied": (_S.DEPENDENCY, "waits for a dependency that can no longer be satisfied"),
    "BeginTime": (_S.DELAYED, "may not start before its begin time"),
    "DeadLine": (_S.DELAYED, "cannot end before its Slurm deadline"),
    "JobArrayTaskLimit": (_S.OVER_LIMIT, "its array already runs as many tasks as it may"),
    "AccountingPolicy": (_S.OVER_LIMIT, "an accounting limit is reached"),
    "AssociationJobLimit": (_S.OVER_LIMIT, "its association's job limit is reached"),
    "AssociationResourceLimit": (_S.OVER_LIMIT, "its association's resource limit is reached"),
    "AssociationTimeLimit": (_S.OVER_LIMIT, "its association's time limit is reached"),
    "PartitionNodeLimit": (_S.OVER_LIMIT, "asks for more nodes than its partition allows"),
    "PartitionTimeLimit": (_S.OVER_LIMIT, "asks for more time than its partition allows"),
    "PartitionDown": (_S.PARTITION_DOWN, "its partition is down"),
    "PartitionInactive": (_S.PARTITION_DOWN, "its partition is inactive"),
    "FrontEndDown": (_S.PARTITION_DOWN, "no front end node is up"),
    "Reservation": (_S.RESERVATION, "waits for its reservation"),
    "Licenses": (_S.LICENCES, "waits for a licence"),
    "BadConstraints": (_S.BAD_CONSTRAINTS, "its constraints cannot be satisfied"),
    "InvalidAccount": (_S.INVALID, "its account is invalid"),
    "InvalidQOS": (_S.INVALID, "its QOS is invalid"),
    "QOSNotAllowed": (_S.INVALID, "its QOS may not be used here"),
    "AccountNotAllowed": (_S.INVALID, "its account may not use this partition"),
}
"""Reason, blanks as underscores -> class and words."""

_PREFIXES: Final[tuple[tuple[str, Startability, str], ...]] = (
    ("QOS", _S.OVER_LIMIT, "a limit of its QOS is reached"),
    ("Assoc", _S.OVER_LIMIT, "a limit of its account or association is reached"),
    ("Grp", _S.OVER_LIMIT, "a group limit is reached"),
    ("Max", _S.OVER_LIMIT, "a limit per user, account or job is reached"),
    ("Min", _S.OVER_LIMIT, "asks for less than the smallest allowed request"),
    ("BurstBuffer", _S.STAGING, "waits for its burst buffer"),
    ("Power", _S.NODES_DOWN, "waits for power"),
)

_PHRASES: Final[tuple[tuple[str, Startability, str, str], ...]] = (
    ("ReqNodeNotAvail,_Reserved_for_maintenance", _S.RESERVATION, "its nodes are reserved for maintenance", ""),
    ("ReqNodeNotAvail", *_WORDS["ReqNodeNotAvail"], "ReqNodeNotAvail"),
    ("Nodes_required_for_job_are_DOWN", *_WORDS["ReqNodeNotAvail"], "ReqNodeNotAvail"),
)
"""Reasons that contain commas themselves; compared with the start of the whole text."""


def read_reason(reason: str) -> ReasonReading:
    """What one of Slurm's reasons means.

    Parameters
    ----------
    reason : str
        As ``squeue`` prints it; several reasons may be joined by commas (24.11 and later).

    Returns
    -------
    ReasonReading
        Of several reasons the first one that keeps the job from starting; ``is_known`` is false if any part is
        unknown.

    Examples
    --------
    >>> read_reason("QOSGrpGRES").startability
    <Startability.OVER_LIMIT: 'over limit'>
    >>> read_reason("JobArrayTaskLimit,BeginTime").words
    'its array already runs as many tasks as it may'
    """
    text = reason.strip().strip("()").replace(" ", "_")
    for phrase, startability, words, part in _PHRASES:
        if text.startswith(phrase):
            return ReasonReading(startability=startability, words=words, part=part)
    readings = [_read_one(part.strip("_")) for part in text.split(",")]
    is_known = all(reading.is_known for reading in readings)
    blocking = [reading for reading in readings if reading.startability is not Startability.STARTABLE]
    chosen = (blocking or readings)[0]
    return replace(chosen, is_known=is_known)


def _read_one(part: str) -> ReasonReading:
    if part in _WORDS:
        startability, words = _WORDS[part]
        return ReasonReading(startability=startability, words=words, part=part)
    for prefix, startability, words in _PREFIXES:
        if part.startswith(prefix):
            return ReasonReading(startability=startability, words=f"{words} ({part})", part=part)
    words = f"Slurm's reason {part} is not in FairGPU's table; the job counts as startable"
    return ReasonReading(startability=Startability.STARTABLE, words=words, part=part, is_known=False)
