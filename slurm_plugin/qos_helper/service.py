"""What the helper does with a request: check it, run one ``sacctmgr``, log both, answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from slurm_plugin.client.command import Command, Runner, is_unavailable
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.hook.wire import WireError
from slurm_plugin.qos_helper.request import OP_CHANGE, OP_PING, QosChange, Setting, Verdict, parse_change
from slurm_plugin.qos_helper.rules import RefusedError
from slurm_plugin.rebalancer.logfmt import key_values

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S: Final = 10.0
_SHOWN_CHARS: Final = 400
_WORDS: Final = {
    Setting.PRIORITY: "Priority=",
    Setting.PREEMPT: "Preempt=",
    Setting.GRP_TRES: "GrpTRES=",
}

_log = logging.getLogger(__name__)


class Rules(Protocol):
    """What decides whether a change is one of ours."""

    def check(self, change: QosChange, /) -> None:
        """Accept a change; ``RefusedError`` if it is outside the rules."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QosHelperService:
    """Answers requests for one site; :class:`~slurm_plugin.hook.server.HookServer` calls it from one thread."""

    rules: Rules
    runner: Runner

    def answer(self, op: str, fields: Mapping[str, str], _now_s: float) -> dict[str, str]:
        """Reply to one request.

        Raises
        ------
        WireError
            It is no request of ours; the connection is closed without an answer.
        """
        if op == OP_PING:
            return {"verdict": Verdict.DONE.value, "text": ""}
        if op != OP_CHANGE:
            raise WireError(f"no operation of ours: {op}")
        change = parse_change(fields)
        verdict, text = self._perform(change)
        level = logging.INFO if verdict is Verdict.DONE else logging.WARNING
        names, setting = ",".join(change.names), change.setting.value
        shown = {"qos": names[:_SHOWN_CHARS], "setting": setting, "value": change.value[:_SHOWN_CHARS]}
        _log.log(level, key_values(event="change", **shown, verdict=verdict.value, text=text))
        return {"verdict": verdict.value, "text": text}

    def settle(self) -> None:
        """Nothing is left to do after an answer."""

    def _perform(self, change: QosChange) -> tuple[Verdict, str]:
        try:
            self.rules.check(change)
        except RefusedError as err:
            return Verdict.REFUSED, str(err)
        try:
            result = self.runner(Command(argv=sacctmgr_argv(change), timeout_s=TIMEOUT_S))
        except SlurmUnavailable as err:
            return Verdict.AWAY, str(err)
        if result.returncode == 0:
            return Verdict.DONE, ""
        text = (result.stderr or result.stdout).strip()
        return Verdict.AWAY if is_unavailable(text) else Verdict.FAILED, text[-_SHOWN_CHARS:]


def sacctmgr_argv(change: QosChange) -> tuple[str, ...]:
    """Return the command of a change that the rules accept."""
    assignment = _WORDS[change.setting] + change.value
    return ("sacctmgr", "-i", "modify", "qos", ",".join(change.names), "set", assignment)
