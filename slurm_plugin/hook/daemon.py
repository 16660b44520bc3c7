"""The hook server as a process: put together, run until SIGTERM, cleaned up."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import FairGpuError
from slurm_plugin.hook.background import (
    WATCH_INTERVAL_S,
    Faults,
    FileWatcher,
    IdentityRefresher,
    RequeueDefault,
    every,
    groups_of_interest,
)
from slurm_plugin.hook.directory import UserDirectory
from slurm_plugin.hook.outcome import HookRules
from slurm_plugin.hook.recorder import Recorder
from slurm_plugin.hook.server import HookServer
from slurm_plugin.hook.service import HookService
from slurm_plugin.hook.socket_file import open_listener, resolve_peers
from slurm_plugin.hook.standings import StandingsBook
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.rebalancer.store import HistoryStore
from slurm_plugin.site.switch import is_off

if TYPE_CHECKING:
    import socket

    from slurm_plugin.client import SlurmClient
    from slurm_plugin.site.load import SiteFile

SWITCH_INTERVAL_S: Final = 0.00002
"""How long a background thread may keep the interpreter while an answer is due (Python's default is 5 ms)."""

HISTORY_NAME: Final = "history.db"

_log = logging.getLogger(__name__)


def run_hook_server(site: SiteFile, client: SlurmClient) -> None:
    """Answer slurmctld's shim until SIGTERM or SIGINT.

    Parameters
    ----------
    site : SiteFile
    client : SlurmClient
        Asked for ``JobRequeue`` in a thread of its own.

    Raises
    ------
    AlreadyRunningError
        Another server listens on the socket.
    ConfigError
        The socket cannot be made; the message says what to do.
    FairGpuError
        A thread that keeps files, users or settings fresh died.
    """
    peers = resolve_peers(site.hook.peers)
    listener = open_listener(site.hook.socket, peers)
    try:
        # Our own user may look (status, doctor): whoever has that uid owns this process anyway.
        _serve(site, client, listener.socket, peers | {os.geteuid()})
    finally:
        listener.close()


def _serve(site: SiteFile, client: SlurmClient, listening: socket.socket, peers: frozenset[int]) -> None:
    stats, users, book = HookStats(), UserDirectory(), StandingsBook()
    recorder = Recorder(lambda: HistoryStore(site.paths.state_dir / HISTORY_NAME), stats)
    rules = HookRules.from_policy(site.policy, is_off=is_off(site))
    service = HookService(rules, users, book=book, stats=stats, record=recorder.add)
    service.trusted_uids |= peers
    server = HookServer(listening, service, stats=stats, allowed_uids=peers)
    watcher = FileWatcher(site, service, book=book, stats=stats)
    identities = IdentityRefresher(users, lambda: groups_of_interest(watcher.site))
    requeue = RequeueDefault(service, client.fetch_config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    # "Read your site file again": it is watched anyway, and the default action would end the server.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Known before the first answer, as far as the name service answers in time.
    identities.look()
    watcher.look()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    stop, is_unwatched, faults = threading.Event(), threading.Event(), Faults(stats)

    def end() -> None:
        is_unwatched.set()
        server.stop()

    threads = [
        every(WATCH_INTERVAL_S, look, stop, on_error=faults.note, on_end=end)
        for look in (watcher.look, identities.look, requeue.look)
    ]
    recorder.start()
    _log.info("event=ready socket=%s mode=%s peers=%s", site.hook.socket, rules.mode, sorted(peers))
    try:
        server.run()
        if is_unwatched.is_set():
            raise FairGpuError("a watching thread died: what it keeps fresh would grow old unnoticed")
    finally:
        stop.set()
        recorder.stop()
        for thread in threads:
            thread.join(WATCH_INTERVAL_S * 2)
        watcher.write_stats()
        _log.info("event=stopped submissions=%d errors=%d", stats.counts["submissions"], stats.counts["errors"])
