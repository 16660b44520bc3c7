"""The rebalancer as a process: performs what the state machine says, one instruction at a time.

SIGTERM and SIGINT end it after the current command, SIGHUP reads the site file again. This module holds the one
broad ``except`` of the package, at the boundary of a cycle.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, assert_never

from policies.site_policy import Mode
from slurm_plugin.errors import ConfigError, FairGpuError
from slurm_plugin.rebalancer.cycle import CycleResult, Rebalancer, outcome_of
from slurm_plugin.rebalancer.daemon_state import (
    CycleEnded,
    DaemonState,
    Event,
    Exit,
    Instruction,
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
    step,
)
from slurm_plugin.rebalancer.lease import hold_lease
from slurm_plugin.rebalancer.logfmt import key_values
from slurm_plugin.rebalancer.preempt_lists import ListReport, restore_lists
from slurm_plugin.rebalancer.report import Reporter, log_restores
from slurm_plugin.rebalancer.reset import ResetReport, reset_effects
from slurm_plugin.rebalancer.snapshot_ring import snapshot_paths
from slurm_plugin.site import load_site
from slurm_plugin.site.switch import off_stamp
from slurm_plugin.snapshot import Snapshot, SnapshotError, read_snapshot

if TYPE_CHECKING:
    from types import FrameType

    from policies.plan import BandMemory, SlaMemory
    from policies.records import Observation
    from slurm_plugin.client import SlurmClient
    from slurm_plugin.site import SiteFile

MEMORY_MAX_AGE_S = 600.0
"""SLA memory of a cycle older than this is not taken over at a start."""

_log = logging.getLogger(__name__)


class Memory(NamedTuple):
    """What one cycle remembers for the next; ``seen`` is its observation, to tell reclaims that happen meanwhile."""

    sla: tuple[SlaMemory, ...] = ()
    bands: tuple[BandMemory, ...] = ()
    seen: Observation | None = None


@dataclass(slots=True)
class Signals:
    """What was asked from outside; set by signal handlers, so everything here is one assignment."""

    is_stop_asked: bool = False
    is_reload_asked: bool = False
    wake: threading.Event = field(default_factory=threading.Event)

    def install(self) -> None:
        """Take over SIGTERM, SIGINT and SIGHUP."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.on_signal)

    def on_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """Note one signal."""
        if number == signal.SIGHUP:
            self.is_reload_asked = True
        else:
            self.is_stop_asked = True
        self.wake.set()


