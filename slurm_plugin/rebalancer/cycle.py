"""One cycle, four verbs: observe, decide, enact, report. Each is a function that a test calls alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from policies.canonical import plan_digest
from policies.cycle import decide
from policies.plan import BandMemory, Plan, SlaMemory
from policies.site_policy import Mode
from slurm_plugin.client import SlurmClient
from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmUnavailable, StaleStateError
from slurm_plugin.metrics import RebalancerMetrics
from slurm_plugin.qos_helper.client import QosHelper, SocketQosHelper, helper_socket
from slurm_plugin.rebalancer.daemon_state import Outcome
from slurm_plugin.rebalancer.enact import Enactor
from slurm_plugin.rebalancer.history import FILE_NAME, History
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.rebalancer.outcomes import EnactReport
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.rate_limit import TokenBucket
from slurm_plugin.rebalancer.reset import ResetReport
from slurm_plugin.rebalancer.writers import EnactRules
from slurm_plugin.site import SiteFile
from slurm_plugin.site.switch import is_off
from slurm_plugin.snapshot import Snapshot

if TYPE_CHECKING:
    from policies.records import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """What a cycle did.

    Attributes
    ----------
    outcome : Outcome
        ``STALE`` if the observation was too doubtful to act on; ``error`` says why.
    released : ResetReport
        Jobs that left the agents and got their former factor back.
    durations_s : dict of str to float
        Seconds by verb.
    """

    snapshot: Snapshot
    enacted: EnactReport
    released: ResetReport
    outcome: Outcome
    error: Exception | None
    durations_s: dict[str, float]
    digest: str

    @property
    def cycle_id(self) -> str:
        """Id of the cycle, on every log line and row."""
        return self.snapshot.cycle_id

    @property
    def observation(self) -> Observation:
        """What was observed."""
        return self.snapshot.observation

    @property
    def plan(self) -> Plan:
        """What was decided."""
        return self.snapshot.plan


@dataclass(slots=True, kw_only=True)
class Rebalancer:
    """What lives from cycle to cycle.

    Attributes
    ----------
    now : callable
        Seconds since the epoch.
    is_dry_run : bool
        Decide and report, write nothing to Slurm, whatever the mode.
    """

    site: SiteFile
    client: SlurmClient
    history: History
    metrics: RebalancerMetrics
    enactor: Enactor
    now: Callable[[], float] = time.time
    is_dry_run: bool = False
    groups: GroupCache = field(default_factory=GroupCache)
    sla_memory: tuple[SlaMemory, ...] = ()
    band_memory: tuple[BandMemory, ...] = ()

    @classmethod
    def for_site(
        cls,
        site: SiteFile,
        client: SlurmClient,
        *,
        now: Callable[[], float] = time.time,
        is_dry_run: bool = False,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> Rebalancer:
        """Rebalancer of a site with an empty memory and the QOS helper behind the site's socket."""
        metrics = RebalancerMetrics()
        history = History(
            site.paths.state_dir / FILE_NAME,
            on_error=lambda: metrics.count("fairgpu_history_errors_total"),
            clock=now,
        )
        enactor = Enactor(
            client=client,
            helper=SocketQosHelper(path=helper_socket(site)),
            history=history,
            bucket=_bucket(site, now()),
            is_off=lambda: is_off(site),
            is_stopping=is_stopping,
        )
        return cls(
            site=site,
            client=client,
            history=history,
            metrics=metrics,
            enactor=enactor,
            now=now,
            is_dry_run=is_dry_run,
        )

    @property
    def helper(self) -> QosHelper:
        """Who changes QOSes for us."""
        return self.enactor.helper

    def replace_site(self, site: SiteFile) -> None:
        """Take a newly read site file; state and run directory stay those of the start."""
        self.site = replace(site, paths=self.site.paths)
        self.enactor.bucket = _bucket(site, self.now())

    def run_cycle(self) -> CycleResult:
        """Observe, decide and enact; the caller reports.

        Raises
        ------
        SlurmError
            Slurm could not be observed. An error while writing is in the result instead.
        """
        clock = _StopWatch()
        seen = observe(self.client, self.site, self.groups)
        clock.lap("observe")
        now_s = self.now()
        plan = decide(seen, self.site.policy, self.sla_memory, self.band_memory, now=seen.at_s)
        snapshot = Snapshot(
            cycle_id=make_cycle_id(now_s),
            now_s=seen.at_s,
            observation=seen,
            site_policy=self.site.policy,
            sla_memory=self.sla_memory,
            band_memory=self.band_memory,
            plan=plan,
        )
        self.sla_memory, self.band_memory = plan.sla_memory, plan.band_memory
        clock.lap("decide")
        enacted, outcome = self._enact(plan, seen, now_s)
        released, error = self._release(seen, now_s) if outcome is Outcome.OK else (ResetReport(), enacted.error)
        clock.lap("enact")
        return CycleResult(
            snapshot=snapshot,
            enacted=enacted,
            released=released,
            outcome=outcome if error is enacted.error else outcome_of(error),
            error=error,
            durations_s=clock.laps_s,
            digest=plan_digest(plan),
        )

    def _enact(self, plan: Plan, seen: Observation, now_s: float) -> tuple[EnactReport, Outcome]:
        mode = Mode.OBSERVE if self.is_dry_run else self.site.policy.mode
        policy = self.site.policy
        rules = EnactRules(mode=mode, scale=policy.factor_scale, own=OwnQos.from_policy(policy))
        try:
            report = self.enactor.enact(plan, seen, rules=rules, now_s=now_s)
        except StaleStateError as err:
            return EnactReport.refused(plan, err), Outcome.STALE
        return report, outcome_of(report.error)

    def _release(self, seen: Observation, now_s: float) -> tuple[ResetReport, SlurmError | None]:
        if self.is_dry_run or self.site.policy.mode is not Mode.ENFORCE:
            return ResetReport(), None
        try:
            return self.enactor.release(seen, self.site.policy, now_s=now_s), None
        except SlurmError as err:
            return ResetReport(), err


def outcome_of(error: Exception | None) -> Outcome:
    """Return how a cycle ended that met ``error``."""
    match error:
        case None:
            return Outcome.OK
        case SlurmUnavailable():
            return Outcome.UNAVAILABLE
        case SlurmAuthError():
            return Outcome.DENIED
        case StaleStateError():
            return Outcome.STALE
        case _:
            return Outcome.CRASHED


def make_cycle_id(now_s: float) -> str:
    """Return a cycle id that sorts by time.

    Examples
    --------
    >>> make_cycle_id(1_700_000_000.125)
    '20231114T221320.125'
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s))
    return f"{stamp}.{int(now_s * 1000) % 1000:03d}"


class _StopWatch:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.laps_s: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps_s[name] = now - self._last
        self._last = now


def _bucket(site: SiteFile, now_s: float) -> TokenBucket:
    settings = site.rebalancer
    return TokenBucket.full(rate_per_s=settings.updates_per_second, interval_s=settings.interval_s, now_s=now_s)
