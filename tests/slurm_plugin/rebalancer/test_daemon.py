"""The daemon performs instructions: signals, reload, failures at the cycle boundary, one round with --once."""

from __future__ import annotations

import signal
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.records import JobId
from policies.site_policy import Mode
from slurm_plugin.errors import AlreadyRunningError, ConfigError, SlurmUnavailable, StaleStateError
from slurm_plugin.rebalancer.daemon import Daemon, Memory, Signals, recent_memory, run_daemon, run_once
from slurm_plugin.rebalancer.daemon_state import (
    CycleEnded,
    Exit,
    Look,
    Looked,
    Outcome,
    ReloadAsked,
    Reloaded,
    ReloadSite,
    ResetEnded,
    ResetFactors,
    RunCycle,
    Sleep,
    StopAsked,
    Woke,
)
from slurm_plugin.rebalancer.lease import hold_lease, lease_holder
from slurm_plugin.rebalancer.snapshot_ring import snapshot_paths
from slurm_plugin.site.switch import off_stamp, turn_off
from tests.slurm_plugin.rebalancer.world import SCALE, START_S, World, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, make_job(1))
    yield world
    world.rebalancer.history.close()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Give the test runner its signal handlers back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def _daemon(world: World) -> Daemon:
    return Daemon(rebalancer=world.rebalancer, signals=Signals(), wait=world.advance)


def test_looking_reads_the_switch_and_the_role(world: World) -> None:
    daemon = _daemon(world)
    assert daemon.perform(Look()) == Looked(off_stamp=None, is_primary=True)
    turn_off(world.site)
    world.slurm.is_acting = False
    assert daemon.perform(Look()) == Looked(off_stamp=off_stamp(world.site), is_primary=False)
    assert world.rebalancer.metrics.registry.get_sample_value("fairgpu_enabled") == 0


def test_a_controller_that_does_not_answer_is_a_failed_cycle(world: World) -> None:
    daemon = _daemon(world)
    world.slurm.be_unavailable(2)
    assert daemon.perform(Look()) == CycleEnded(outcome=Outcome.UNAVAILABLE)
    event = daemon.perform(RunCycle())
    assert isinstance(event, CycleEnded)
    assert event.outcome is Outcome.UNAVAILABLE
    count = world.rebalancer.metrics.registry.get_sample_value("fairgpu_cycles_total", {"outcome": "unavailable"})
    assert count == 1


