"""What a pending job's reason means for its user, and what to do next.

:mod:`policies.startability` says what a reason does to the share tags; here the same reason is told to a person.
Slurm's names of limits are made of parts (``QOSGrpGRES``, ``AssocMaxCpuPerJobLimit``), so they are read part by part:
whose limit, of one job or of many together, of what. Source: Slurm's page ``job_reason_codes.html``, in our words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band
from policies.startability import Startability, read_reason

if TYPE_CHECKING:
    from policies.quota.band_explanation import BandRoom
    from policies.records import JobRecord
    from policies.startability import ReasonReading


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonAdvice:
    """One reason in plain words; ``step`` is what to do, empty where there is nothing to do but wait."""

    words: str
    step: str = ""


_LIMIT: Final = re.compile(
    r"(?P<whose>QOS|Assoc)?(?P<kind>Grp|Max)"
    r"(?P<what>SubmitJobs?|Jobs?|CPU|Cpu|GRES|Mem(?:ory)?|Node|Billing|BB|License|Energy|Wall(?:Duration)?|Unknown)"
    r"(?P<time>RunMinutes|Minutes)?(?P<per>PerJob|PerNode|PerUser|PerAccount|PJ|PU|PA)?(?:Limit)?"
)
_WHAT: Final = {
    "Submit": "waiting and running jobs",
    "Job": "running jobs",
    "CPU": "CPUs",
    "Cpu": "CPUs",
    "GRES": "GPUs (or another GRES)",
    "Mem": "memory",
    "Node": "nodes",
    "Billing": "billing units",
    "BB": "burst buffer",
    "License": "licences",
    "Energy": "energy",
    "Wall": "run time",
    "Unknown": "another TRES",
}
_PER: Final = {
    "PerUser": "per user",
    "PU": "per user",
    "PerAccount": "per account",
    "PA": "per account",
    "PerNode": "per node",
}
_ASK: Final = "your admin knows the limit ('sacctmgr show qos', 'sacctmgr show assoc')"

_STEPS: Final[dict[str, str]] = {
    "Priority": "see 'Place' for the jobs before it; a smaller or shorter job may be backfilled earlier",
    "Resources": "a smaller or shorter job may start earlier; 'squeue --start -j JOBID' shows Slurm's estimate",
    "ReqNodeNotAvail": "leave out --nodelist, --constraint or --reservation if the job can run elsewhere; 'sinfo -R' "
    "says what is wrong with nodes",
    "JobHeldUser": "scontrol release JOBID",
    "JobHeldAdmin": "ask your admin",
    "JobHoldMaxRequeue": "find out why it fails, then: scontrol release JOBID",
    "MaxRequeue": "find out why it fails, then: scontrol release JOBID",
    "job_requeued_in_held_state": "scontrol release JOBID",
    "launch_failed_requeued_held": "ask your admin, then: scontrol release JOBID",
    "ReservationDeleted": "scontrol update jobid=JOBID reservation= and scontrol release JOBID",
    "DependencyNeverSatisfied": "scancel it, or: scontrol update jobid=JOBID dependency=",
    "BeginTime": "scontrol update jobid=JOBID starttime=now, if it may start earlier",
    "DeadLine": "submit it with a later --deadline or a shorter --time",
    "JobArrayTaskLimit": "scontrol update jobid=JOBID arraytaskthrottle=N allows more tasks at once",
    "PartitionNodeLimit": "ask for fewer nodes or for another partition; 'sinfo' may also show them down",
    "PartitionTimeLimit": "scontrol update jobid=JOBID timelimit=..., not more than 'sinfo -o \"%P %l\"' allows",
    "PartitionDown": "wait until the admin opens it, or ask for another partition",
    "PartitionInactive": "wait until the admin opens it, or ask for another partition",
    "BadConstraints": "no node has what it asks for: compare --constraint and --gres with 'sinfo -o \"%N %f %G\"'",
    "InvalidAccount": "'sacctmgr show assoc user=$USER' lists your accounts",
    "InvalidQOS": "its QOS was deleted or is not yours any more: scontrol update jobid=JOBID qos=..., one that "
    "'sacctmgr show assoc user=$USER format=account,qos' lists",
    "QOSNotAllowed": "its partition or account does not admit the QOS: choose another one, or ask your admin",
    "AccountNotAllowed": "submit it with another --account or to another partition",
}
"""Chosen part of the reason -> next step, where one helps."""


def advise(job: JobRecord, band: Band | None, room: BandRoom | None = None) -> ReasonAdvice:
    """What the job's reason means and what to do about it.

    Parameters
    ----------
    job : JobRecord
        A pending job.
    band : Band or None
        Its agent's band that its QOS is.
    room : BandRoom or None
        What the bands have room for by our count, where it is known.

    Notes
    -----
    A reason that is in no table is told verbatim.

    Examples
    --------
    >>> read_reason("AssocMaxCpuPerJobLimit").part
    'AssocMaxCpuPerJobLimit'
    """
    reading = read_reason(job.reason)
    told = _by_count(band, reading, room) if band is not None and room is not None else None
    if band is not None and (told := told or _in_band(job, band, reading.part)):
        return told
    if reading.part == "BeginTime" and job.restarts > 0:
        return ReasonAdvice(words="was requeued, and Slurm holds a requeued job back for a while")
    if reading.startability is Startability.OVER_LIMIT and (match := _LIMIT.fullmatch(reading.part)):
        return _limit(match)
    if not reading.is_known:
        return ReasonAdvice(words=reading.words, step="ask your admin with Slurm's word for it")
    return ReasonAdvice(words=reading.words, step=_STEPS.get(reading.part, ""))


def _by_count(band: Band, reading: ReasonReading, room: BandRoom) -> ReasonAdvice | None:
    """What our count knows better than Slurm's word, which is of its last look at the job."""
    is_group_limit = reading.part.startswith("QOSGrp")
    is_turn = reading.startability is Startability.STARTABLE
    if band is Band.GUARANTEED and room.beyond and (is_group_limit or is_turn):
        return _beyond(room)
    if not is_group_limit or not room.has_room:
        return None
    whose = "its agent's quota was" if band is Band.GUARANTEED else "what its agent may borrow was"
    return ReasonAdvice(
        words=f"Slurm last said that {whose} in use ({reading.part}); by FairGPU's count there is room in it now",
        step="none: Slurm looks at it again in its next scheduling pass; ask your admin if that does not help",
    )


