"""How each kind of decision is written: the client's or the helper's call, with the undo journal before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from policies.plan import Decision, SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor, StartNow
from policies.records import JobId, JobRecord
from policies.site_policy import Mode
from slurm_plugin.client import SlurmClient, UpdateStatus
from slurm_plugin.qos_helper.client import HelperSilentError, HelperUnavailableError, QosHelper
from slurm_plugin.qos_helper.request import QosChange, Setting, Verdict, group_changes
from slurm_plugin.rebalancer.decision_view import Key, key_of
from slurm_plugin.rebalancer.history import History
from slurm_plugin.rebalancer.journal import former_factor
from slurm_plugin.rebalancer.outcomes import Enacted, EnactOutcome
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.pauses import Pauses
from slurm_plugin.rebalancer.qos_journal import former_qos
from slurm_plugin.rebalancer.store import TouchedJob, TouchedQos

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_plugin.client import UpdateOutcome
    from slurm_plugin.qos_helper.client import ChangeOutcome

_NO_ANSWER: Final = "no answer"
_NO_DATABASE: Final = "slurmdbd was away a moment ago"
_NO_JOURNAL: Final = "the former value could not be noted"
_NO_LIST: Final = "its agent's own Preempt list could not be written, so its agent could not take it back"
_NO_EFFECT: Final = "no effect so far (priority pinned by an administrator?), left alone for a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnactRules:
    """What enacting reads of the site file: the mode (a dry run counts as observe), the factor scale, our QOSes."""

    mode: Mode
    scale: int
    own: OwnQos = field(default_factory=OwnQos)


def listed_by_owner(lists: Iterable[SetPreemptList], own: OwnQos) -> frozenset[str]:
    """Return the QOSes of ours that these lists of their own agents would name for the first time."""
    return frozenset(
        name
        for one in lists
        for name in set(one.new).difference(one.old)
        if name in own.bands and own.bands[name][0] == one.agent
    )


@dataclass(slots=True, kw_only=True)
class Batch:
    """One plan on its way: what is known of its jobs, its Preempt lists, what became of its decisions.

    Attributes
    ----------
    is_database_away : bool
        slurmdbd did not answer this cycle: the QOS helper is not asked.
    """

    rules: EnactRules
    now_s: float
    jobs: Mapping[JobId, JobRecord]
    is_database_away: bool = False
    lists: tuple[SetPreemptList, ...] = ()
    outcomes: dict[Key, tuple[EnactOutcome, str]] = field(default_factory=dict)

    def note(self, decisions: Sequence[Decision], outcome: EnactOutcome, text: str = "") -> None:
        """Say what became of decisions, unless a later word follows."""
        self.outcomes.update({key_of(decision): (outcome, text) for decision in decisions})

    def is_written(self, decision: Decision) -> bool:
        """Return whether the last word on a decision is that it was written."""
        return self.outcomes[key_of(decision)][0] is EnactOutcome.WRITTEN

    def unlisted(self) -> frozenset[str]:
        """QOSes of ours whose own agent could not take them back, since its Preempt list was not written."""
        unwritten = (
            one for one in self.lists if self.outcomes.get(key_of(one), (None, ""))[0] is not EnactOutcome.WRITTEN
        )
        return listed_by_owner(unwritten, self.rules.own)

    def enacted(self, decision: Decision) -> Enacted:
        """Return the last word on a decision; without one the rate limit stood before it."""
        outcome, text = self.outcomes.get(key_of(decision), (EnactOutcome.DEFERRED, "rate limit"))
        return Enacted(decision=decision, outcome=outcome, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes decisions of one kind at a time and notes which to leave alone. Every method may raise ``SlurmError``."""

    client: SlurmClient
    helper: QosHelper
    history: History
    pauses: Pauses

    def write(self, chunk: Sequence[Decision], batch: Batch) -> None:
        """Write decisions that are all of one kind."""
        factors: list[SetSiteFactor] = []
        moves: list[SetQos] = []
        starts: list[StartNow] = []
        settings: list[SetBorrowRank | SetPreemptList] = []
        for decision in chunk:
            match decision:
                case SetSiteFactor():
                    factors.append(decision)
                case SetQos():
                    moves.append(decision)
                case StartNow():
                    starts.append(decision)
                case SetBorrowRank() | SetPreemptList():
                    settings.append(decision)
                case _:
                    assert_never(decision)
        self._write_factors(factors, batch)
        self._write_moves(moves, batch)
        self._write_starts(starts, batch)
        self._write_settings(settings, batch)

    def _write_factors(self, decisions: Sequence[SetSiteFactor], batch: Batch) -> None:
        journal = self.history.factors
        lines = [_factor_line(decision, batch, journal.lines) for decision in decisions]
        is_safe = journal.touch(lines)
        # Without a disk only jobs whose former value is 0 are written: off resets those by their range.
        wanted = [one for one, line in zip(decisions, lines, strict=True) if is_safe or line.former == 0]
        _note_asked(batch, decisions, wanted)
        if wanted:
            answers = self.client.set_site_factors([(one.job_id, one.new) for one in wanted])
            self._note_answers(batch, wanted, answers)
        for one in filter(batch.is_written, wanted):
            if self.pauses.note_written(batch.jobs[one.job_id], one.old, now_s=batch.now_s):
                batch.note([one], EnactOutcome.WRITTEN, _NO_EFFECT)

    def _write_moves(self, decisions: Sequence[SetQos], batch: Batch) -> None:
        journal, own = self.history.moves, batch.rules.own
        unlisted = batch.unlisted() if decisions else frozenset()
        batch.note([one for one in decisions if one.new in unlisted], EnactOutcome.UNHELPED, _NO_LIST)
        decisions = [one for one in decisions if one.new not in unlisted]
        lines = [_move_line(decision, batch, journal.lines) for decision in decisions]
        is_safe = journal.touch(lines)
        # Without a disk only jobs that belong in a guaranteed QOS are moved: off knows those by the name.
        wanted = [
            one
            for one, line in zip(decisions, lines, strict=True)
            if is_safe or (own.is_borrowed(one.new) and line.former == own.guaranteed_of(one.new))
        ]
        _note_asked(batch, decisions, wanted)
        if wanted:
            self._note_answers(batch, wanted, self.client.set_job_qos([(one.job_id, one.new) for one in wanted]))

    def _write_starts(self, decisions: Sequence[StartNow], batch: Batch) -> None:
        _note_asked(batch, decisions, decisions)
        if decisions:
            self._note_answers(batch, decisions, self.client.start_now([one.job_id for one in decisions]))

    def _write_settings(self, decisions: Sequence[SetBorrowRank | SetPreemptList], batch: Batch) -> None:
        batch.note(decisions, EnactOutcome.UNHELPED, _NO_DATABASE)
        if not decisions or batch.is_database_away or self.pauses.is_helper_resting(now_s=batch.now_s):
            return
        try:
            outcomes = self.helper.apply(_changes(decisions))
        except HelperUnavailableError as err:
            batch.note(decisions, EnactOutcome.UNHELPED, str(err))
            if isinstance(err, HelperSilentError):
                self.pauses.rest_helper(now_s=batch.now_s)
            return
        for one in decisions:
            self._note_setting(one, [found for found in outcomes if one.qos in found.change.names], batch)

    def _note_setting(
        self, decision: SetBorrowRank | SetPreemptList, answers: Sequence[ChangeOutcome], batch: Batch
    ) -> None:
        failed = [answer for answer in answers if answer.verdict is not Verdict.DONE]
        text = "; ".join(answer.text for answer in failed)
        if not failed:
            batch.note([decision], EnactOutcome.WRITTEN)
        elif any(answer.verdict is Verdict.AWAY for answer in failed):
            batch.note([decision], EnactOutcome.UNHELPED, text)
            self.pauses.rest_helper(now_s=batch.now_s)
        else:
            batch.note([decision], EnactOutcome.REJECTED, text)
            self.pauses.note_refused(key_of(decision), now_s=batch.now_s)

    def _note_answers(
        self, batch: Batch, decisions: Sequence[SetSiteFactor | SetQos | StartNow], answers: Sequence[UpdateOutcome]
    ) -> None:
        by_job = {decision.job_id: decision for decision in decisions}
        for answer in answers:
            decision = by_job[answer.job_id]
            batch.note([decision], _OUTCOME_OF[answer.status], answer.text)
            if answer.status is UpdateStatus.REJECTED:
                self.pauses.note_refused(key_of(decision), now_s=batch.now_s)