def test_a_crash_in_a_cycle_is_logged_and_counted_and_the_daemon_lives(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = _daemon(world)
    world.rebalancer.groups = None  # type: ignore[assignment]  # any bug will do
    event = daemon.perform(RunCycle())
    assert isinstance(event, CycleEnded)
    assert event.outcome is Outcome.CRASHED
    assert "event=crashed what=cycle" in caplog.text


def test_a_reset_is_told_and_counted(world: World) -> None:
    daemon = _daemon(world)
    daemon.perform(RunCycle())
    assert daemon.perform(ResetFactors()) == ResetEnded(outcome=Outcome.OK, n_touched=1)
    assert world.rebalancer.metrics.registry.get_sample_value("fairgpu_restored_jobs_total") == 1


def test_a_refused_restore_is_an_error_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    daemon = _daemon(world)
    daemon.perform(RunCycle())
    world.slurm.reject_updates(JobId("1"), "no way")
    daemon.perform(ResetFactors())
    assert 'event=restore_failed job=1 text="no way"' in caplog.text


def test_reload_takes_a_good_file(world: World) -> None:
    path = world.site.path
    path.write_text(path.read_text().replace("enforce", "observe").replace("5s", "2s"))
    assert _daemon(world).perform(ReloadSite()) == Reloaded(interval_s=2.0)
    assert world.rebalancer.site.policy.mode is Mode.OBSERVE


def test_reload_keeps_the_old_file_when_the_new_one_is_wrong(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.site.path.write_text("cluster: fake\nmode: wild\n")
    assert _daemon(world).perform(ReloadSite()) == Reloaded(interval_s=5.0)
    assert world.rebalancer.site == world.site
    assert "event=reload_failed" in caplog.text


def test_reload_leaves_the_paths_as_they_are(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = tmp_path / "other"
    other.mkdir()
    path = world.site.path
    path.write_text(path.read_text().replace(f"run_dir: {tmp_path}", f"run_dir: {other}"))
    _daemon(world).perform(ReloadSite())
    assert world.rebalancer.site.paths == world.site.paths
    assert "event=reload_partly" in caplog.text


def test_signals_come_before_everything_else(world: World) -> None:
    signals = Signals()
    daemon = Daemon(rebalancer=world.rebalancer, signals=signals, wait=world.advance)
    signals.on_signal(signal.SIGHUP)
    assert isinstance(daemon._asked(), ReloadAsked)
    assert daemon._asked() is None
    signals.on_signal(signal.SIGTERM)
    assert isinstance(daemon._asked(), StopAsked)


def test_a_signal_just_before_the_sleep_is_not_slept_over(world: World) -> None:
    daemon = _daemon(world)
    daemon.signals.on_signal(signal.SIGTERM)
    daemon.perform(Sleep(seconds=1000.0))
    assert world.now_s == START_S
    assert isinstance(daemon.perform(Exit()), StopAsked)
    assert daemon.perform(Look()) != Woke()


def test_the_daemon_runs_cycles_until_a_signal(world: World) -> None:
    daemon = _daemon(world)
    seen: list[str] = []

    def count(seconds: float) -> None:
        world.advance(seconds)
        if len(seen) == 3:
            daemon.signals.on_signal(signal.SIGTERM)

    daemon.wait = count
    daemon.on_result = lambda result: seen.append(result.cycle_id)
    daemon.run()
    assert len(seen) == 3


@pytest.mark.usefixtures("own_signals")
def test_once_runs_one_cycle_and_frees_the_lease(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.rebalancer.history.close()
    with pytest.raises(StaleStateError):  # FakeSlurm's clock is years behind the real one: doubtful, not written
        run_once(world.site, world.slurm)
    assert world.slurm.written == ()
    assert len(snapshot_paths(tmp_path)) == 1
    assert lease_holder(tmp_path) is None


@pytest.mark.usefixtures("own_signals")
def test_once_tells_that_slurm_is_away(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.slurm.be_unavailable(1)
    with pytest.raises(SlurmUnavailable):
        run_once(world.site, world.slurm)


@pytest.mark.usefixtures("own_signals")
def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with hold_lease(tmp_path, now_s=1.0), pytest.raises(AlreadyRunningError):
        run_daemon(world.site, world.slurm)


@pytest.mark.usefixtures("own_signals")
def test_a_dry_run_needs_no_lease_and_no_directory(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    turn_off(world.site)
    with hold_lease(tmp_path, now_s=1.0):
        run_once(world.site, world.slurm, is_dry_run=True)
    assert world.slurm.written == ()


@pytest.mark.usefixtures("own_signals")
def test_a_missing_directory_is_a_problem_of_the_site_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    paths = world.site.paths.model_copy(update={"run_dir": tmp_path / "missing"})
    with pytest.raises(ConfigError) as caught:
        run_daemon(replace(world.site, paths=paths), world.slurm)
    assert "missing: not a directory that this user may write" in caught.value.problems[0]


@pytest.mark.usefixtures("own_signals")
def test_a_metrics_address_that_is_taken_is_a_problem_of_the_site_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    settings = world.site.rebalancer.model_copy(update={"metrics_listen": "203.0.113.7:9"})
    with pytest.raises(ConfigError, match="metrics_listen"):
        run_daemon(replace(world.site, rebalancer=settings), world.slurm)


def test_a_restart_takes_over_recent_sla_memory_only(world: World) -> None:
    result = world.cycle()
    at_s = result.snapshot.now_s
    assert recent_memory(world.site, now_s=at_s + 60).sla == result.plan.sla_memory
    assert recent_memory(world.site, now_s=at_s + 3600).sla == ()


def test_a_damaged_last_snapshot_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    result = world.cycle()
    world.cycle()
    snapshot_paths(world.site.paths.state_dir)[-1].write_bytes(b"damaged")
    assert recent_memory(world.site, now_s=world.now_s).sla == result.plan.sla_memory
    assert "event=memory_lost" in caplog.text


def test_a_damaged_last_snapshot_only_loses_the_memory(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.cycle()
    snapshot_paths(world.site.paths.state_dir)[-1].write_bytes(b"damaged")
    assert recent_memory(world.site, now_s=START_S) == Memory()
    assert "event=memory_lost" in caplog.text


def test_a_locked_history_is_written_when_it_is_free_again(world: World, tmp_path: Path) -> None:
    world.cycle()
    blocker = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    world.slurm.add_job(make_job(2))
    world.cycle()
    assert (world.factor(2) or 0) < SCALE
    blocker.execute("ROLLBACK")
    blocker.close()
    world.cycle()
    world.restart()
    assert set(world.rebalancer.history.factors.lines) == {"1", "2"}
