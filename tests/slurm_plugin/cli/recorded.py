"""A recorded cycle for the command-line tests: two agents on 16 GPUs, five jobs, one refused tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from policies.cycle import decide
from policies.records import JobId
from slurm_plugin.cli.main import cli
from slurm_plugin.snapshot import Snapshot, write_snapshot
from tests.slurm_plugin.rebalancer.world import START_S, make_job, make_site, make_slurm

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.client import FakeSlurm


def busy_slurm() -> FakeSlurm:
    """``risk`` runs two jobs (1, 2) and has 4 and 5 waiting, ``rec`` has 3 and the impossible 6."""
    slurm = make_slurm(
        make_job(1),
        make_job(2),
        make_job(3, "rec", comment="agent=risk"),
        make_job(4, priority=2000, site_factor=40_000),
        make_job(5, "risk", reason="JobHeldUser", priority=0),
        make_job(6, "rec", tres=(("cpu", 4), ("gres/gpu", 64), ("mem", 4096)), n_nodes=1),
        make_job(7, "nobody", priority=1500),
    )
    slurm.start_job(JobId("1"), nodes="node01")
    slurm.start_job(JobId("2"), nodes="node01")
    return slurm


def make_snapshot(directory: Path, slurm: FakeSlurm | None = None) -> Snapshot:
    """One cycle, decided, under the test site's policy."""
    seen = (slurm or busy_slurm()).observe()
    policy = make_site(directory).policy
    plan = decide(seen, policy, now=seen.at_s)
    return Snapshot(cycle_id="c1", now_s=START_S, observation=seen, site_policy=policy, sla_memory=(), plan=plan)


def record(directory: Path) -> Path:
    """Snapshot file of :func:`busy_slurm`."""
    path = directory / "cycle.json.gz"
    write_snapshot(path, make_snapshot(directory))
    return path


def run(*argv: object) -> Result:
    """Run the command line in this process; our errors stay exceptions, ``main`` turns them into exit codes."""
    return CliRunner().invoke(cli, [str(word) for word in argv])
