"""``fairgpu hook-server``: answer slurmctld's submit hook."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._fresh import make_client
from slurm_plugin.cli._options import site_option, slurm_bin_dir_option
from slurm_plugin.hook.daemon import run_hook_server
from slurm_plugin.site.load import load_site

if TYPE_CHECKING:
    from pathlib import Path


@click.command("hook-server")
@site_option
@slurm_bin_dir_option
@click.option("--verbose", is_flag=True, help="Log more.")
def hook_server_command(site_path: Path | None, slurm_bin_dir: Path | None, verbose: bool) -> None:
    """Answer slurmctld's submit hook on a Unix socket until SIGTERM.

    Runs in the foreground and logs to stderr. One server per socket; a second one exits with code 1. Without
    the server every submission is accepted unchanged, and the rebalancer adopts the jobs later.

    \b
    Examples:
      fairgpu hook-server --site /etc/fairgpu/site.yaml
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    run_hook_server(load_site(site_path), make_client(slurm_bin_dir))
