"""``fairgpu off`` and ``fairgpu on``: stop every effect now, and resume."""

from __future__ import annotations

import getpass
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from policies.site_policy import Mode
from slurm_plugin.cli._options import EXIT_FAILED, json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line, talk
from slurm_plugin.client.cli import CliSettings, CliSlurm
from slurm_plugin.client.command import ProcessRunner
from slurm_plugin.errors import ConfigError, SlurmError
from slurm_plugin.qos_helper.client import SocketQosHelper, helper_socket
from slurm_plugin.rebalancer.history import FILE_NAME as HISTORY_NAME
from slurm_plugin.rebalancer.liveness import look_for_rebalancer
from slurm_plugin.rebalancer.reset import ResetReport, reset_effects
from slurm_plugin.site import SiteFile, load_site
from slurm_plugin.site.durations import format_duration
from slurm_plugin.site.switch import is_off, off_reason, turn_off, turn_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policies.records import JobId
    from slurm_plugin.client.protocol import UpdateOutcome
    from slurm_plugin.rebalancer.lease import LeaseHolder

_SHOWN_FAILURES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OffReport:
    """What ``fairgpu off`` did.

    Attributes
    ----------
    rebalancer_pid : int or None
        The rebalancer that resets the factors in its next cycle; ``None`` if none can be relied on.
    reset : ResetReport or None
        What we reset ourselves; ``None`` if the rebalancer does it or ``--no-reset`` was given.
    """

    is_off: bool
    reason: str
    rebalancer_pid: int | None
    reset: ResetReport | None


class _TalkingSlurm(CliSlurm):
    """The usual client, which says what it writes: a large reset takes a while."""

    def set_site_factors(self, changes: Sequence[tuple[JobId, int]]) -> Sequence[UpdateOutcome]:
        talk(f"Resetting the site factor of {len(changes)} jobs ...")
        return super().set_site_factors(changes)


@click.command("off")
@site_option
@json_option
@slurm_bin_dir_option
@click.option("--reason", default="", metavar="TEXT", help="Shown by status and doctor.")
@click.option("--no-reset", is_flag=True, help="Do not reset site factors here, even if no rebalancer runs.")
def off_command(site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None, reason: str, no_reset: bool) -> None:
    """Stop every effect of FairGPU: within one cycle nothing of ours changes a job or an order any more.

    The hook answers "unchanged", the rebalancer gives every job its former site factor and every waiting job its
    former QOS back and restores the full Preempt lists. Without a running rebalancer this command does that itself.
    Jobs are neither held nor ended.

    \b
    Examples:
      sudo -u fairgpu fairgpu off --reason "storage upgrade"

    Exit codes: 0 off, 1 off but some jobs were refused, 2 site file or permission, 3 off but Slurm unreachable.
    """
    site = _load(site_path)
    was_off = is_off(site)
    turn_off(site, f"{reason or 'no reason given'} (by {_who()})")
    talk("FairGPU was off already." if was_off else "FairGPU is off.")
    # Whoever asks twice wants to be sure; a rebalancer that is off runs no cycles that could show it is well.
    holder = None if was_off else _live_rebalancer(site)
    reset = None if holder is not None or no_reset else _reset(site, slurm_bin_dir)
    pid = holder.pid if holder is not None else None
    report = OffReport(is_off=True, reason=off_reason(site) or "", rebalancer_pid=pid, reset=reset)
    if as_json:
        echo_json(report)
    else:
        _print_off(site, report)
    if reset is not None and reset.failed:
        sys.exit(EXIT_FAILED)


@click.command("on")
@site_option
@json_option
def on_command(site_path: Path | None, as_json: bool) -> None:
    """Let FairGPU work again after 'fairgpu off'.

    \b
    Examples:
      sudo -u fairgpu fairgpu on
    """
    site = _load(site_path)
    was_off = turn_on(site)
    holder = look_for_rebalancer(site, now_s=time.time()).holder
    if as_json:
        pid = holder.pid if holder is not None else None
        echo_json({"is_off": is_off(site), "was_off": was_off, "rebalancer_pid": pid})
        return
    print_line("FairGPU is on." if was_off else "FairGPU was on already.")
    print_line(_resumption(site, holder))


