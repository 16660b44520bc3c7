from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from policies.site_policy import Mode
from policies.submission.decision import Identity
from slurm_plugin.client import FakeSlurm
from slurm_plugin.hook import background
from slurm_plugin.hook.background import (
    Faults,
    FileWatcher,
    IdentityRefresher,
    RequeueDefault,
    every,
    groups_of_interest,
    write_stats,
)
from slurm_plugin.hook.directory import UserDirectory
from slurm_plugin.hook.outcome import HookRules
from slurm_plugin.hook.service import HookService
from slurm_plugin.hook.standings import StandingsBook
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.site.switch import turn_off, turn_on

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from slurm_plugin.site.load import SiteFile

STANDINGS = {
    "version": 1,
    "at_s": 1000.0,
    "interval_s": 5.0,
    "mode": "enforce",
    "tres": ["cpu"],
    "capacity": [10],
    "policy": "wdrf",
    "scale": 100,
    "agents": {"rec": {"weight": "1/2", "next": [5]}},
}


class Watched:
    def __init__(self, site: SiteFile) -> None:
        self.book = StandingsBook()
        self.stats = HookStats()
        rules = HookRules.from_policy(site.policy, is_off=False)
        self.service = HookService(rules, UserDirectory(), book=self.book, stats=self.stats, record=lambda _: None)
        self.watcher = FileWatcher(site, self.service, book=self.book, stats=self.stats)
        self.watcher.look()


@pytest.fixture
def watched(site: SiteFile) -> Watched:
    return Watched(site)


def rewrite(site: SiteFile, old: str, new: str) -> None:
    text = site.path.read_text()
    assert old in text
    replacement = site.path.with_suffix(".new")
    replacement.write_text(text.replace(old, new))
    replacement.replace(site.path)


def test_the_kill_switch_is_seen_both_ways(site: SiteFile, watched: Watched) -> None:
    turn_off(site, "test")
    watched.watcher.look()
    assert watched.service.rules.is_off
    turn_on(site)
    watched.watcher.look()
    assert not watched.service.rules.is_off


def test_a_changed_site_file_takes_effect(site: SiteFile, watched: Watched) -> None:
    rewrite(site, "mode: enforce", "mode: advise")
    watched.watcher.look()
    assert watched.service.rules.mode is Mode.ADVISE


