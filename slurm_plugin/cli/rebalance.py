"""``fairgpu rebalance``: the daemon that keeps the queue in the agreed order."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._options import site_option, slurm_bin_dir_option
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner
from slurm_plugin.rebalancer.daemon import run_daemon, run_once
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from pathlib import Path


@click.command("rebalance")
@site_option
@slurm_bin_dir_option
@click.option("--once", is_flag=True, help="Run one cycle and end.")
@click.option("--dry-run", is_flag=True, help="Decide and log only: no write to Slurm, no file, no lease.")
@click.option("--verbose", is_flag=True, help="Also log decisions that are not written.")
def rebalance_command(
    site_path: Path | None, slurm_bin_dir: Path | None, once: bool, dry_run: bool, verbose: bool
) -> None:
    """Observe the cluster, decide, write site factors, report; again every interval, until SIGTERM.

    Runs in the foreground and logs to stderr. SIGHUP reads the site file again. Only in mode enforce, and only
    while FairGPU is not switched off, is anything written to Slurm.

    \b
    Examples:
      fairgpu rebalance --once --dry-run --verbose     what would it do now?
      fairgpu rebalance --site /etc/fairgpu/site.yaml

    Exit codes: 0 ended, 1 failed or another one runs, 2 site file or directories, 3 Slurm unreachable (--once).
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    site = load_site(site_path)
    client = CliSlurm(CliSettings(runner=ProcessRunner(bin_dir=slurm_bin_dir)))
    if once:
        run_once(site, client, is_dry_run=dry_run)
    else:
        run_daemon(site, client, is_dry_run=dry_run)
