"""Many updates of jobs through one ``scontrol``, and which message belongs to which job.

``scontrol`` without arguments reads commands from stdin and goes on after an error. With readline it echoes
each command, flushed before the RPC, so with stdout and stderr in one stream a message stands below its
command. Its messages also name the job: ``Invalid job id specified for job 12``, and for arrays one line
per outcome, ``12_0-1: No error``. A message that neither way can place is reported as such, never guessed.

Which id reaches which record (seen on 22.05.8): ``12`` of an array changes its meta record and every split
task, the running ones too; ``12_[4-9]`` with all tasks that still wait changes the meta record alone and
splits nothing, even if some of them have started meanwhile; with fewer tasks it would split the record for
good. A step (``1-9:2``) or a limit (``%2``) inside the brackets is refused. ``13+1`` changes one het
component, ``13`` all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.quota.names import is_borrowed_qos
from slurm_plugin.client.command import DENIED_TEXTS
from slurm_plugin.client.protocol import UpdateOutcome, UpdateStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import JobId

_PROMPT: Final = "scontrol: "
_ECHO: Final = re.compile(r"update jobid=(\S+) (?:SiteFactor=-?\d+|QOS=\S+(?: Requeue=1)?|StartTime=now)")
_NAMED: Final = re.compile(r"(.*) for job (\S+)")
_ARRAY_LINE: Final = re.compile(r"(\d+)_(\S+): (.*)")
_NO_ERROR: Final = "No error"
_GONE_TEXTS: Final = (
    "Invalid job id specified",
    "Job has already finished",
    "already completing or completed",
    "Job is no longer pending execution",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Slurm's messages by the id that was written in the command; ``unplaced`` could not be placed."""

    by_id: dict[str, list[str]] = field(default_factory=dict)
    unplaced: list[str] = field(default_factory=list)


def update_command(update_id: str, assignment: str) -> str:
    """Words of one update after ``scontrol``; the assignment is ``SiteFactor=7``, ``StartTime=now`` or a move."""
    return f"update jobid={update_id} {assignment}"


def move_assignment(qos: str) -> str:
    """Assignments that move a job into a QOS; onto borrowed quota it goes as a job that survives being taken back.

    Its user may have set ``Requeue=0`` since the job was seen; in one update there is no moment between the two.
    """
    return f"QOS={qos} Requeue=1" if is_borrowed_qos(qos) else f"QOS={qos}"


def place_replies(output: str, update_ids: Sequence[str]) -> Replies:
    """Messages of one ``scontrol`` process by the update they answer.

    Parameters
    ----------
    output : str
        Its stdout and stderr in one stream.
    update_ids : sequence of str
        Ids in the commands.
    """
    replies = Replies(by_id={update_id: [] for update_id in update_ids})
    by_base: dict[str, list[str]] = {}
    for update_id in update_ids:
        by_base.setdefault(update_id.partition("_")[0], []).append(update_id)
    current = ""
    for raw in output.splitlines():
        line = raw
        while line.startswith(_PROMPT):
            line = line.removeprefix(_PROMPT)
        if echo := _ECHO.fullmatch(line):
            current = echo[1]
        elif line.strip():
            owner, text = _owner(line, current, by_base)
            replies.by_id.get(owner, replies.unplaced).append(text)
    return replies


def _owner(line: str, current: str, by_base: dict[str, list[str]]) -> tuple[str, str]:
    if (named := _NAMED.fullmatch(line)) and named[2] in by_base.get(named[2].partition("_")[0], ()):
        return named[2], named[1]
    if array := _ARRAY_LINE.fullmatch(line):
        candidates = by_base.get(array[1], [])
        exact = f"{array[1]}_{array[2]}"
        if exact in candidates:
            return exact, array[3]
        if current in candidates:
            return current, array[3]
        if len(candidates) == 1:
            return candidates[0], array[3]
    return current, line


def outcome(job_id: JobId, replies: Sequence[str]) -> UpdateOutcome:
    """Tell what the messages to one update mean.

    Tasks that are gone do not matter as long as others were changed; a refusal of any part is a refusal.
    """
    errors = [text for text in replies if text != _NO_ERROR]
    refusals = [text for text in errors if not any(gone in text for gone in _GONE_TEXTS)]
    if refusals:
        return UpdateOutcome(job_id=job_id, status=UpdateStatus.REJECTED, text="; ".join(refusals))
    if errors and len(errors) == len(replies):
        return UpdateOutcome(job_id=job_id, status=UpdateStatus.GONE, text=errors[0])
    return UpdateOutcome(job_id=job_id, status=UpdateStatus.OK)


def are_all_denied(outcomes: Sequence[UpdateOutcome]) -> bool:
    """Whether Slurm refused every live job because of who asks; jobs that are gone say nothing."""
    live = [found for found in outcomes if found.status is not UpdateStatus.GONE]
    return bool(live) and all(
        found.status is UpdateStatus.REJECTED and any(word in found.text for word in DENIED_TEXTS) for found in live
    )
