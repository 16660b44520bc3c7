"""The small cluster with bands: risk is owed 10 of 16 GPUs, rec 6; a helper that changes the fake's QOSes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from policies.quota.layout import HIGHEST_BORROW_PRIORITY, OPPORTUNISTIC_PRIORITY, full_preempt_list
from policies.quota.names import Band
from policies.quota.nominal import compute_nominals
from policies.records import QosRecord
from slurm_plugin.qos_helper.client import ChangeOutcome, HelperSilentError, HelperUnavailableError
from slurm_plugin.qos_helper.request import QosChange, Setting, Verdict
from slurm_plugin.qos_helper.rules import HelperRules, RefusedError
from tests.slurm_plugin.rebalancer.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_plugin.client import FakeSlurm

RISK, REC = "fg_fake_risk", "fg_fake_rec"
FULL_RISK = ("fg_fake_rec_borrow", "fg_fake_rec_opp", "fg_fake_risk_borrow", "fg_fake_risk_opp")
"""Preempt list of risk's guaranteed QOS when nobody steers."""


class FakeHelper:
    """Keeps the real helper's rules; may be away or fail."""

    def __init__(self, slurm: FakeSlurm, rules: HelperRules) -> None:
        self._slurm, self._rules = slurm, rules
        self.is_away = False
        self.n_silences = 0
        self.is_silent = False
        self.failure = ""
        self.verdict = Verdict.FAILED
        self.asked: list[QosChange] = []

    def apply(self, changes: Sequence[QosChange]) -> Sequence[ChangeOutcome]:
        if self.is_away:
            raise HelperUnavailableError("/run/fairgpu-qos/helper.sock: No such file or directory")
        if self.is_silent:
            self.n_silences += 1
            raise HelperSilentError("no answer within 15 s")
        return [self._apply(change) for change in changes]

    def _apply(self, change: QosChange) -> ChangeOutcome:
        self.asked.append(change)
        try:
            self._rules.check(change)
        except RefusedError as err:
            return ChangeOutcome(change=change, verdict=Verdict.REFUSED, text=str(err))
        if self.failure:
            return ChangeOutcome(change=change, verdict=self.verdict, text=self.failure)
        for name in change.names:
            record = self._slurm.qos(name)
            if change.setting is Setting.PRIORITY:
                record = replace(record, priority=int(change.value))
            elif change.setting is Setting.PREEMPT:
                record = replace(record, preempt=tuple(filter(None, change.value.split(","))))
            self._slurm.set_qos(record)
        return ChangeOutcome(change=change, verdict=Verdict.DONE)


class BandWorld(World):
    """A world after ``fairgpu apply``."""

    MORE: ClassVar[str] = "bands: {}\n"
    is_applied = False

    def restart(self, *, is_dry_run: bool = False) -> None:
        """Put a rebalancer without memory in the old one's place; QOSes are made once."""
        super().restart(is_dry_run=is_dry_run)
        if not self.is_applied:
            self.apply()
            self.is_applied = True
        self.helper = FakeHelper(self.slurm, HelperRules.from_policy(self.site.policy))
        self.rebalancer.enactor.helper = self.helper

    def apply(self) -> None:
        """Make the QOSes as ``fairgpu apply`` does."""
        self.slurm.set_qos(QosRecord(name="normal"))
        quotas = compute_nominals(self.site.policy, self.slurm.observe().nodes)
        for quota in quotas:
            assert quota.guaranteed_qos and quota.borrow_qos and quota.opportunistic_qos  # noqa: PT018 - one setting
            for name, band, priority, limits in (
                (quota.guaranteed_qos, Band.GUARANTEED, 100, quota.nominal or ()),
                (quota.borrow_qos, Band.BORROW, HIGHEST_BORROW_PRIORITY, quota.borrow_cap),
                (quota.opportunistic_qos, Band.OPPORTUNISTIC, OPPORTUNISTIC_PRIORITY, ()),
            ):
                self.slurm.set_qos(
                    QosRecord(
                        name=name,
                        priority=priority,
                        preempt=full_preempt_list(quotas, quota.agent, band),
                        preempt_mode="requeue",
                        grp_tres=limits,
                    )
                )

    def qos_of(self, number: int | str) -> str:
        """QOS in which a job waits or runs."""
        return next(job.qos for job in self.slurm.observe().jobs if job.job_id == str(number))