def test_a_broken_site_file_leaves_the_former_rules(
    site: SiteFile, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    before = watched.service.rules
    rewrite(site, "mode: enforce", "mode: enfroce")
    with caplog.at_level(logging.ERROR):
        watched.watcher.look()
        watched.watcher.look()
    assert watched.service.rules is before
    assert caplog.text.count("site_file_refused") == 1


def test_a_site_file_that_is_gone_leaves_the_former_rules(site: SiteFile, watched: Watched) -> None:
    before = watched.service.rules
    site.path.unlink()
    watched.watcher.look()
    assert watched.service.rules is before


def test_new_standings_reach_the_book(site: SiteFile, watched: Watched) -> None:
    (site.paths.run_dir / "standings.json").write_text(json.dumps(STANDINGS))
    watched.watcher.look()
    # 5 of 10 CPUs over weight 1/2 is tag 1: 100 / 2.
    assert watched.book.site_factor("rec", 1000.0) == 50


def test_damaged_standings_leave_the_former_ones(
    site: SiteFile, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    path = site.paths.run_dir / "standings.json"
    path.write_text(json.dumps(STANDINGS))
    watched.watcher.look()
    path.write_text("{")
    with caplog.at_level(logging.WARNING):
        watched.watcher.look()
    assert watched.book.site_factor("rec", 1000.0) == 50
    assert "standings_refused" in caplog.text


def test_the_stats_file_is_written(site: SiteFile, watched: Watched) -> None:
    watched.stats.count("errors")
    watched.stats.observe(50_000, 60_000)
    write_stats(site.paths.run_dir / "hook-stats.json", watched.stats)
    content = json.loads((site.paths.run_dir / "hook-stats.json").read_text())
    assert content["counts"]["errors"] == 1
    assert content["answer_us"]["p99"] == 50.0
    assert content["answer_us"]["sent_p99"] == 60.0


def test_a_run_dir_that_is_gone_does_not_stop_the_watching(
    site: SiteFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = site.paths.model_copy(update={"run_dir": tmp_path / "gone"})
    object.__setattr__(site, "paths", gone)
    with caplog.at_level(logging.WARNING):
        Watched(site)
    assert "watch_failed step=write_stats" in caplog.text


def test_the_groups_of_interest_are_the_agents(site: SiteFile) -> None:
    assert groups_of_interest(site) == frozenset()


def test_unknown_users_are_asked_about_at_once_but_not_in_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    now_s = 100.0

    def fetch(uids: Iterable[int], _: Iterable[str]) -> dict[int, Identity]:
        asked.append(tuple(uids))
        return {}

    monkeypatch.setattr(background, "fetch_identities", fetch)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    users = UserDirectory()
    refresher = IdentityRefresher(users, frozenset)
    refresher.look()
    users.identity(7)
    refresher.look()  # less than IDENTITY_PAUSE_S after the first
    now_s += 1.0
    refresher.look()
    refresher.look()
    now_s += 61.0
    refresher.look()
    assert asked == [(), (7,), (7,)]


def test_a_name_service_that_fails_leaves_the_former_identities(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fetch(*_: object) -> dict[int, Identity]:
        raise subprocess.TimeoutExpired("child", 30)

    monkeypatch.setattr(background, "fetch_identities", fetch)
    alice = Identity(user="alice", groups=frozenset())
    users = UserDirectory({1000: alice})
    with caplog.at_level(logging.WARNING):
        IdentityRefresher(users, frozenset).look()
    assert users.identity(1000) is alice
    assert "name_service_failed" in caplog.text


def test_the_clusters_requeue_default_is_asked_for_now_and_then(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("slurm_plugin.hook.background.time.monotonic", lambda: now_s)
    slurm = FakeSlurm()
    default = RequeueDefault(watched.service, slurm.fetch_config)
    slurm.be_unavailable(1)
    slurm.config["JobRequeue"] = "0"
    default.look()
    assert watched.service.requeues_by_default
    default.look()
    assert watched.service.requeues_by_default, "asked again before the pause was over"
    now_s += background.SETTING_PAUSE_S
    default.look()
    assert not watched.service.requeues_by_default


@pytest.mark.parametrize("raw", ["[" * 200_000, '{"version": 1, "at_s": Infinity, "scale": Infinity, "agents": {}}'])
def test_standings_that_overflow_the_reader_are_only_damaged(
    site: SiteFile, watched: Watched, caplog: pytest.LogCaptureFixture, raw: str
) -> None:
    (site.paths.run_dir / "standings.json").write_text(raw)
    with caplog.at_level(logging.WARNING):
        watched.watcher.look()
    assert "standings_refused" in caplog.text
    assert watched.stats.counts["watch_errors"] == 0


def test_a_fault_in_one_step_is_counted_and_the_others_go_on(
    site: SiteFile, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(background, "parse_standings", fail)
    monkeypatch.setattr(background, "is_off", fail)
    stats_file = site.paths.run_dir / "hook-stats.json"
    (site.paths.run_dir / "standings.json").write_text("{}")
    stats_file.unlink()
    later_s = time.monotonic() + background.STATS_INTERVAL_S
    monkeypatch.setattr("slurm_plugin.hook.background.time.monotonic", lambda: later_s)
    with caplog.at_level(logging.ERROR):
        watched.watcher.look()
    assert watched.stats.counts["watch_errors"] == 2
    assert caplog.text.count("background_failed what=_look_at_rules") == 1
    assert stats_file.exists()


class Rounds:
    """Fails in its first rounds and stops the thread after some."""

    def __init__(self, stop: threading.Event, error: BaseException) -> None:
        self.n = 0
        self._stop = stop
        self._error = error

    def look(self) -> None:
        self.n += 1
        if self.n == 3:
            self._stop.set()
        elif self.n < 3:
            raise self._error


def test_a_round_that_fails_does_not_end_the_thread() -> None:
    stop, stats, ended = threading.Event(), HookStats(), threading.Event()
    rounds = Rounds(stop, RecursionError())
    every(0.0, rounds.look, stop, on_error=Faults(stats).note, on_end=ended.set).join(10)
    assert (rounds.n, stats.counts["watch_errors"], ended.is_set()) == (3, 2, True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the thread is meant to die
def test_a_thread_that_dies_says_so() -> None:
    stop, ended = threading.Event(), threading.Event()
    rounds = Rounds(stop, SystemExit())
    every(0.0, rounds.look, stop, on_error=lambda _: None, on_end=ended.set).join(10)
    assert (rounds.n, ended.is_set(), stop.is_set()) == (1, True, False)