def _load(path: Path | None) -> SiteFile:
    try:
        return load_site(path)
    except ConfigError:
        talk("The switch is a plain file: creating or removing 'off' in the state directory does the same.")
        raise


def _who() -> str:
    return os.environ.get("SUDO_USER") or getpass.getuser()


def _live_rebalancer(site: SiteFile) -> LeaseHolder | None:
    """Return the rebalancer that runs cycles; one that holds the lease but stands still counts as none."""
    found = look_for_rebalancer(site, now_s=time.time())
    if found.holder is not None and found.is_stuck:
        pid = found.holder.pid
        talk(f"The rebalancer (pid {pid}) holds the lease but finished no cycle for {found.idle_s:.0f} s.")
    return found.holder if found.is_alive else None


def _reset(site: SiteFile, slurm_bin_dir: Path | None) -> ResetReport:
    talk("Reading the queue ...")
    _prepare_history(site.paths.state_dir)
    client = _TalkingSlurm(CliSettings(runner=ProcessRunner(bin_dir=slurm_bin_dir)))
    try:
        return reset_effects(site, client, helper=SocketQosHelper(path=helper_socket(site)))
    except SlurmError:
        talk("The switch is set, but site factors and bands may remain. Run 'fairgpu off' again.")
        raise


def _prepare_history(state_dir: Path) -> None:
    """As root, leave no file behind that the directory's owner could not write: SQLite keeps the owner it finds."""
    owner = state_dir.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    try:
        descriptor = os.open(state_dir / HISTORY_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        return
    os.fchown(descriptor, owner.st_uid, owner.st_gid)
    os.close(descriptor)


def _print_off(site: SiteFile, report: OffReport) -> None:
    interval = format_duration(site.rebalancer.interval_s)
    if report.rebalancer_pid is not None:
        print_line(f"The rebalancer (pid {report.rebalancer_pid}) resets site factors within {interval}.")
        print_line("To make sure, run 'fairgpu off' once more after that: it looks for itself.")
    if report.reset is not None:
        done = report.reset
        print_line(
            f"{len(done.restored)} jobs have their former site factor again, "
            f"{len(done.gone)} ended meanwhile, {len(done.failed)} were refused."
        )
        if site.policy.bands is not None:
            _print_bands(done)
        for job_id, text in done.failed[:_SHOWN_FAILURES]:
            print_line(f"  job {job_id}: {text}")
    elif report.rebalancer_pid is None:
        print_line("Site factors stay as they are (--no-reset).")
    print_line("Resume with: fairgpu on")


def _print_bands(done: ResetReport) -> None:
    print_line(f"{len(done.moved)} pending jobs wait in their former QOS again; running ones keep theirs.")
    if done.lists.restored:
        print_line(f"Full Preempt lists again: {', '.join(done.lists.restored)}.")
    if done.lists.ranks:
        print_line(f"Borrow ranks as apply wrote them again: {', '.join(done.lists.ranks)}.")
    for name, text in done.lists.failed[:_SHOWN_FAILURES]:
        print_line(f"  QOS {name} is not as apply wrote it: {text}")


def _resumption(site: SiteFile, holder: LeaseHolder | None) -> str:
    if site.policy.mode is not Mode.ENFORCE:
        return f"Mode {site.policy.mode.value}: decisions are recorded, nothing is changed."
    if holder is None:
        return "The hook resumes at once. No rebalancer runs; start it: fairgpu rebalance"
    interval = format_duration(site.rebalancer.interval_s)
    return f"The hook resumes at once, the rebalancer (pid {holder.pid}) within {interval}."
