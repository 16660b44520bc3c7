"""A small cluster for the rebalancer's tests: two agents, four nodes, a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from policies.records import AccountName, JobId, JobRecord, JobState, NodeName, NodeRecord, PartitionName
from slurm_plugin.client import FakeSlurm
from slurm_plugin.rebalancer.cycle import CycleResult, Rebalancer
from slurm_plugin.rebalancer.report import Reporter
from slurm_plugin.site import SiteFile, parse_site

if TYPE_CHECKING:
    from pathlib import Path

START_S = 1_700_000_000.0
SCALE = 40_000

SITE = """\
cluster: fake
mode: {mode}
partitions: [gpu]
agents:
  risk: {{accounts: [risk], base_weight: 0.6}}
  rec: {{accounts: [rec], base_weight: 0.4}}
rebalancer: {{interval: 5s, updates_per_second: {rate}}}
paths: {{state_dir: {path}, run_dir: {path}}}
"""


def make_site(path: Path, *, mode: str = "enforce", rate: int = 100, more: str = "") -> SiteFile:
    """Site file with its state and run directory in ``path``; ``more`` is text at its end."""
    text = SITE.format(mode=mode, rate=rate, path=path) + more
    (path / "site.yaml").write_text(text, encoding="utf-8")
    return parse_site(text, path=path / "site.yaml")


def make_job(number: int | str, account: str = "risk", **changes: Any) -> JobRecord:
    """Pending job with one GPU of its account's user."""
    fields: dict[str, Any] = {
        "job_id": JobId(str(number)),
        "user": f"{account}-user",
        "uid": 1001 if account == "risk" else 1002,
        "account": AccountName(account),
        "partitions": (PartitionName("gpu"),),
        "state": JobState.PENDING,
        "reason": "Priority",
        "priority": 1000,
        "tres": (("cpu", 4), ("gres/gpu", 1), ("mem", 4096)),
        "submit_s": int(START_S) - 100,
        "eligible_s": int(START_S) - 100,
        "site_factor": 0,
    }
    return JobRecord(**(fields | changes))


def make_slurm(*jobs: JobRecord, release: str = "25.11.7") -> FakeSlurm:
    """Four nodes with four GPUs each."""
    slurm = FakeSlurm(cluster="fake", release=release, now_s=START_S)
    for number in range(1, 5):
        slurm.add_node(
            NodeRecord(
                name=NodeName(f"node{number:02d}"),
                partitions=(PartitionName("gpu"),),
                state="idle",
                is_schedulable=True,
                tres=(("cpu", 32), ("gres/gpu", 4), ("mem", 131_072)),
            )
        )
    for job in jobs:
        slurm.add_job(job)
    return slurm


class World:
    """A Slurm, a rebalancer and a clock.

    Parameters
    ----------
    jobs : JobRecord
        What is in the queue at the start.
    """

    MORE: ClassVar[str] = ""

    def __init__(self, path: Path, *jobs: JobRecord, mode: str = "enforce", rate: int = 100, **slurm: str) -> None:
        self.now_s = START_S
        self.site = make_site(path, mode=mode, rate=rate, more=self.MORE)
        self.slurm = make_slurm(*jobs, **slurm)
        self.restart()

    def restart(self, *, is_dry_run: bool = False) -> None:
        """Put a rebalancer without memory in the old one's place, as after SIGKILL."""
        self.rebalancer = Rebalancer.for_site(self.site, self.slurm, now=lambda: self.now_s, is_dry_run=is_dry_run)
        self.reporter = Reporter()

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        self.now_s += seconds
        self.slurm.advance(seconds)

    def cycle(self, seconds: float = 5.0) -> CycleResult:
        """Run one cycle with its report, after some time."""
        self.advance(seconds)
        result = self.rebalancer.run_cycle()
        self.reporter.report(self.rebalancer, result)
        return result

    def factor(self, number: int | str) -> int | None:
        """Site factor that the controller stores."""
        return self.slurm.job(JobId(str(number))).site_factor