@dataclass(slots=True, kw_only=True)
class Daemon:
    """Performs instructions.

    Attributes
    ----------
    wait : callable
        Waits for so many seconds or until a signal.
    on_result : callable
        Told of each cycle.
    """

    rebalancer: Rebalancer
    signals: Signals
    reporter: Reporter = field(default_factory=Reporter)
    wait: Callable[[float], object]
    on_result: Callable[[CycleResult], None] = lambda _: None
    last_error: Exception | None = None

    def run(self, *, once: bool = False) -> None:
        """Run until a signal asks for the end; with ``once`` until the first pause."""
        state, event = DaemonState(interval_s=self.rebalancer.site.rebalancer.interval_s), self._asked() or Woke()
        while True:
            state, instruction = step(state, event)
            is_end = isinstance(instruction, Exit) or (once and isinstance(instruction, Sleep))
            if is_end:
                self.restore_lists()
                return
            event = self.perform(instruction)
            event = self._asked() or event

    def perform(self, instruction: Instruction) -> Event:
        """Perform one instruction and return what happened."""
        event: Event = Woke()
        match instruction:
            case Look():
                event = self._look()
            case RunCycle():
                event = self._run_cycle()
            case ResetFactors():
                event = self._reset()
            case Sleep():
                self.signals.wake.clear()
                if not (self.signals.is_stop_asked or self.signals.is_reload_asked):
                    self.wait(instruction.seconds)
            case ReloadSite():
                event = self._reload()
            case Exit():
                event = StopAsked()
            case _:
                assert_never(instruction)
        return event

    def restore_lists(self) -> None:
        """Nobody steers from now on: write the full Preempt lists and the ranks, as ``fairgpu apply`` did."""
        rebalancer = self.rebalancer
        policy = rebalancer.site.policy
        if policy.bands is None or policy.mode is not Mode.ENFORCE or rebalancer.is_dry_run:
            return
        self._guard("restore_lists", lambda: _log_lists(restore_lists(policy, rebalancer.client, rebalancer.helper)))

    def _asked(self) -> Event | None:
        if self.signals.is_stop_asked:
            return StopAsked()
        if self.signals.is_reload_asked:
            self.signals.is_reload_asked = False
            return ReloadAsked()
        return None

    def _look(self) -> Event:
        stamp = off_stamp(self.rebalancer.site)
        self.rebalancer.metrics.set_enabled(is_enabled=stamp is None)
        looked: list[Looked] = []
        outcome = self._guard(
            "look", lambda: looked.append(Looked(off_stamp=stamp, is_primary=self.rebalancer.client.is_primary()))
        )
        return looked[0] if looked else CycleEnded(outcome=outcome)

    def _run_cycle(self) -> CycleEnded:
        started = time.monotonic()
        ended: list[Outcome] = []

        def cycle() -> None:
            result = self.rebalancer.run_cycle()
            ended.append(result.outcome)
            self.last_error = result.error
            self.reporter.report(self.rebalancer, result)
            self.on_result(result)

        failure = self._guard("cycle", cycle)
        outcome = failure if failure is not Outcome.OK or not ended else ended[0]
        if not ended:
            self.rebalancer.metrics.count("fairgpu_cycles_total", outcome=outcome.value)
        return CycleEnded(outcome=outcome, elapsed_s=time.monotonic() - started)

    def _reset(self) -> ResetEnded:
        reports: list[ResetReport] = []
        rebalancer = self.rebalancer
        if rebalancer.is_dry_run:
            return ResetEnded(outcome=Outcome.OK)
        outcome = self._guard(
            "reset",
            lambda: reports.append(
                reset_effects(rebalancer.site, rebalancer.client, helper=rebalancer.helper, history=rebalancer.history)
            ),
        )
        n_touched = 0
        for report in reports:
            n_touched = report.n_touched
            rebalancer.metrics.count("fairgpu_restored_jobs_total", len(report.restored))
            log_restores("reset", report)
            _log_lists(report.lists)
        return ResetEnded(outcome=outcome, n_touched=n_touched)

    def _reload(self) -> Reloaded:
        try:
            site = load_site(self.rebalancer.site.path)
        except ConfigError as err:
            _log.error(key_values(event="reload_failed", error=str(err), problems="; ".join(err.problems)))
        else:
            if site.paths != self.rebalancer.site.paths:
                _log.error(key_values(event="reload_partly", text="other paths count after a restart only"))
            if site.policy.mode is not Mode.ENFORCE or site.policy.bands is None:
                self.restore_lists()  # while the old file still holds
            self.rebalancer.replace_site(site)
            _log.info(key_values(event="reloaded", mode=site.policy.mode.value))
        return Reloaded(interval_s=self.rebalancer.site.rebalancer.interval_s)

    def _guard(self, what: str, action: Callable[[], None]) -> Outcome:
        try:
            action()
        except FairGpuError as err:
            self.last_error = err
            outcome = outcome_of(err)
            _log.error(key_values(event="failed", what=what, outcome=outcome.value, error=str(err)))
            return outcome
        except Exception as err:  # noqa: BLE001 - the one cycle boundary: log, count, go on
            self.last_error = err
            _log.exception(key_values(event="crashed", what=what))
            return Outcome.CRASHED
        return Outcome.OK


def _log_lists(report: ListReport) -> None:
    if report.restored:
        _log.info(key_values(event="preempt_lists_restored", qos=",".join(report.restored)))
    if report.ranks:
        _log.info(key_values(event="borrow_ranks_restored", qos=",".join(report.ranks)))
    for name, text in report.failed:
        _log.error(key_values(event="preempt_list_not_restored", qos=name, text=text))


