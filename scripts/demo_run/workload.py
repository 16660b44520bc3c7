"""The demo's cluster, agents and jobs: three agents whose dominant TRES differ, on 4 nodes of 8 GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

TRES: Final = ("cpu", "mem", "gres/gpu")

NODES: Final = 4
GPUS_PER_NODE: Final = 8
CPUS_PER_NODE: Final = 32
MEM_PER_NODE_MIB: Final = 256 * 1024
GPUS: Final = tuple((f"node{node:02d}", index) for node in range(1, NODES + 1) for index in range(GPUS_PER_NODE))
"""Each GPU as (node, index)."""
CAPACITY: Final = (NODES * CPUS_PER_NODE, NODES * MEM_PER_NODE_MIB, NODES * GPUS_PER_NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAgent:
    """One agent of the demo: who submits, what each of its jobs asks for, how long the jobs run.

    ``request`` is in the order of ``TRES`` (CPUs, MiB, GPUs); ``seconds`` are the run times, taken in turn.
    """

    name: str
    user: str
    title: str
    weight: Fraction
    request: tuple[int, int, int]
    n_jobs: int
    seconds: tuple[int, ...]

    @property
    def dominant_share(self) -> Fraction:
        """The largest share of capacity that one job takes."""
        return max(Fraction(need, cap) for need, cap in zip(self.request, CAPACITY, strict=True))

    @property
    def sbatch_args(self) -> tuple[str, ...]:
        """What the researcher types, the agent tag included."""
        cpus, mem_mib, gpus = self.request
        return (
            f"--comment=agent={self.name}",
            f"--job-name={self.name}",
            f"--gpus={gpus}",
            "--nodes=1",
            f"--cpus-per-task={cpus}",
            f"--mem={mem_mib}M",
            "--output=/dev/null",
        )


AGENTS: Final = (
    DemoAgent(
        name="rec",
        user="bob",
        title="recommender, memory-bound",
        weight=Fraction(3, 10),
        request=(1, 64 * 1024, 1),
        n_jobs=50,
        seconds=(38, 44, 34, 41),
    ),
    DemoAgent(
        name="risk",
        user="alice",
        title="risk control, GPU-bound",
        weight=Fraction(6, 10),
        request=(1, 4 * 1024, 1),
        n_jobs=130,
        seconds=(36, 42, 33, 45, 39),
    ),
    DemoAgent(
        name="vision",
        user="carol",
        title="the rest, CPU-bound",
        weight=Fraction(1, 10),
        request=(8, 8 * 1024, 1),
        n_jobs=60,
        seconds=(20, 24, 22, 18),
    ),
)
"""Sorted by name. One job is 1/16 of its dominant TRES (risk: 1/32), so exact weighted DRF gives 24, 6 and 2 jobs."""

SUBMISSION_ORDER: Final = ("vision", "rec", "risk")
"""The least entitled agent comes first and floods the queue: FIFO would serve it alone."""
