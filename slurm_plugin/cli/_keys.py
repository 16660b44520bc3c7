"""Single keys from the terminal, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_SPECIAL_CHARACTERS: Final = 6


@contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits so many seconds for keys and returns them, empty for none.

    Ctrl-C stays an interrupt; Ctrl-Z is switched off, since it would leave the screen as it is. SIGTERM and SIGHUP
    become ``SystemExit`` meanwhile. However the block ends, the terminal's settings and the signals are what they were.
    """
    former_handlers = {number: signal.signal(number, _leave) for number in _SIGNALS}
    try:
        if not sys.stdin.isatty():
            yield _wait_only
            return
        descriptor = sys.stdin.fileno()
        former = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            ours = termios.tcgetattr(descriptor)
            ours[_SPECIAL_CHARACTERS][termios.VSUSP] = b"\0"
            termios.tcsetattr(descriptor, termios.TCSANOW, ours)
            yield lambda seconds: _read(descriptor, seconds)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)


def _read(descriptor: int, seconds: float) -> str:
    ready, _, _ = select.select([descriptor], [], [], seconds)
    if not ready:
        return ""
    typed = os.read(descriptor, 64)
    # The terminal is gone: nobody looks any more.
    return typed.decode("ascii", "replace") if typed else "q"


def _wait_only(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
