"""Report: log lines, metrics, history, the standings for the hook and the kept snapshot of one cycle.

A full disk or a locked database is counted and logged; it never stops the cycle.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from policies.records import JobId
from slurm_plugin.rebalancer.enact import FAILED, Enacted, EnactOutcome
from slurm_plugin.rebalancer.job_rows import JobRecorder
from slurm_plugin.rebalancer.journal import find_gone
from slurm_plugin.rebalancer.logfmt import key_values
from slurm_plugin.rebalancer.snapshot_ring import keep_snapshot
from slurm_plugin.rebalancer.standings import standings_bytes, write_standings

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_plugin.rebalancer.cycle import CycleResult, Rebalancer
    from slurm_plugin.rebalancer.reset import ResetReport

_log = logging.getLogger(__name__)

_ASKED: Final = FAILED | {EnactOutcome.WRITTEN, EnactOutcome.GONE}
"""Outcomes of decisions that Slurm was asked about: one log line each at INFO."""

_WAITING: Final = frozenset(
    {EnactOutcome.DEFERRED, EnactOutcome.YOUNG, EnactOutcome.PAUSED, EnactOutcome.OFF, EnactOutcome.STOPPED}
)


@dataclass(slots=True)
class Reporter:
    """What reporting remembers: what the history already knows of each job."""

    jobs: JobRecorder = field(default_factory=JobRecorder)
    told: dict[JobId, tuple[int, EnactOutcome]] = field(default_factory=dict)

    def report(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        """Tell everybody about one cycle."""
        log_decisions(result)
        if result.released.n_touched:
            log_restores("released", result.released)
        if not rebalancer.is_dry_run:
            self._write_files(rebalancer, result)
            self._write_history(rebalancer, result)
        metrics = rebalancer.metrics
        metrics.show_cycle(result.observation, result.plan)
        metrics.observe_durations(result.durations_s)
        for outcome in EnactOutcome:
            if n_decisions := result.enacted.count(outcome):
                metrics.count("fairgpu_decisions_total", n_decisions, outcome=outcome.value)
        metrics.count("fairgpu_restored_jobs_total", len(result.released.restored))
        metrics.count("fairgpu_cycles_total", outcome=result.outcome.value)
        _log.info(cycle_line(result))

    def _write_files(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        site = rebalancer.site
        content = standings_bytes(result.plan, site.policy, interval_s=site.rebalancer.interval_s)
        _write_counted(rebalancer, "standings", lambda: write_standings(site.paths.run_dir, content))
        _write_counted(rebalancer, "snapshot", lambda: keep_snapshot(site.paths.state_dir, result.snapshot))

    def _write_history(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        history, seen = rebalancer.history, result.observation
        if gone := find_gone(history.journal, seen.jobs):
            history.forget(gone)
        history.add_cycle(_cycle_row(result))
        history.add_decisions([_decision_row(result, one) for one in self._news(result)])
        written = {
            one.decision.job_id: one.decision.new
            for one in result.enacted.enacted
            if one.outcome is EnactOutcome.WRITTEN
        }
        self.jobs.record(history, seen, result.snapshot.site_policy, written)
        history.upsert_findings(result.plan.findings, at_s=seen.at_s)
        history.tidy(now_s=seen.at_s)

    def _news(self, result: CycleResult) -> list[Enacted]:
        """Return decisions that say something new: waiting ones repeat every cycle and are left out."""
        alive = {job.job_id for job in result.observation.jobs}
        self.told = {job_id: known for job_id, known in self.told.items() if job_id in alive}
        news = []
        for one in result.enacted.enacted:
            key = (one.decision.new, one.outcome)
            is_repeated = self.told.get(one.decision.job_id) == key and one.outcome is not EnactOutcome.WRITTEN
            if one.outcome not in _WAITING and not is_repeated:
                news.append(one)
                self.told[one.decision.job_id] = key
        return news


def cycle_line(result: CycleResult) -> str:
    """Return the one canonical log line of a cycle."""
    report, seen = result.enacted, result.observation
    pairs: dict[str, Any] = {
        "event": "cycle",
        "cycle": result.cycle_id,
        "outcome": result.outcome.value,
        "mode": result.snapshot.site_policy.mode.value,
        "jobs": len(seen.jobs),
        "pending": sum(job.state.is_pending for job in seen.jobs),
        "decisions": len(result.plan.decisions),
        "written": report.count(EnactOutcome.WRITTEN),
        "waiting": report.count(*_WAITING),
        "failed": report.count(*FAILED),
        "findings": len(result.plan.findings),
        **{f"{verb}_s": round(seconds, 4) for verb, seconds in result.durations_s.items()},
        "plan": result.digest[:16],
    }
    if result.error is not None:
        pairs["error"] = str(result.error)
    return key_values(**pairs)


def log_decisions(result: CycleResult) -> None:
    """Log one line per decision that Slurm was asked about, or would have been in mode enforce (at DEBUG)."""
    for one in result.enacted.enacted:
        level = logging.INFO if one.outcome in _ASKED else logging.DEBUG
        if not _log.isEnabledFor(level):
            continue
        decision = one.decision
        line = key_values(
            event="site_factor",
            cycle=result.cycle_id,
            job=decision.job_id,
            agent=decision.agent,
            old=decision.old,
            new=decision.new,
            tag=None if decision.tag is None else round(float(decision.tag), 6),
            outcome=one.outcome.value,
            reason=decision.reason,
            text=one.text,
        )
        _log.log(level, line)


def log_restores(event: str, report: ResetReport) -> None:
    """Log one line for a reset or release, and one per job that Slurm refused to change."""
    restored, gone, failed = len(report.restored), len(report.gone), len(report.failed)
    _log.info(key_values(event=event, restored=restored, gone=gone, failed=failed))
    for job_id, text in report.failed:
        _log.error(key_values(event="restore_failed", job=job_id, text=text))


def _write_counted(rebalancer: Rebalancer, file: str, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as err:
        rebalancer.metrics.count("fairgpu_output_errors_total", file=file)
        _log.error(key_values(event="write_failed", file=file, error=str(err)))


def _cycle_row(result: CycleResult) -> dict[str, Any]:
    report = result.enacted
    return {
        "cycle_id": result.cycle_id,
        "at_s": result.observation.at_s,
        "outcome": result.outcome.value,
        "mode": result.snapshot.site_policy.mode.value,
        "duration_s": sum(result.durations_s.values()),
        "n_jobs": len(result.observation.jobs),
        "n_decisions": len(result.plan.decisions),
        "n_written": report.count(EnactOutcome.WRITTEN),
        "n_deferred": report.count(*_WAITING),
        "n_failed": report.count(*FAILED),
        "plan_digest": result.digest,
        "text": "" if result.error is None else str(result.error),
    }


def _decision_row(result: CycleResult, one: Enacted) -> dict[str, Any]:
    decision = one.decision
    return {
        "cycle_id": result.cycle_id,
        "at_s": result.observation.at_s,
        "job_id": decision.job_id,
        "agent": decision.agent,
        "kind": type(decision).__name__,
        "reason": decision.reason,
        "tag": None if decision.tag is None else str(decision.tag),
        "old": decision.old,
        "new": decision.new,
        "is_adoption": int(decision.is_adoption),
        "outcome": one.outcome.value,
        "text": one.text,
    }