_OUTCOME_OF: Final = {
    UpdateStatus.OK: EnactOutcome.WRITTEN,
    UpdateStatus.GONE: EnactOutcome.GONE,
    UpdateStatus.REJECTED: EnactOutcome.REJECTED,
}


def _note_asked(batch: Batch, decisions: Sequence[Decision], wanted: Sequence[Decision]) -> None:
    batch.note(decisions, EnactOutcome.UNJOURNALLED, _NO_JOURNAL)
    batch.note(wanted, EnactOutcome.UNANSWERED, _NO_ANSWER)


def _changes(decisions: Sequence[SetBorrowRank | SetPreemptList]) -> tuple[QosChange, ...]:
    wanted: list[tuple[str, Setting, str]] = []
    for one in decisions:
        match one:
            case SetBorrowRank():
                wanted.append((one.qos, Setting.PRIORITY, str(one.new)))
            case SetPreemptList():
                wanted.append((one.qos, Setting.PREEMPT, ",".join(one.new)))
            case _:
                assert_never(one)
    return group_changes(wanted)


def _factor_line(decision: SetSiteFactor, batch: Batch, journal: Mapping[JobId, TouchedJob]) -> TouchedJob:
    job = batch.jobs[decision.job_id]
    return TouchedJob(
        job_id=decision.job_id,
        submit_s=job.submit_s,
        former=former_factor(job, journal, scale=batch.rules.scale),
        last_written=decision.new,
        at_s=batch.now_s,
    )


def _move_line(decision: SetQos, batch: Batch, journal: Mapping[JobId, TouchedQos]) -> TouchedQos:
    job = batch.jobs[decision.job_id]
    return TouchedQos(
        job_id=decision.job_id,
        submit_s=job.submit_s,
        former=former_qos(job, journal, batch.rules.own),
        last_written=decision.new,
        at_s=batch.now_s,
    )
