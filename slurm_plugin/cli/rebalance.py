"""``fairgpu rebalance``: the daemon that keeps the queue in the agreed order."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

import click

from policies.site_policy import Mode
from slurm_plugin.cli._options import EXIT_FAILED, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import print_line, talk
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner
from slurm_plugin.qos_helper.client import SocketQosHelper, helper_socket
from slurm_plugin.rebalancer import preempt_lists
from slurm_plugin.rebalancer.daemon import run_daemon, run_once
from slurm_plugin.rebalancer.liveness import look_for_rebalancer
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.site import SiteFile


@click.command("rebalance")
@site_option
@slurm_bin_dir_option
@click.option("--once", is_flag=True, help="Run one cycle and end.")
@click.option("--dry-run", is_flag=True, help="Decide and log only: no write to Slurm, no file, no lease.")
@click.option("--restore-lists", is_flag=True, help="Without a live rebalancer write the full Preempt lists, and end.")
@click.option("--verbose", is_flag=True, help="Also log decisions that are not written.")
def rebalance_command(
    site_path: Path | None, slurm_bin_dir: Path | None, once: bool, dry_run: bool, verbose: bool, *, restore_lists: bool
) -> None:
    """Observe the cluster, decide, write site factors and bands, report; again every interval, until SIGTERM.

    Runs in the foreground and logs to stderr. SIGHUP reads the site file again. Only in mode enforce, and only
    while FairGPU is not switched off, is anything written to Slurm. With bands, the full Preempt lists come back
    when it ends; --restore-lists is what the watchdog unit calls in case it was killed.

    \b
    Examples:
      fairgpu rebalance --once --dry-run --verbose     what would it do now?
      fairgpu rebalance --site /etc/fairgpu/site.yaml
      fairgpu rebalance --restore-lists                is nobody steering? full lists again

    Exit codes: 0 ended, 1 failed, another one runs or a list stayed as it was, 2 site file or directories, 3 Slurm
    unreachable (--once, --restore-lists).
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    site = load_site(site_path)
    client = CliSlurm(CliSettings(runner=ProcessRunner(bin_dir=slurm_bin_dir)))
    if restore_lists:
        _restore_lists(site, client)
    elif once:
        run_once(site, client, is_dry_run=dry_run)
    else:
        run_daemon(site, client, is_dry_run=dry_run)


def _restore_lists(site: SiteFile, client: CliSlurm) -> None:
    if look_for_rebalancer(site, now_s=time.time()).is_alive:
        talk("A rebalancer runs and steers the Preempt lists: nothing to do.")
        return
    if site.policy.mode is not Mode.ENFORCE:
        talk(f"Mode {site.policy.mode.value}: nothing is steered, nothing to do.")
        return
    report = preempt_lists.restore_lists(site.policy, client, SocketQosHelper(path=helper_socket(site)))
    for name in report.restored:
        print_line(f"{name}: full Preempt list again")
    for name in report.ranks:
        print_line(f"{name}: borrow rank as apply wrote it again")
    for name, text in report.failed:
        talk(f"{name}: {text}")
    if report.failed:
        sys.exit(EXIT_FAILED)
