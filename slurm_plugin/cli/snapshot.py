"""``fairgpu snapshot``: one cycle as a file; a bug report is such a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurm_plugin.cli._fresh import fresh_snapshot, make_client
from slurm_plugin.cli._options import site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import talk
from slurm_plugin.errors import FairGpuError
from slurm_plugin.rebalancer.snapshot_ring import last_snapshot
from slurm_plugin.site import load_site
from slurm_plugin.snapshot import Snapshot, snapshot_bytes, write_snapshot


@click.command("snapshot")
@site_option
@slurm_bin_dir_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write here (a name that ends in .gz is compressed); default: stdout.",
)
@click.option("--last", is_flag=True, help="The rebalancer's last cycle instead of a fresh one.")
def snapshot_command(site_path: Path | None, slurm_bin_dir: Path | None, output: Path | None, last: bool) -> None:
    """Write what one cycle reads, knows and decides. Nothing in Slurm is changed.

    The file holds job names, user names and comments: look at it before you send it.

    \b
    Examples:
      fairgpu snapshot -o cycle.json.gz
      fairgpu snapshot --last | python3 -m json.tool
      fairgpu replay cycle.json.gz

    Exit codes: 0 done, 1 failed, 2 site file, 3 Slurm unreachable.
    """
    site = load_site(site_path)
    snapshot = _last(site.paths.state_dir) if last else fresh_snapshot(site, make_client(slurm_bin_dir))
    if output is None:
        sys.stdout.write(snapshot_bytes(snapshot).decode("ascii"))
        return
    try:
        write_snapshot(output, snapshot)
    except OSError as err:
        raise FairGpuError(f"{output}: {err.strerror or err}") from err
    talk(f"Cycle {snapshot.cycle_id}: {len(snapshot.observation.jobs)} jobs, {len(snapshot.plan.decisions)} decisions.")


def _last(state_dir: Path) -> Snapshot:
    snapshot = last_snapshot(state_dir)
    if snapshot is None:
        raise FairGpuError(f"no rebalancer has kept a cycle in {state_dir} that this user may read")
    return snapshot
