"""What changes while the server answers: site file, kill switch, standings, users and groups.

Two threads look for changes and hand over whole new objects, so the answering loop never waits for a file or
a name service and never sees half of a change.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import SlurmError, StaleStateError
from slurm_plugin.hook.directory import UserDirectory, fetch_identities
from slurm_plugin.hook.outcome import HookRules
from slurm_plugin.hook.standings import parse_standings
from slurm_plugin.rebalancer.standings import FILE_NAME as STANDINGS_NAME
from slurm_plugin.site.switch import is_off
from slurm_plugin.site.watch import Signature, SiteWatcher, file_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from slurm_plugin.hook.service import HookService
    from slurm_plugin.hook.standings import StandingsBook
    from slurm_plugin.hook.stats import HookStats
    from slurm_plugin.site.load import SiteFile

WATCH_INTERVAL_S: Final = 0.2
STATS_INTERVAL_S: Final = 2.0
IDENTITY_INTERVAL_S: Final = 60.0
IDENTITY_PAUSE_S: Final = 1.0
"""Shortest time between two look-ups when unknown users submit."""

SETTING_INTERVAL_S: Final = 300.0
SETTING_PAUSE_S: Final = 10.0
"""Until the next question after slurmctld did not answer."""

LOG_EVERY_S: Final = 10.0
STATS_NAME: Final = "hook-stats.json"

_log = logging.getLogger(__name__)


class Faults:
    """Faults of ours in the background: each is counted, one in ``LOG_EVERY_S`` is logged with its traceback."""

    def __init__(self, stats: HookStats) -> None:
        self._stats = stats
        self._next_log_s = 0.0

    def note(self, what: str) -> None:
        """Note the exception that is being handled."""
        self._stats.count("watch_errors")
        now_s = time.monotonic()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + LOG_EVERY_S
            _log.error("event=background_failed what=%s", what, exc_info=True)


class FileWatcher:
    """Looks at the site file, the kill switch and the standings, and writes the stats file.

    Parameters
    ----------
    site : SiteFile
        As loaded; read again when the file changes. One with problems is reported and the former one stays.
    """

    def __init__(self, site: SiteFile, service: HookService, *, book: StandingsBook, stats: HookStats) -> None:
        self._site_file = SiteWatcher(site)
        self._service = service
        self._book = book
        self._stats = stats
        self._faults = Faults(stats)
        self._standings_signature: Signature = None
        self._stats_due_s = 0.0

    @property
    def site(self) -> SiteFile:
        """The last good site file."""
        return self._site_file.site

    def look(self) -> None:
        """One round; every problem is logged, none stops the watching."""
        for step in (self._look_at_rules, self._look_at_standings, self._write_due_stats):
            try:
                step()
            except OSError as err:
                _log.warning("event=watch_failed step=%s error=%s", step.__name__, err)
            except Exception:  # noqa: BLE001 - a fault in one step must not end the others
                self._faults.note(step.__name__)

    def write_stats(self) -> None:
        """Write the stats file; a full disk is logged."""
        try:
            write_stats(self.site.paths.run_dir / STATS_NAME, self._stats)
        except OSError as err:
            _log.warning("event=watch_failed step=write_stats error=%s", err)

    def _look_at_rules(self) -> None:
        has_changed = self._site_file.look()
        off = is_off(self.site)
        if has_changed or off != self._service.rules.is_off:
            self._service.rules = HookRules.from_policy(self.site.policy, is_off=off)
            _log.info("event=rules mode=%s off=%s", self.site.policy.mode, off)

    def _look_at_standings(self) -> None:
        path = self.site.paths.run_dir / STANDINGS_NAME
        signature = file_signature(path)
        if signature is None or signature == self._standings_signature:
            return
        self._standings_signature = signature
        try:
            self._book.offer(parse_standings(path.read_bytes()))
        except StaleStateError as err:
            _log.warning("event=standings_refused error=%s", err)

    def _write_due_stats(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._stats_due_s:
            self._stats_due_s = now_s + STATS_INTERVAL_S
            self.write_stats()


def write_stats(path: Path, stats: HookStats) -> None:
    """Write counters and answer times as JSON, atomically."""
    content = {"at_s": time.time(), "pid": os.getpid(), "counts": dict(stats.counts)}
    content["answer_us"] = stats.percentiles_us()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(content, sort_keys=True) + "\n", encoding="ascii")
    temporary.replace(path)


class IdentityRefresher:
    """Keeps a :class:`UserDirectory` fresh.

    Parameters
    ----------
    groups : callable
        Group names that the present site policy mentions.
    """

    def __init__(self, users: UserDirectory, groups: Callable[[], frozenset[str]]) -> None:
        self._users = users
        self._groups = groups
        self._due_s = 0.0
        self._soonest_s = 0.0

    def look(self) -> None:
        """Ask the name service if it is time, or if an unknown user submitted."""
        now_s = time.monotonic()
        if now_s < self._soonest_s or (now_s < self._due_s and not self._users.has_unknown):
            return
        try:
            self._users.replace(fetch_identities(self._users.asked_uids(), self._groups()))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as err:
            _log.warning("event=name_service_failed error=%s", err)
        done_s = time.monotonic()
        self._soonest_s, self._due_s = done_s + IDENTITY_PAUSE_S, done_s + IDENTITY_INTERVAL_S


class RequeueDefault:
    """Keeps :attr:`HookService.requeues_by_default` as slurm.conf has ``JobRequeue``; yes until it is known.

    Parameters
    ----------
    fetch_config : callable
        Slurm's configuration by key.
    """

    def __init__(self, service: HookService, fetch_config: Callable[[], Mapping[str, str]]) -> None:
        self._service = service
        self._fetch_config = fetch_config
        self._due_s = 0.0
        self._is_failing = False

    def look(self) -> None:
        """Ask slurmctld if it is time."""
        if time.monotonic() < self._due_s:
            return
        pause_s = SETTING_INTERVAL_S
        try:
            self._service.requeues_by_default = self._fetch_config().get("JobRequeue", "1").strip() != "0"
            self._is_failing = False
        except (SlurmError, OSError) as err:
            pause_s = SETTING_PAUSE_S
            if not self._is_failing:  # one line per outage
                _log.warning("event=job_requeue_unknown error=%s", err)
            self._is_failing = True
        self._due_s = time.monotonic() + pause_s


def groups_of_interest(site: SiteFile) -> frozenset[str]:
    """Return the groups that any agent of the site file names."""
    return frozenset(group for agent in site.policy.agents for group in agent.groups)


def every(
    interval_s: float,
    look: Callable[[], None],
    stop: threading.Event,
    *,
    on_error: Callable[[str], None],
    on_end: Callable[[], None],
) -> threading.Thread:
    """Start a daemon thread that calls ``look`` until ``stop`` is set.

    Parameters
    ----------
    on_error : callable
        Called with the name of ``look`` while its exception is handled; the next round comes.
    on_end : callable
        Called when the thread ends, for whatever reason: without it nothing is kept fresh any more.
    """
    name = getattr(look, "__qualname__", repr(look))

    def run() -> None:
        try:
            while not stop.wait(interval_s):
                try:
                    look()
                except Exception:  # noqa: BLE001 - one bad round must not end the watching
                    on_error(name)
        finally:
            on_end()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