def run_daemon(site: SiteFile, client: SlurmClient, *, is_dry_run: bool = False) -> None:
    """Run the rebalancer until SIGTERM or SIGINT.

    Raises
    ------
    AlreadyRunningError
        Another one holds the lease.
    ConfigError
        The state or run directory or the metrics address cannot be used.
    """
    with _daemon(site, client, is_dry_run=is_dry_run) as daemon:
        if not is_dry_run:
            _serve_metrics(daemon.rebalancer)
        _log.info(key_values(event="ready", site=site.path, mode=site.policy.mode.value))
        daemon.run()
        _log.info(key_values(event="stopped"))


def run_once(site: SiteFile, client: SlurmClient, *, is_dry_run: bool = False) -> None:
    """Run one cycle (or, while FairGPU is off, one reset).

    Raises
    ------
    FairGpuError
        What made it fail; besides, as :func:`run_daemon`.
    """
    with _daemon(site, client, is_dry_run=is_dry_run) as daemon:
        daemon.run(once=True)
        if daemon.last_error is not None:
            raise daemon.last_error


@contextmanager
def _daemon(site: SiteFile, client: SlurmClient, *, is_dry_run: bool) -> Iterator[Daemon]:
    signals = Signals()
    signals.install()
    rebalancer = Rebalancer.for_site(site, client, is_dry_run=is_dry_run, is_stopping=lambda: signals.is_stop_asked)
    daemon = Daemon(rebalancer=rebalancer, signals=signals, wait=signals.wake.wait)
    with ExitStack() as stack:
        if not is_dry_run:
            check_directories(site)
            stack.enter_context(hold_lease(site.paths.state_dir, now_s=time.time()))
            stack.callback(rebalancer.history.close)
            memory = recent_memory(site, now_s=time.time())
            rebalancer.sla_memory, rebalancer.band_memory = memory.sla, memory.bands
            daemon.reporter.before = memory.seen
        yield daemon


def recent_memory(site: SiteFile, *, now_s: float) -> Memory:
    """Return what the last kept cycle remembered, so that a restart moves no weight and forgets no reclaim.

    SLA memory counts for ten minutes, band memory for the window in which reclaims are counted. A cycle of the future
    was kept before the clock was set back; it counts. A damaged one is passed over for the one before.
    """
    snapshot = _last_readable(site)
    if snapshot is None:
        return Memory()
    age_s = now_s - snapshot.now_s
    window_s = float("-inf") if site.policy.bands is None else site.policy.bands.window_s
    is_in_window = age_s <= window_s
    return Memory(
        snapshot.plan.sla_memory if age_s <= MEMORY_MAX_AGE_S else (),
        snapshot.plan.band_memory if is_in_window else (),
        snapshot.observation if is_in_window else None,
    )


def _last_readable(site: SiteFile) -> Snapshot | None:
    for path in reversed(snapshot_paths(site.paths.state_dir)):
        try:
            return read_snapshot(path)
        except SnapshotError as err:
            _log.error(key_values(event="memory_lost", error=str(err)))
    return None


def check_directories(site: SiteFile) -> None:
    """Check that the state and run directory can be written.

    Raises
    ------
    ConfigError
        One cannot; the message says what to do.
    """
    problems = tuple(
        f"{directory}: not a directory that this user may write (install -d -o fairgpu -m 0755 {directory})"
        for directory in (site.paths.state_dir, site.paths.run_dir)
        if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK)
    )
    if problems:
        raise ConfigError("the rebalancer cannot keep its files", problems)


def _serve_metrics(rebalancer: Rebalancer) -> None:
    listen = rebalancer.site.rebalancer.metrics_listen
    if listen is None:
        return
    try:
        rebalancer.metrics.serve(listen)
    except OSError as err:
        raise ConfigError(f"rebalancer.metrics_listen {listen}: {err}") from err
