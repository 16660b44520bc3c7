"""``fairgpu plan``: what ``apply`` would change in slurmdbd."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from slurm_plugin.bands.journal import read_journal
from slurm_plugin.bands.planning import make_band_plan
from slurm_plugin.cli._bands import as_record, print_plan, reach
from slurm_plugin.cli._options import EXIT_FAILED, json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line

if TYPE_CHECKING:
    from pathlib import Path

EXIT_DIFFERENT: Final = 4


@click.command("plan")
@site_option
@json_option
@slurm_bin_dir_option
@click.option("--exit-code", is_flag=True, help="Exit with 4 if there is a difference.")
def plan_command(site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None, exit_code: bool) -> None:
    """Show exactly what 'fairgpu apply' would change in slurmdbd; change nothing.

    Lines with + come, with - go, with ~ become another value. Run as root or SlurmUser.

    \b
    Examples:
      sudo fairgpu plan
      sudo fairgpu plan --exit-code --json > plan.json

    Exit codes: 0 shown, 1 something forbids apply, 2 site file, 3 Slurm unreachable, 4 a difference (--exit-code).
    """
    found = reach(site_path, slurm_bin_dir)
    plan = make_band_plan(found.site, found.client, found.runner, read_journal(found.site.paths.state_dir))
    if as_json:
        echo_json(as_record(plan))
    else:
        print_plan(plan)
        if not plan.difference.is_empty:
            fixed = "mend what is forbidden, then: fairgpu plan" if plan.precheck.blockers else "fairgpu apply"
            print_line(f"Next: {fixed}")
    if plan.precheck.blockers:
        sys.exit(EXIT_FAILED)
    if exit_code and not plan.difference.is_empty:
        sys.exit(EXIT_DIFFERENT)
