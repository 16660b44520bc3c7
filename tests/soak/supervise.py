"""Restart what dies, as systemd would: ``Restart=always``, ``RestartSec=1``."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.e2e.mini_cluster import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.mini_cluster import MiniCluster

RESTART_S: Final = 1.0
_POLL_S: Final = 0.05
_STOP_S: Final = 60.0


class Supervised:
    """One process that is started again whenever it ends, until :meth:`stop`.

    Parameters
    ----------
    kind : str
        What it is in the tables; all slurmds are one kind.
    answers : callable
        Whether it serves again.
    """

    def __init__(
        self, cluster: MiniCluster, kind: str, argv: tuple[str, ...], *, user: str, answers: Callable[[], bool]
    ) -> None:
        self.kind = kind
        self.n_starts = 0
        self._cluster, self._argv, self._user = cluster, argv, user
        self._answers = answers
        self._daemon: Daemon | None = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=kind, daemon=True)
        self._thread.start()

    def answers(self) -> bool:
        """Whether a living process serves."""
        return self._is_alive() and self._answers()

    def wait(self, timeout_s: float) -> float:
        """Wait until it serves; return how long that took, seconds.

        Raises
        ------
        TimeoutError
            It does not within ``timeout_s``.
        """
        began_s = time.monotonic()
        while not self.answers():
            if time.monotonic() - began_s > timeout_s:
                raise TimeoutError(f"{self.kind} does not answer within {timeout_s:g} s")
            time.sleep(_POLL_S)
        return time.monotonic() - began_s

    def kill(self) -> bool:
        """End the process with SIGKILL and return whether there was one."""
        daemon = self._daemon
        if daemon is None or not daemon.is_running():
            return False
        with contextlib.suppress(ProcessLookupError):
            daemon.kill()
        return True

    def stop(self) -> int | None:
        """End it for good with SIGTERM and return its exit code; ``None`` if it was not running."""
        self._is_stopping.set()
        self._thread.join(_STOP_S)
        daemon = self._daemon
        return daemon.stop(_STOP_S) if daemon is not None and daemon.is_running() else None

    def _is_alive(self) -> bool:
        daemon = self._daemon
        return daemon is not None and daemon.is_running()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            with contextlib.suppress(AssertionError):  # it ended at once; the next try comes
                self._daemon = Daemon(self._cluster, *self._argv, user=self._user)
                self.n_starts += 1
            while self._is_alive() and not self._is_stopping.is_set():
                time.sleep(_POLL_S)
            self._is_stopping.wait(0 if self._is_alive() else RESTART_S)
