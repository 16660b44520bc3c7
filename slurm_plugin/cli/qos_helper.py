"""``fairgpu qos-helper``: the one process with rights in slurmdbd."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._options import site_option, slurm_bin_dir_option
from slurm_plugin.qos_helper.daemon import run_qos_helper
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from pathlib import Path


@click.command("qos-helper")
@site_option
@slurm_bin_dir_option
def qos_helper_command(site_path: Path | None, slurm_bin_dir: Path | None) -> None:
    """Change ranks, Preempt lists and limits of FairGPU's own QOSes for the rebalancer, until SIGTERM.

    Run it as a user who may change QOSes in slurmdbd (SlurmUser). It listens on a Unix socket for the owner of the
    state directory, accepts nothing but changes of this site's own QOSes, and logs each one. Without it jobs are
    still ordered; ranks and Preempt lists stay as they are, and no job moves into a borrow band that its agent's own
    list lacks.

    \b
    Examples:
      sudo -u slurm fairgpu qos-helper --site /etc/fairgpu/site.yaml

    Exit codes: 0 ended, 1 another one runs, 2 site file or socket.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run_qos_helper(load_site(site_path), slurm_bin_dir=slurm_bin_dir)
