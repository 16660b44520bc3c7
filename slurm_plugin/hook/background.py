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

from slurm_plugin.errors import ConfigError, SlurmError, StaleStateError
from slurm_plugin.hook.directory import UserDirectory, fetch_identities
from slurm_plugin.hook.outcome import HookRules
from slurm_plugin.hook.standings import parse_standings
from slurm_plugin.rebalancer.standings import FILE_NAME as STANDINGS_NAME
from slurm_plugin.site.load import load_site
from slurm_plugin.site.switch import is_off

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

STATS_NAME: Final = "hook-stats.json"

_Signature = tuple[int, int, int] | None

_log = logging.getLogger(__name__)


class FileWatcher:
    """Looks at the site file, the kill switch and the standings, and writes the stats file.

    Parameters
    ----------
    site : SiteFile
        As loaded; read again when the file changes. One with problems is reported and the former one stays.
    """

    def __init__(self, site: SiteFile, service: HookService, *, book: StandingsBook, stats: HookStats) -> None:
        self.site = site
        self._service = service
        self._book = book
        self._stats = stats
        self._site_signature = _signature(site.path)
        self._standings_signature: _Signature = None
        self._stats_due_s = 0.0

    def look(self) -> None:
        """One round; every problem is logged, none stops the watching."""
        for step in (self._look_at_rules, self._look_at_standings, self._write_due_stats):
            try:
                step()
            except OSError as err:
                _log.warning("event=watch_failed step=%s error=%s", step.__name__, err)

    def write_stats(self) -> None:
        """Write the stats file; a full disk is logged."""
        try:
            write_stats(self.site.paths.run_dir / STATS_NAME, self._stats)
        except OSError as err:
            _log.warning("event=watch_failed step=write_stats error=%s", err)

    def _look_at_rules(self) -> None:
        signature = _signature(self.site.path)
        has_changed = signature != self._site_signature and signature is not None
        if has_changed:
            self._site_signature = signature
            has_changed = self._reload_site()
        off = is_off(self.site)
        if has_changed or off != self._service.rules.is_off:
            self._service.rules = HookRules.from_policy(self.site.policy, is_off=off)
            _log.info("event=rules mode=%s off=%s", self.site.policy.mode, off)

    def _reload_site(self) -> bool:
        try:
            self.site = load_site(self.site.path)
        except ConfigError as err:
            _log.error("event=site_file_refused error=%s problems=%s", err, "; ".join(err.problems))
            return False
        return True

    def _look_at_standings(self) -> None:
        path = self.site.paths.run_dir / STANDINGS_NAME
        signature = _signature(path)
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


def every(interval_s: float, look: Callable[[], None], stop: threading.Event) -> threading.Thread:
    """Start a daemon thread that calls ``look`` until ``stop`` is set."""

    def run() -> None:
        while not stop.wait(interval_s):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _signature(path: Path) -> _Signature:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
