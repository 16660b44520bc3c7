"""The rebalancer's side: ask the helper, one change per connection, and say what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from slurm_plugin.errors import FairGpuError
from slurm_plugin.hook.exchange import ask
from slurm_plugin.hook.wire import WireError, encode_frame
from slurm_plugin.qos_helper.request import OP_PING, QosChange, Verdict, encode_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_plugin.site import SiteFile

TIMEOUT_S: Final = 15.0
"""Longer than the helper gives sacctmgr."""


class HelperUnavailableError(FairGpuError):
    """No helper answers: ordering goes on, ranks and Preempt lists stay as they are."""


class HelperSilentError(HelperUnavailableError):
    """The helper is there and does not answer in time: asking it again costs the same wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """What became of one change; ``text`` is the helper's or sacctmgr's message."""

    change: QosChange
    verdict: Verdict
    text: str = ""


class QosHelper(Protocol):
    """Changes QOSes of ours."""

    def apply(self, changes: Sequence[QosChange]) -> Sequence[ChangeOutcome]:
        """Outcome of each change, in order; once slurmdbd is away the rest is not asked and away, too.

        Raises
        ------
        HelperUnavailableError
            No helper answers; what was asked before that may be done.
        """
        ...


def helper_socket(site: SiteFile) -> Path:
    """Where the helper listens: a directory of its own beside the run directory, since its user is another one."""
    run_dir = site.paths.run_dir
    return run_dir.with_name(f"{run_dir.name}-qos") / "helper.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketQosHelper:
    """The helper behind a Unix socket."""

    path: Path
    timeout_s: float = TIMEOUT_S

    def apply(self, changes: Sequence[QosChange]) -> Sequence[ChangeOutcome]:
        """Outcome of each change; see :class:`QosHelper`."""
        outcomes: list[ChangeOutcome] = []
        for change in changes:
            if outcomes and outcomes[-1].verdict is Verdict.AWAY:
                outcomes.append(ChangeOutcome(change=change, verdict=Verdict.AWAY, text=outcomes[-1].text))
                continue
            fields = self._ask(encode_change(change))
            is_known = fields.get("verdict") in set(Verdict)
            verdict = Verdict(fields["verdict"]) if is_known else Verdict.FAILED
            outcomes.append(ChangeOutcome(change=change, verdict=verdict, text=fields.get("text", "")))
        return outcomes

    def ping(self) -> None:
        """Ask whether the helper lives.

        Raises
        ------
        HelperUnavailableError
            It does not answer us.
        """
        self._ask(encode_frame(OP_PING, {}))

    def _ask(self, request: bytes) -> dict[str, str]:
        try:
            return ask(self.path, request, timeout_s=self.timeout_s)
        except TimeoutError as err:
            raise HelperSilentError(f"{self.path}: no answer within {self.timeout_s:g} s") from err
        except OSError as err:
            raise HelperUnavailableError(f"{self.path}: {err.strerror or err}") from err
        except WireError as err:
            raise HelperUnavailableError(f"{self.path}: {err}") from err
