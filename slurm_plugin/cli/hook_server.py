"""``fairgpu hook-server``: answer slurmctld's submit hook."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from slurm_plugin.hook.daemon import run_hook_server
from slurm_plugin.site.load import load_site


@click.command("hook-server")
@click.option(
    "--site",
    "site_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Site file; default: $FAIRGPU_SITE, else /etc/fairgpu/site.yaml.",
)
@click.option("--verbose", is_flag=True, help="Log more.")
def hook_server_command(site_path: Path | None, verbose: bool) -> None:
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
    run_hook_server(load_site(site_path))
