"""What the server answers: one function from a request's fields to the reply's frame.

Nothing here waits: the rules, identities and standings are in memory, other threads replace them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policies.site_policy import Mode, TagSource
from policies.submission.decision import SubmissionDecision, SubmissionRequest, Verdict
from policies.submission.tags import Tags, parse_tags
from slurm_plugin.hook.outcome import HookRules, Outcome, OutcomeMemory
from slurm_plugin.hook.request import count_array_tasks, is_startable, read_band, requested_tres
from slurm_plugin.hook.wire import OP_MODIFY, OP_PING, OP_REPLY, OP_SUBMIT, WireError, encode_fields, frame_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_plugin.hook.directory import UserDirectory
    from slurm_plugin.hook.standings import StandingsBook
    from slurm_plugin.hook.stats import HookStats

UNCHANGED: Final = frame_body(OP_REPLY, encode_fields({"verdict": "unchanged"}))
"""The reply that leaves a job as it is."""

_QOS_NAME: Final = re.compile(r"[a-z0-9_.-]{1,255}", re.ASCII)


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


@dataclass(slots=True)
class _Answered:
    """What an answer leaves for :meth:`HookService.settle`."""

    outcome: Outcome
    tags: Tags
    op: str
    mode: Mode
    fields: Mapping[str, str]
    factor: int | None
    now_s: float


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

    Attributes
    ----------
    requeues_by_default : bool
        Slurm's ``JobRequeue``: whether a job that says nothing may be requeued.
    trusted_uids : frozenset of int
        Whose changes of jobs are Slurm's or our own, and pass: the rebalancer moves jobs between QOSes.
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
        self.requeues_by_default = True
        self.trusted_uids = frozenset({0})
        self._users = users
        self._memory = OutcomeMemory(rules, users)
        self._book = book
        self._stats = stats
        self._record = record
        self._unsettled: _Answered | None = None

    def answer(self, op: str, fields: Mapping[str, str], now_s: float) -> bytes:
        """Return the reply's frame; :meth:`settle` follows once the reply is sent.

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
        if rules.is_off or (op == OP_MODIFY and self._is_trusted(fields.get("by", ""))):
            self._stats.count("unchanged")
            return UNCHANGED
        return self._decide(op, fields, rules, now_s)

    def _is_trusted(self, uid: str) -> bool:
        return any(uid == str(one) for one in self.trusted_uids)

    def _decide(self, op: str, fields: Mapping[str, str], rules: HookRules, now_s: float) -> bytes:
        text = "" if rules.tag_source is TagSource.ACCOUNT else fields.get(rules.tag_source, "")
        tags = parse_tags(text)
        outcome = self._outcome(op, fields, tags, rules)
        decision = outcome.decision
        factor = None
        if op == OP_SUBMIT and decision.verdict is Verdict.ACCEPT and decision.agent is not None:
            factor = self._book.site_factor(decision.agent, now_s)
        self._unsettled = _Answered(outcome, tags, op, rules.mode, fields, factor, now_s)
        self._stats.count(outcome.counter)
        if op != OP_SUBMIT or not outcome.is_enforced:
            return frame_body(OP_REPLY, outcome.reply)
        more = {} if factor is None else {"site_factor": str(factor)}
        if self._may_set(decision, now_s):
            more["qos"] = decision.qos
        return frame_body(OP_REPLY, outcome.reply + encode_fields(more) if more else outcome.reply)

    def _may_set(self, decision: SubmissionDecision, now_s: float) -> bool:
        # Slurm refuses a job with a QOS that does not exist, and a shim an answer with a name of another kind.
        if not decision.qos or decision.agent is None or _QOS_NAME.fullmatch(decision.qos) is None:
            return False
        return self._book.has_qos(decision.agent, decision.qos, now_s)

    def _outcome(self, op: str, fields: Mapping[str, str], tags: Tags, rules: HookRules) -> Outcome:
        if not self._memory.is_valid_for(rules):
            self._memory = OutcomeMemory(rules, self._users)
        uid, account, partition = (fields.get(name, "") for name in ("uid", "account", "partition"))
        band = read_band(fields, default=self.requeues_by_default if op == OP_SUBMIT else None)
        return self._memory.outcome(uid, account, partition, tags, band=band)

    def settle(self) -> None:
        """Do what the last answer entails but need not wait for: the agent's new standing, the history."""
        answered = self._unsettled
        if answered is None:
            return
        self._unsettled = None
        outcome, fields, now_s = answered.outcome, answered.fields, answered.now_s
        self._record(
            SubmissionRecord(
                at_s=now_s,
                uid=outcome.uid,
                op=answered.op,
                mode=answered.mode,
                request=outcome.request,
                decision=replace(outcome.decision, tags=answered.tags),
                site_factor=answered.factor,
            )
        )
        agent = outcome.decision.agent
        if answered.factor is not None and agent is not None and is_startable(fields, now_s):
            n_tasks = count_array_tasks(fields["array_inx"]) if fields.get("array_inx") else 1
            self._book.advance(agent, requested_tres(fields), n_tasks, now_s)

    def _pong(self) -> bytes:
        self._stats.count("pings")
        counts = {name: str(count) for name, count in self._stats.counts.items()}
        times = {f"{name}_us": f"{value:.1f}" for name, value in self._stats.percentiles_us().items()}
        state = "off" if self.rules.is_off else str(self.rules.mode)
        return frame_body(OP_REPLY, encode_fields({"verdict": "unchanged", "state": state} | counts | times))
