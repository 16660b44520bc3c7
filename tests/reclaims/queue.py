"""The queue of a real cluster with bands, as squeue shows it, and the site file that gives it bands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.mini_cluster import MiniCluster

USERS: Final = {"risk": "alice", "rec": "bob", "vision": "carol"}
QUOTA: Final = {"risk": 8, "rec": 4, "vision": 4}
HOLDING: Final = frozenset({"RUNNING", "COMPLETING"})

SITE: Final = """\
cluster: {name}
mode: enforce
partitions: [main, cpu]
agents:
  risk: {{accounts: [risk], base_weight: 0.5, quota: {{gres/gpu: 8}}}}
  rec: {{accounts: [rec], base_weight: 0.25, quota: {{gres/gpu: 4}}}}
  vision: {{accounts: [vision], base_weight: 0.25, quota: {{gres/gpu: 4}}}}
bands: {{borrow_frac: 0.5, {more}}}
site_factor: {{scale: 1000}}
rebalancer: {{interval: 1s}}
hook: {{socket: {root}/run/fairgpu/hook.sock, peers: [root, slurm]}}
paths: {{state_dir: {root}/var/fairgpu, run_dir: {root}/run/fairgpu}}
"""


class Row(NamedTuple):
    """One job as squeue shows it."""

    job_id: str
    account: str
    qos: str
    state: str
    restarts: int


def write_site(cluster: MiniCluster) -> None:
    """Write the site file and apply it: risk is owed 8 of 16 GPUs, rec and vision 4 each."""
    (cluster.root / "etc/fairgpu-site.yaml").write_text(
        SITE.format(name=cluster.name, root=cluster.root, more="max_reclaims: 1000")
    )
    cluster.run("root", "fairgpu", "apply", "--yes")


def qos(cluster: MiniCluster, agent: str, band: str = "") -> str:
    """Return the QOS of an agent's band; ``band`` is empty, ``_borrow`` or ``_opp``."""
    return f"fg_{cluster.name}_{agent}{band}"


def rows(cluster: MiniCluster) -> list[Row]:
    """Return every queued job."""
    text = cluster.run("root", "squeue", "--noheader", "--format=%i|%a|%q|%T").stdout
    restarts = restart_counts(cluster)
    found = []
    for line in text.splitlines():
        job_id, account, qos_name, state = line.split("|")
        found.append(Row(job_id, account, qos_name, state, restarts.get(job_id, 0)))
    return found


def restart_counts(cluster: MiniCluster) -> dict[str, int]:
    """Return how often each queued job was started again."""
    text = cluster.run("root", "squeue", "--noheader", "-O", "JobID:20,RestartCnt:10").stdout
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}


def restarted(before: dict[str, int], after: dict[str, int]) -> frozenset[str]:
    """Return the jobs that were restarted between two counts."""
    return frozenset(job_id for job_id, count in after.items() if count > before.get(job_id, 0))


def running(cluster: MiniCluster) -> Counter[str]:
    """Return jobs that hold their resources, by QOS."""
    return Counter(row.qos for row in rows(cluster) if row.state in HOLDING)


def submit(cluster: MiniCluster, agent: str, n_jobs: int, *args: str, seconds: int = 600) -> list[str]:
    """Submit jobs of an agent, of one GPU each unless ``args`` say otherwise; return their ids."""
    return [cluster.sbatch(USERS[agent], *_options(agent, args, seconds)) for _ in range(n_jobs)]


def _options(agent: str, args: Sequence[str], seconds: int) -> tuple[str, ...]:
    return ("--partition=main", f"--account={agent}", f"--wrap=sleep {seconds}", *(args or ("--gpus=1",)))
