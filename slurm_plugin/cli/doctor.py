"""``fairgpu doctor``: whether this Slurm is ready, and which line is missing."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._options import EXIT_FAILED, json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line, print_table, talk
from slurm_plugin.client.cli import CliSettings, CliSlurm
from slurm_plugin.client.command import ProcessRunner
from slurm_plugin.doctor import Check, Facts, Status, run_checks
from slurm_plugin.doctor.check import NO_ANSWER
from slurm_plugin.doctor.collect import collect_facts
from slurm_plugin.priority_factors import factor_maxima
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from pathlib import Path


@click.command("doctor")
@site_option
@json_option
@slurm_bin_dir_option
def doctor_command(site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None) -> None:
    """Check Slurm, this host and the site file against each other; change nothing.

    Run it as root on the controller: only root and SlurmUser may ask the hook server.

    \b
    Examples:
      sudo fairgpu doctor
      fairgpu doctor --json | jq '.checks[] | select(.status == "fail")'

    Exit codes: 0 nothing fails, 1 a check fails, 2 the site file is wrong.
    """
    site = load_site(site_path)
    runner = ProcessRunner(bin_dir=slurm_bin_dir)
    facts = collect_facts(site, CliSlurm(CliSettings(runner=runner)), runner)
    checks = run_checks(facts)
    if as_json:
        echo_json({"checks": checks, "priority_factors": dict(_factors(facts))})
    else:
        print_report(facts, checks)
    if any(check.status is Status.FAIL for check in checks):
        sys.exit(EXIT_FAILED)


def print_report(facts: Facts, checks: tuple[Check, ...]) -> None:
    """Print the checks, the priority factors, and what to do about each complaint."""
    print_table("", ("status", "check", "found"), [(check.status.value, check.name, check.found) for check in checks])
    if facts.config:
        print_line()
        print_table("Largest contribution to a job's priority", ("factor", "maximum"), _factors(facts))
    for check in checks:
        if check.status is not Status.OK and check.why != NO_ANSWER:
            _print_complaint(check)
    if any("slurm.conf:" in check.fix for check in checks if check.status is not Status.OK):
        print_line()
        print_line("After a change of slurm.conf: scontrol reconfigure, or restart slurmctld where that is not enough.")
    counts = Counter(check.status.value for check in checks)
    talk(", ".join(f"{counts[status.value]} {status.value}" for status in Status))


def _print_complaint(check: Check) -> None:
    first, *more = check.why.splitlines() or [""]
    print_line()
    print_line(f"{check.status.value} {check.name}: {first}")
    for line in (*more, *check.fix.splitlines()):
        print_line(f"    {line}")


def _factors(facts: Facts) -> tuple[tuple[str, int], ...]:
    return (("site factor (ours)", facts.site.policy.factor_scale), *factor_maxima(facts.config))
