"""Where act two plays: the cluster with bands, what was seen of it so far, and who asked for what."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from borrowing_verdict import Bound, gpus, read_accounting
from borrowing_workload import FLOODER, USERS, Lender, flood
from cluster import DemoCluster, Sample
from picture_bands import Mark
from recording import Recorder

from policies.quota.nominal import AgentQuota
from slurm_plugin.client import CliSettings, CliSlurm, ProcessRunner
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.records import Observation

_EVERY_S: Final = 0.3


@dataclass(slots=True, kw_only=True)
class Stage:
    """The cluster, its site file, and what was seen so far.

    Attributes
    ----------
    script : str
        Path of the jobs' script inside the cluster.
    jobs : list of str
        Ids of the jobs that must end well.
    """

    cluster: DemoCluster
    site: Path
    quotas: dict[str, AgentQuota]
    bound: Bound
    recorder: Recorder
    script: str
    jobs: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def restarts(self) -> dict[str, int]:
        """Restarts of our jobs, as slurmctld last showed them: it forgets a job a minute after its end."""
        last: dict[str, int] = {}
        for sample in self.samples:
            last |= sample.restarts
        return {job_id: last[job_id] for job_id in self.jobs if job_id in last}

    def watch(self, until: Callable[[Sample], bool], seconds: float) -> bool:
        """Look until something holds; whether it did in time."""
        deadline = time.monotonic() + seconds
        while True:
            sample = self.cluster.sample()
            self.samples.append(sample)
            self.recorder.look()
            if until(sample):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_EVERY_S)

    def fairgpu(self, user: str, *argv: str) -> str:
        """What a verb of ours prints."""
        return self.cluster.run(user, "fairgpu", *argv, "--site", str(self.site))

    def observe(self) -> Observation:
        """What the rebalancer would read now."""
        site = load_site(self.site)
        runner = ProcessRunner(prefix=self.cluster.prefix("fairgpu"))
        return observe(CliSlurm(CliSettings(runner=runner)), site, GroupCache())

    @property
    def served(self) -> Path:
        """The file for which the flood's jobs wait: it says that the lenders have been served."""
        return Path(self.script).with_name("lenders-served")

    def flood(self) -> int:
        """Let one agent ask for more than there is; return its number of jobs."""
        job_ids = self.cluster.submit(USERS[FLOODER], ["cd /tmp", *flood(self.script, str(self.served))])
        self.jobs += job_ids
        return len(job_ids)

    def claim(self, lender: Lender) -> str:
        """Let a lender ask for its whole quota; the job id."""
        command = lender.command(self.script, gpus(self.quotas[lender.agent])[0])
        (job_id,) = self.cluster.submit(USERS[lender.agent], ["cd /tmp", f"{command} {self.served}"])
        return job_id

    def accounting(self) -> dict[str, tuple[str, ...]]:
        """What sacct says of our jobs, one state for each time that a job was started."""
        wanted = ",".join(self.jobs)
        return read_accounting(self.cluster.run("root", "sacct", "-XDnP", "-j", wanted, "--format=jobid,state"))

    def has_quota(self, lender: Lender) -> Callable[[Sample], bool]:
        """Whether a lender's whole quota runs."""
        quota = self.quotas[lender.agent]
        return lambda sample: sample.gpus_by_qos[str(quota.guaranteed_qos)] == gpus(quota)[0]
