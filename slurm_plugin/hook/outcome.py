"""What becomes of a submission, and the reply that says so, without what changes from job to job.

Everything here follows from the rules, the user's identity, account and partitions and what the tags claim, so
it is worked out once and remembered until the rules or the identities change. The site factor is not part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from policies.site_policy import Mode, TagSource
from policies.submission.band_request import NO_BAND, BandRequest
from policies.submission.decision import (
    AgentDirectory,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_with_tags,
)
from policies.submission.tags import Tags
from slurm_plugin.hook.wire import WireError, encode_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.site_policy import SitePolicy
    from slurm_plugin.hook.directory import UserDirectory

MAX_MESSAGE: Final = 1_000
MAX_REMEMBERED: Final = 2_048
MAX_REMEMBERED_TEXT: Final = 512
"""Characters of uid, account, partition and QOS; longer ones are decided anew, so that the memory stays small."""

_UNPRINTABLE: Final = re.compile(r"[^ -~]")
_UNCHANGED: Final = {"verdict": "unchanged"}
_COUNTER_OF: Final = {"accept": "accepted", "reject": "rejected", "unchanged": "unchanged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRules:
    """What the site file and the kill switch say at this moment."""

    mode: Mode
    tag_source: TagSource
    directory: AgentDirectory
    is_off: bool = False

    @classmethod
    def from_policy(cls, policy: SitePolicy, *, is_off: bool) -> HookRules:
        """Rules of a site policy."""
        directory = AgentDirectory.from_policy(policy)
        return cls(mode=policy.mode, tag_source=policy.tag_source, directory=directory, is_off=is_off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A decision and its reply.

    Attributes
    ----------
    decision : SubmissionDecision
        Its tags hold the claim only.
    reply : bytes
        The reply's fields on the wire, without a site factor.
    is_enforced : bool
        The job passes and the reply may carry a site factor; otherwise a factor is for the history only.
    counter : str
        The counter of :class:`HookStats` that this reply belongs to.
    """

    uid: int
    request: SubmissionRequest
    decision: SubmissionDecision
    reply: bytes
    is_enforced: bool
    counter: str


class OutcomeMemory:
    """Outcomes under one set of rules and identities.

    Parameters
    ----------
    rules : HookRules
    users : UserDirectory
    """

    def __init__(self, rules: HookRules, users: UserDirectory) -> None:
        self._rules = rules
        self._users = users
        self._version = users.version  # before anything is looked up: what is remembered is never older
        self._work_out: Callable[..., Outcome] = partial(_work_out, rules, users)
        self._recall = lru_cache(maxsize=MAX_REMEMBERED)(self._work_out)

    def is_valid_for(self, rules: HookRules) -> bool:
        """Whether rules and identities are still those that the outcomes came from."""
        return rules is self._rules and self._users.version is self._version

    def outcome(self, uid: str, account: str, partition: str, tags: Tags, *, band: BandRequest = NO_BAND) -> Outcome:
        """Outcome of a submission, by the request's fields and the tags in its text.

        Raises
        ------
        WireError
            ``uid`` is no uid.
        """
        is_short = len(uid) + len(account) + len(partition) + len(band.qos) <= MAX_REMEMBERED_TEXT
        find = self._recall if is_short else self._work_out
        return find(uid, account, partition, band, *tags.claim)


def _work_out(rules: HookRules, users: UserDirectory, *key: Any) -> Outcome:  # noqa: ANN401 - outcome() is typed
    uid_text, account, partition, band, agent, is_agent_unclear, problems = key
    uid = _parse_uid(uid_text)
    request = SubmissionRequest(
        identity=users.identity(uid),
        account=account,
        partitions=tuple(filter(None, partition.split(","))),
        text="",
        band=band,
    )
    claim = Tags(agent=agent, is_agent_unclear=is_agent_unclear, problems=problems)
    decision = decide_with_tags(request, claim, rules.directory)
    reply = _reply(decision, rules.mode)
    return Outcome(
        uid=uid,
        request=request,
        decision=decision,
        reply=encode_fields(reply),
        is_enforced=reply["verdict"] == "accept",
        counter=_COUNTER_OF[reply["verdict"]],
    )


def _parse_uid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise WireError(f"no uid: {text[:40]!r}")
    return int(text)


def _reply(decision: SubmissionDecision, mode: Mode) -> dict[str, str]:
    if mode is Mode.OBSERVE or (decision.verdict is Verdict.UNMANAGED and not decision.message):
        return _UNCHANGED
    if mode is Mode.ADVISE or decision.verdict is Verdict.UNMANAGED:
        return {"verdict": "unchanged", "user_msg": printable(_advice(decision))}
    reply = {"verdict": decision.verdict.value}
    if decision.agent is not None:
        reply["agent"] = decision.agent
    if decision.message:
        reply["user_msg"] = printable(decision.message)
    return reply


def _advice(decision: SubmissionDecision) -> str:
    if decision.verdict is Verdict.REJECT:
        return f"{decision.message} (only advice at present: the job is accepted)"
    if decision.verdict is Verdict.UNMANAGED:
        return decision.message
    text = f"FairGPU: this job counts for agent {decision.agent} (by {decision.source.value})."
    return f"{text} {decision.message}" if decision.message else text


def printable(text: str) -> str:
    """Text that is safe on a terminal and in a log: printable ASCII, bounded."""
    return _UNPRINTABLE.sub("?", text[:MAX_MESSAGE])