def _beyond(room: BandRoom) -> ReasonAdvice:
    words = f"asks for more than its agent's whole quota ({room.beyond})"
    if not room.takers:
        return ReasonAdvice(
            words=f"{words}, and no other band can take it",
            step="it never starts as it is: ask for less, or as a batch job that may be requeued and so may borrow",
        )
    names = " or the ".join(room.takers)
    return ReasonAdvice(
        words=f"{words}: only the {names} band can take it",
        step="it is moved there when what it asks for is idle and 'Band' names no bar to borrowing; a job within the "
        "quota is owed its place",
    )


def _in_band(job: JobRecord, band: Band, part: str) -> ReasonAdvice | None:
    if part.startswith("QOSGrp"):
        if band is Band.GUARANTEED:
            return ReasonAdvice(
                words=f"its agent's quota is in use ({part})",
                step="it starts when a job of the agent ends; 'Band' says whether it may borrow meanwhile",
            )
        return ReasonAdvice(
            words=f"what its agent may borrow is in use ({part})", step="it starts when a borrowing job of it ends"
        )
    if part.startswith("QOSMax") and band is Band.BORROW:
        return ReasonAdvice(
            words=f"is larger than one job may borrow ({part})",
            step="it waits for its agent's quota; a job on fewer nodes could borrow",
        )
    if part == "Priority" and band is Band.GUARANTEED:
        return ReasonAdvice(
            words="jobs before it in Slurm's order wait too, or all that could make room for it is not on loan",
            step=_STEPS[part],
        )
    if part == "BeginTime" and job.restarts > 0:
        return ReasonAdvice(
            words="was requeued, and Slurm holds a requeued job back for a while",
            step="none: FairGPU lifts the delay where its agent is below its quota",
        )
    return None


def _limit(match: re.Match[str]) -> ReasonAdvice:
    whose = {"QOS": "its QOS", "Assoc": "its account or association", None: "its QOS or account"}[match["whose"]]
    name = match["what"]
    what = next(words for start, words in _WHAT.items() if name.startswith(start))
    if match["time"]:
        what = f"{what} x minutes"
    if match["kind"] == "Grp":
        return ReasonAdvice(
            words=f"all jobs of {whose} together use the {what} that they may ({match[0]})",
            step=f"it starts when one of them ends or a budget is filled up; {_ASK}",
        )
    if match["per"] in {"PerUser", "PU", "PerAccount", "PA"} or name.startswith(("Job", "Submit")):
        scope = _PER.get(match["per"] or "", "per user or account")
        return ReasonAdvice(
            words=f"the {what} that {whose} allows {scope} are in use ({match[0]})",
            step=f"it starts when one of those jobs ends; {_ASK}",
        )
    scope = _PER.get(match["per"] or "", "per job")
    return ReasonAdvice(
        words=f"asks for more {what} than {whose} allows {scope} ({match[0]})",
        step=f"it never starts as it is: ask for less; {_ASK}",
    )
