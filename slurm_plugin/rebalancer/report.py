"""Report: log lines, metrics, history, the standings for the hook and the kept snapshot of one cycle.

A full disk or a locked database is counted and logged; it never stops the cycle.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from policies.plan import SetSiteFactor
from policies.records import Observation
from slurm_plugin.rebalancer.decision_rows import band_row, factor_row
from slurm_plugin.rebalancer.decision_view import Key, job_of, view
from slurm_plugin.rebalancer.job_rows import JobRecorder
from slurm_plugin.rebalancer.journal import Absences, find_gone
from slurm_plugin.rebalancer.logfmt import key_values
from slurm_plugin.rebalancer.outcomes import FAILED, Enacted, EnactOutcome
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.recent_reclaims import RecentReclaims
from slurm_plugin.rebalancer.reclaims import Reclaim, find_reclaims, reclaim_row
from slurm_plugin.rebalancer.snapshot_ring import keep_snapshot
from slurm_plugin.rebalancer.standings import standings_bytes, write_standings
from slurm_plugin.rebalancer.update_budget import compute_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_plugin.rebalancer.cycle import CycleResult, Rebalancer
    from slurm_plugin.rebalancer.reset import ResetReport

_log = logging.getLogger(__name__)

_ASKED: Final = FAILED | {EnactOutcome.WRITTEN, EnactOutcome.GONE}
"""Outcomes of decisions that Slurm was asked about: one log line each at INFO."""

_EVENTS: Final = {
    "SetSiteFactor": "site_factor",
    "SetQos": "move",
    "StartNow": "start_now",
    "SetBorrowRank": "borrow_rank",
    "SetPreemptList": "preempt_list",
}
_JOB_KINDS: Final = ("SetSiteFactor", "SetQos", "StartNow")

_WAITING: Final = frozenset(
    {EnactOutcome.DEFERRED, EnactOutcome.YOUNG, EnactOutcome.PAUSED, EnactOutcome.OFF, EnactOutcome.STOPPED}
)


@dataclass(slots=True)
class Reporter:
    """What reporting remembers: what the history already knows of each job, and what was seen last."""

    jobs: JobRecorder = field(default_factory=JobRecorder)
    told: dict[Key, tuple[str | None, EnactOutcome]] = field(default_factory=dict)
    before: Observation | None = None
    no_factor: Absences = field(default_factory=Absences)
    no_move: Absences = field(default_factory=Absences)
    recent: RecentReclaims = field(default_factory=RecentReclaims)

    def report(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        """Tell everybody about one cycle."""
        log_decisions(result)
        if result.released.n_touched:
            log_restores("released", result.released)
        metrics = rebalancer.metrics
        reclaims = self._reclaims(result)
        for reclaim in reclaims:
            metrics.count("fairgpu_reclaims_total", agent=reclaim.agent, band=reclaim.band.value)
            _log.info(_reclaim_line(result, reclaim))
        if not rebalancer.is_dry_run:
            # Before the snapshot: a successor compares with that, and would not see these again.
            rows = [reclaim_row(one, at_s=result.observation.at_s) for one in reclaims]
            rebalancer.history.add_reclaims(rows)
            self._write_reclaims(rebalancer, rows, now_s=result.observation.at_s)
            self._write_files(rebalancer, result)
            self._write_history(rebalancer, result)
        metrics.show_cycle(result.observation, result.plan)
        metrics.observe_durations(result.durations_s)
        for outcome in EnactOutcome:
            if n_decisions := result.enacted.count(outcome):
                metrics.count("fairgpu_decisions_total", n_decisions, outcome=outcome.value)
        metrics.count("fairgpu_restored_jobs_total", len(result.released.restored))
        metrics.count("fairgpu_cycles_total", outcome=result.outcome.value)
        _log.info(cycle_line(result))

    def _write_reclaims(self, rebalancer: Rebalancer, rows: Sequence[Mapping[str, Any]], *, now_s: float) -> None:
        bands, run_dir = rebalancer.site.policy.bands, rebalancer.site.paths.run_dir
        if bands is not None:
            since_s = now_s - bands.window_s
            _write_counted(rebalancer, "reclaims", lambda: self.recent.publish(run_dir, rows, since_s=since_s))

    def _write_files(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        site = rebalancer.site
        budget = compute_budget(result, rebalancer.enactor.bucket)
        interval_s = site.rebalancer.interval_s
        content = standings_bytes(result.plan, site.policy, interval_s=interval_s, budget=budget)
        _write_counted(rebalancer, "standings", lambda: write_standings(site.paths.run_dir, content))
        _write_counted(rebalancer, "snapshot", lambda: keep_snapshot(site.paths.state_dir, result.snapshot))

    def _write_history(self, rebalancer: Rebalancer, result: CycleResult) -> None:
        history, seen = rebalancer.history, result.observation
        if gone := self.no_factor.find_over(find_gone(history.factors.lines, seen.jobs), now_s=seen.at_s):
            history.factors.forget(gone)
        if gone := self.no_move.find_over(find_gone(history.moves.lines, seen.jobs), now_s=seen.at_s):
            history.moves.forget(gone)
        history.add_cycle(_cycle_row(result))
        news = self._news(result)
        at = {"cycle_id": result.cycle_id, "at_s": seen.at_s}
        history.add_decisions([{**at, **row} for row in map(factor_row, news) if row is not None])
        history.add_band_decisions([{**at, **row} for row in map(band_row, news) if row is not None])
        written = {
            one.decision.job_id: one.decision.new
            for one in result.enacted.enacted
            if one.outcome is EnactOutcome.WRITTEN and isinstance(one.decision, SetSiteFactor)
        }
        self.jobs.record(history, seen, result.snapshot.site_policy, written)
        history.upsert_findings(result.plan.findings, at_s=seen.at_s)
        history.tidy(now_s=seen.at_s)

    def _reclaims(self, result: CycleResult) -> tuple[Reclaim, ...]:
        before, self.before = self.before, result.observation
        if before is None:
            return ()
        return find_reclaims(before, result.observation, OwnQos.from_policy(result.snapshot.site_policy))

    def _news(self, result: CycleResult) -> list[Enacted]:
        """Return decisions that say something new: waiting ones repeat every cycle and are left out."""
        subjects = {view(one.decision).key for one in result.enacted.enacted if job_of(one.decision) is None}
        subjects |= {(kind, job.job_id) for job in result.observation.jobs for kind in _JOB_KINDS}
        self.told = {key: known for key, known in self.told.items() if key in subjects}
        news = []
        for one in result.enacted.enacted:
            seen = view(one.decision)
            told = (seen.new, one.outcome)
            is_repeated = self.told.get(seen.key) == told and one.outcome is not EnactOutcome.WRITTEN
            if one.outcome not in _WAITING and not is_repeated:
                news.append(one)
                self.told[seen.key] = told
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
        _log.log(level, _decision_line(result, one))


def _decision_line(result: CycleResult, one: Enacted) -> str:
    seen = view(one.decision)
    what = "qos" if job_of(one.decision) is None else "job"
    tag = None if seen.tag is None else round(float(seen.tag), 6)
    return key_values(
        **{"event": _EVENTS[seen.kind], "cycle": result.cycle_id, what: seen.subject},
        agent=seen.agent,
        old=seen.old,
        new=seen.new,
        **({"tag": tag} if isinstance(one.decision, SetSiteFactor) else {}),
        outcome=one.outcome.value,
        reason=seen.reason,
        text=one.text,
    )


def _reclaim_line(result: CycleResult, reclaim: Reclaim) -> str:
    return key_values(
        event="reclaim",
        cycle=result.cycle_id,
        job=reclaim.job.job_id,
        agent=reclaim.agent,
        qos=reclaim.job.qos,
        claimant=reclaim.claimant,
        claimant_job=reclaim.claimant_job,
        ran_s=round(reclaim.ran_s, 1),
    )


def log_restores(event: str, report: ResetReport) -> None:
    """Log one line for a reset or release, and one per job that Slurm refused to change."""
    restored, gone, failed = len(report.restored), len(report.gone), len(report.failed)
    _log.info(key_values(event=event, restored=restored, gone=gone, failed=failed, moved=len(report.moved)))
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
