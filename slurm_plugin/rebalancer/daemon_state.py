"""When the rebalancer looks, acts, resets, waits and ends: a state machine of plain values.

The daemon performs one instruction, reports what happened as one event, and asks :func:`step` for the next
instruction. Nothing here touches Slurm, files or the clock, so every path is tested alone.

::

    Woke -> Look -> Looked -- on, primary --> RunCycle -> CycleEnded -> Sleep -> Woke ...
                      |------ off ----------> ResetFactors -> ResetEnded -> Sleep (again until clean)
                      `------ not primary --> Sleep
    StopAsked -> Exit and ReloadAsked -> ReloadSite at any time
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from slurm_plugin.site.switch import OffStamp

MAX_BACKOFF_S: Final = 30.0
MAX_DENIED_PAUSE_S: Final = 60.0
"""A refused permission needs a human; asking Slurm every cycle would only fill its log. It may also be a slurmctld that
has just started without slurmdbd and does not know its operators yet: so the pauses double up to this one."""

CLEAN_RESETS: Final = 2
"""Off is reached when so many resets in a row found nothing: a submission on its way through the hook, or a
write that Slurm answered late, may appear after the first."""


class Phase(StrEnum):
    """What the daemon is at."""

    ACTIVE = "active"
    RESETTING = "resetting"
    OFF = "off"
    STANDBY = "standby"
    STOPPED = "stopped"


class Outcome(StrEnum):
    """How a cycle or a reset ended."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    STALE = "stale"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    """What the machine remembers.

    Attributes
    ----------
    failures : int
        Failures in a row.
    clean_resets : int
        Resets in a row that found nothing to do.
    off_stamp : tuple or None
        The switch that the resets are for: on and off between two looks is another one.
    interval_s : float
        Cycle interval, seconds.
    """

    phase: Phase = Phase.ACTIVE
    failures: int = 0
    clean_resets: int = 0
    off_stamp: OffStamp | None = None
    interval_s: float


@dataclass(frozen=True, slots=True)
class Woke:
    """The daemon started or its sleep ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The kill switch (``None`` is on) and the controller's role were read."""

    off_stamp: OffStamp | None
    is_primary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnded:
    """A cycle ended after ``elapsed_s`` seconds."""

    outcome: Outcome
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetEnded:
    """A reset ended; ``n_touched`` jobs were written or could not be."""

    outcome: Outcome
    n_touched: int = 0


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A signal asked for the end."""


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    """A signal asked to read the site file again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The site file was read, or the old one was kept; the interval that holds now, seconds."""

    interval_s: float


Event = Woke | Looked | CycleEnded | ResetEnded | StopAsked | ReloadAsked | Reloaded


@dataclass(frozen=True, slots=True)
class Look:
    """Read the kill switch and whether this controller is the primary."""


@dataclass(frozen=True, slots=True)
class RunCycle:
    """Observe, decide, enact, report."""


@dataclass(frozen=True, slots=True)
class ResetFactors:
    """Restore every job that we touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Wait; signals end the wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReloadSite:
    """Read the site file again."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave, exit code 0."""


Instruction = Look | RunCycle | ResetFactors | Sleep | ReloadSite | Exit


def step(state: DaemonState, event: Event) -> tuple[DaemonState, Instruction]:
    """Return the state after ``event`` and the one instruction to perform next."""
    if state.phase is Phase.STOPPED:
        return state, Exit()
    result: tuple[DaemonState, Instruction]
    match event:
        case Woke():
            result = state, Look()
        case Looked():
            result = _after_look(state, event)
        case CycleEnded():
            result = _after_cycle(state, event)
        case ResetEnded():
            result = _after_reset(state, event)
        case StopAsked():
            result = replace(state, phase=Phase.STOPPED), Exit()
        case ReloadAsked():
            result = state, ReloadSite()
        case Reloaded():
            result = replace(state, interval_s=event.interval_s), Look()
        case _:
            assert_never(event)
    return result


def backoff_s(failures: int, interval_s: float, *, longest_s: float = MAX_BACKOFF_S) -> float:
    """Return the pause after so many failures in a row: the interval doubled each time, up to a bound.

    Examples
    --------
    >>> [backoff_s(n, 5.0) for n in (1, 2, 3, 4, 100)]
    [5.0, 10.0, 20.0, 30.0, 30.0]
    """
    bound = max(longest_s, interval_s)
    return min(bound, interval_s * 2.0 ** min(failures - 1, 20))


def _after_look(state: DaemonState, event: Looked) -> tuple[DaemonState, Instruction]:
    if not event.is_primary:
        return replace(state, phase=Phase.STANDBY), Sleep(seconds=state.interval_s)
    if event.off_stamp is None:
        return replace(state, phase=Phase.ACTIVE, clean_resets=0, off_stamp=None), RunCycle()
    if event.off_stamp != state.off_stamp:
        # Whatever the hook answered before this switch was set may be in the queue.
        state = replace(state, phase=Phase.RESETTING, clean_resets=0, off_stamp=event.off_stamp)
    if state.phase is Phase.OFF:
        return state, Sleep(seconds=state.interval_s)
    return replace(state, phase=Phase.RESETTING), ResetFactors()


def _after_cycle(state: DaemonState, event: CycleEnded) -> tuple[DaemonState, Instruction]:
    if event.outcome in {Outcome.OK, Outcome.STALE}:
        rest_s = max(0.0, state.interval_s - event.elapsed_s)
        # At least a tenth of the interval: a cycle slower than its interval must not poll without a pause.
        return replace(state, failures=0), Sleep(seconds=max(rest_s, state.interval_s / 10))
    return _after_failure(state, event.outcome)


def _after_reset(state: DaemonState, event: ResetEnded) -> tuple[DaemonState, Instruction]:
    if event.outcome is not Outcome.OK:
        return _after_failure(state, event.outcome)
    clean = state.clean_resets + 1 if event.n_touched == 0 else 0
    phase = Phase.OFF if clean >= CLEAN_RESETS else Phase.RESETTING
    return replace(state, phase=phase, clean_resets=clean, failures=0), Sleep(seconds=state.interval_s)


def _after_failure(state: DaemonState, outcome: Outcome) -> tuple[DaemonState, Instruction]:
    failures = state.failures + 1
    longest_s = MAX_DENIED_PAUSE_S if outcome is Outcome.DENIED else MAX_BACKOFF_S
    pause_s = backoff_s(failures, state.interval_s, longest_s=longest_s)
    return replace(state, failures=failures), Sleep(seconds=pause_s)
