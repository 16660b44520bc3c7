"""What the server answers: one function from a request's fields to the reply's fields.

Nothing here waits: the rules, identities and standings are in memory, other threads replace them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.site_policy import Mode, TagSource
from policies.submission.decision import (
    AgentDirectory,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_with_directory,
)
from slurm_plugin.hook.request import count_array_tasks, is_startable, requested_tres
from slurm_plugin.hook.wire import OP_MODIFY, OP_PING, OP_SUBMIT, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policies.site_policy import SitePolicy
    from slurm_plugin.hook.directory import UserDirectory
    from slurm_plugin.hook.standings import StandingsBook
    from slurm_plugin.hook.stats import HookStats

MAX_MESSAGE: Final = 1_000
_UNPRINTABLE: Final = re.compile(r"[^ -~]")
_UNCHANGED: Final = {"verdict": "unchanged"}


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
class SubmissionRecord:
    """One decision for the history; ``site_factor`` is what an enforcing hook sets."""

    at_s: float
    uid: int
    op: str
    mode: Mode
    request: SubmissionRequest
    decision: SubmissionDecision
    site_factor: int | None


class HookService:
    """Answers requests.

    Parameters
    ----------
    rules : HookRules
        May be replaced at any time (:attr:`rules`).
    users : UserDirectory
    book : StandingsBook
    stats : HookStats
    record : callable
        Takes each decision; must not block.
    """

    def __init__(
        self,
        rules: HookRules,
        users: UserDirectory,
        *,
        book: StandingsBook,
        stats: HookStats,
        record: Callable[[SubmissionRecord], None],
    ) -> None:
        self.rules = rules
        self._users = users
        self._book = book
        self._stats = stats
        self._record = record
        self._unsettled: tuple[SubmissionRecord, Mapping[str, str]] | None = None

    def answer(self, op: str, fields: Mapping[str, str], now_s: float) -> Mapping[str, str]:
        """Return the reply's fields; :meth:`settle` follows once the reply is sent.

        Raises
        ------
        WireError
            The operation is unknown or the uid is missing.
        """
        if op == OP_PING:
            return self._pong()
        if op not in (OP_SUBMIT, OP_MODIFY):
            raise WireError(f"unknown operation {op!r}")
        self._stats.count("submissions" if op == OP_SUBMIT else "modifications")
        rules = self.rules
        reply = _UNCHANGED if rules.is_off else self._decide(op, fields, rules, now_s)
        self._stats.count(_COUNTER_OF[reply["verdict"]])
        return reply

    def _decide(self, op: str, fields: Mapping[str, str], rules: HookRules, now_s: float) -> dict[str, str]:
        uid = _uid_of(fields)
        request = SubmissionRequest(
            identity=self._users.identity(uid),
            account=fields.get("account", ""),
            partitions=tuple(filter(None, fields.get("partition", "").split(","))),
            text=_tag_text(fields, rules.tag_source),
        )
        decision = decide_with_directory(request, rules.directory)
        factor = None
        if op == OP_SUBMIT and decision.verdict is Verdict.ACCEPT and decision.agent is not None:
            factor = self._book.site_factor(decision.agent, now_s)
        record = SubmissionRecord(
            at_s=now_s, uid=uid, op=op, mode=rules.mode, request=request, decision=decision, site_factor=factor
        )
        self._unsettled = (record, fields)
        return _reply(decision, rules.mode, factor)

    def settle(self) -> None:
        """Do what the last answer entails but need not wait for: the agent's new standing, the history."""
        if self._unsettled is None:
            return
        record, fields = self._unsettled
        self._unsettled = None
        self._record(record)
        agent = record.decision.agent
        if record.site_factor is not None and agent is not None and is_startable(fields, record.at_s):
            n_tasks = count_array_tasks(fields["array_inx"]) if fields.get("array_inx") else 1
            self._book.advance(agent, requested_tres(fields), n_tasks, record.at_s)

    def _pong(self) -> dict[str, str]:
        self._stats.count("pings")
        counts = {name: str(count) for name, count in self._stats.counts.items()}
        times = {f"{name}_us": f"{value:.1f}" for name, value in self._stats.percentiles_us().items()}
        state = "off" if self.rules.is_off else str(self.rules.mode)
        return {"verdict": "unchanged", "state": state} | counts | times


_COUNTER_OF: Final = {"accept": "accepted", "reject": "rejected", "unchanged": "unchanged"}


def _uid_of(fields: Mapping[str, str]) -> int:
    text = fields.get("uid", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise WireError(f"no uid: {text[:40]!r}")
    return int(text)


def _tag_text(fields: Mapping[str, str], source: TagSource) -> str:
    return "" if source is TagSource.ACCOUNT else fields.get(source.value, "")


def _reply(decision: SubmissionDecision, mode: Mode, factor: int | None) -> dict[str, str]:
    if mode is Mode.OBSERVE or decision.verdict is Verdict.UNMANAGED:
        return _UNCHANGED
    if mode is Mode.ADVISE:
        return {"verdict": "unchanged", "user_msg": printable(_advice(decision))}
    reply = {"verdict": decision.verdict.value}
    if decision.agent is not None:
        reply["agent"] = decision.agent
    if factor is not None:
        reply["site_factor"] = str(factor)
    if decision.message:
        reply["user_msg"] = printable(decision.message)
    return reply


def _advice(decision: SubmissionDecision) -> str:
    if decision.verdict is Verdict.REJECT:
        return f"{decision.message} (only advice at present: the job is accepted)"
    text = f"FairGPU: this job counts for agent {decision.agent} (by {decision.source.value})."
    return f"{text} {decision.message}" if decision.message else text


def printable(text: str) -> str:
    """Text that is safe on a terminal and in a log: printable ASCII, bounded."""
    return _UNPRINTABLE.sub("?", text[:MAX_MESSAGE])
