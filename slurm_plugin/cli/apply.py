"""``fairgpu apply``: make slurmdbd as the site file wants it, or as it was."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from policies.site_policy import Mode
from slurm_plugin.bands.accounting import read_accounting
from slurm_plugin.bands.apply import Hands, apply_changes
from slurm_plugin.bands.changes import describe
from slurm_plugin.bands.desired import Desired
from slurm_plugin.bands.diff import compute_difference
from slurm_plugin.bands.journal import open_journal, read_journal
from slurm_plugin.bands.planning import make_band_plan, own_names, require_cluster
from slurm_plugin.bands.remove import Removal, RemovalReport, remove_bands, retire
from slurm_plugin.cli._bands import Reach, print_plan, reach, recorded_qos
from slurm_plugin.cli._options import EXIT_FAILED, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import print_line, talk
from slurm_plugin.errors import ConfigError
from slurm_plugin.rebalancer.lease import lease_holder
from slurm_plugin.site.switch import is_off

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.bands.journal import BandJournal
    from slurm_plugin.bands.planning import BandPlan

_SHOWN_JOBS = 20


@click.command("apply")
@site_option
@slurm_bin_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, do nothing.")
@click.option("--remove", is_flag=True, help="Take everything of ours out of slurmdbd again.")
@click.option("--now", is_flag=True, help="With --remove: do not wait for running jobs, list what remains.")
def apply_command(  # noqa: PLR0917 - click passes them by name
    site_path: Path | None, slurm_bin_dir: Path | None, yes: bool, dry_run: bool, remove: bool, now: bool
) -> None:
    """Write the bands of the site file into slurmdbd: our QOSes, their limits, and who may use them.

    The exact difference is shown first. Former values are kept in the state directory before each change; after a
    failure run it again. Run as root or SlurmUser.

    \b
    Examples:
      sudo fairgpu apply
      sudo fairgpu apply --remove          pending jobs move back, running ones are waited for
      sudo fairgpu apply --remove --now    running jobs keep their QOS; run it again later

    Exit codes: 0 done, 1 refused or jobs remain, 2 usage or site file, 3 Slurm unreachable.
    """
    if now and not remove:
        raise click.UsageError("--now goes with --remove")
    found = reach(site_path, slurm_bin_dir, needs_bands=not remove)
    if remove:
        _remove(found, yes=yes, dry_run=dry_run, is_waiting=not now)
        return
    if dry_run:
        plan = make_band_plan(found.site, found.client, found.runner, read_journal(found.site.paths.state_dir))
        _show(plan)
        return
    with open_journal(found.site.paths.state_dir) as journal:
        _apply(found, journal, yes=yes)


def _show(plan: BandPlan) -> None:
    print_plan(plan)
    if plan.precheck.blockers:
        talk("Nothing was changed: see what is forbidden above.")
        sys.exit(EXIT_FAILED)


def _apply(found: Reach, journal: BandJournal, *, yes: bool) -> None:
    plan = make_band_plan(found.site, found.client, found.runner, journal)
    _show(plan)
    if plan.difference.is_empty:
        return
    _confirm(yes=yes)
    talk("")
    talk("Writing:")
    hands = Hands(runner=found.runner, journal=journal, cluster=plan.accounting.cluster, say=talk)
    apply_changes(plan.difference.changes, plan.accounting, hands)
    report = RemovalReport()
    if plan.difference.retired:
        removal = _removal(found, frozenset(plan.difference.retired), is_waiting=False)
        report = retire(removal, found.client, hands)
    after = make_band_plan(found.site, found.client, found.runner, journal).difference
    _print_removal(report)
    if after.changes:
        for change in after.changes:
            for line in describe(change):
                print_line(f"still different: {line}")
        sys.exit(EXIT_FAILED)
    print_line("Applied: slurmdbd is as the site file wants it.")


def _remove(found: Reach, *, yes: bool, dry_run: bool, is_waiting: bool) -> None:
    site = found.site
    require_cluster(site, found.client.fetch_config())
    _require_quiet(found)
    if dry_run:
        _show_removal(found, read_journal(site.paths.state_dir))
        return
    with open_journal(site.paths.state_dir) as journal:
        names = _show_removal(found, journal)
        if names is None:
            journal.close_restored(at_s=time.time())
            return
        _confirm(yes=yes)
        talk("")
        talk("Writing:")
        hands = Hands(runner=found.runner, journal=journal, cluster=site.policy.cluster.lower(), say=talk)
        report = remove_bands(_removal(found, names, is_waiting=is_waiting), found.client, hands)
    _print_removal(report)
    if report.left or report.refused:
        sys.exit(EXIT_FAILED)
    print_line("Removed: nothing of ours is left in slurmdbd.")


def _show_removal(found: Reach, journal: BandJournal) -> frozenset[str] | None:
    """Print what a removal would do; the QOSes that go, ``None`` if there is nothing to do."""
    accounting = read_accounting(found.runner, found.site.policy.cluster.lower())
    journal.created.update(own_names(found.site))
    names = frozenset(journal.created) & {row.name for row in accounting.qos}
    changes = compute_difference(Desired(qos=(), associations=()), accounting, journal).changes
    if changes or names:
        print_line("Changes that take everything of ours out of slurmdbd:")
        print_line()
    for change in changes:
        for line in describe(change):
            print_line(line)
    for name in sorted(names):
        print_line(f"- qos {name}  (when no job has it)")
    if changes or names:
        return names
    print_line("Nothing of ours is in slurmdbd.")
    return None


def _removal(found: Reach, names: frozenset[str], *, is_waiting: bool) -> Removal:
    bands = found.site.policy.bands
    return Removal(
        names=names,
        template_qos=bands.template_qos if bands is not None else "normal",
        recorded=recorded_qos(found.site),
        is_waiting=is_waiting,
    )


def _require_quiet(found: Reach) -> None:
    """Refuse while a rebalancer would move jobs into the QOSes that go."""
    site = found.site
    holder = lease_holder(site.paths.state_dir)
    if holder is None or is_off(site) or site.policy.bands is None or site.policy.mode is not Mode.ENFORCE:
        return
    raise ConfigError(
        f"the rebalancer (pid {holder.pid}) runs and would move jobs into the QOSes that go; "
        "take the bands section out of the site file and send it SIGHUP, stop it, or run: fairgpu off"
    )


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _confirm(*, yes: bool) -> None:
    if yes:
        return
    if not _is_terminal():
        raise click.UsageError("no terminal to ask on: look at 'fairgpu plan', then use --yes")
    if not click.confirm("Make these changes?", err=True):
        talk("Nothing was changed.")
        sys.exit(EXIT_FAILED)


def _print_removal(report: RemovalReport) -> None:
    if report.moved:
        print_line(f"{len(report.moved)} pending jobs were moved out of our QOSes.")
    for job_id, text in report.refused[:_SHOWN_JOBS]:
        print_line(f"job {job_id} could not be moved: {text}")
    for name, jobs in report.left:
        shown = ", ".join(jobs[:_SHOWN_JOBS]) + (", ..." if len(jobs) > _SHOWN_JOBS else "")
        print_line(f"qos {name} remains: {len(jobs)} jobs still have it ({shown})")
    if report.left:
        print_line("Run the same command again when they have ended.")
