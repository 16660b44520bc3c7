"""All checks, in the order in which they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor import access_checks, band_checks, hook_checks, host_checks, priority_checks, slurm_checks

if TYPE_CHECKING:
    from slurm_plugin.doctor.check import Check, CheckRule
    from slurm_plugin.doctor.facts import Facts

ALL_CHECKS: Final[tuple[CheckRule, ...]] = (
    *slurm_checks.CHECKS,
    *priority_checks.CHECKS,
    *access_checks.CHECKS,
    *band_checks.CHECKS,
    *hook_checks.CHECKS,
    *host_checks.CHECKS,
)


def run_checks(facts: Facts) -> tuple[Check, ...]:
    """Return every check's answer, in the order of ``ALL_CHECKS``."""
    return tuple(rule.run(facts) for rule in ALL_CHECKS)
