"""Compare what ran with exact weighted DRF, and with what FIFO and a GPU-proportional split would have given.

The expectation is computed by the core (``fill_whole_jobs``, the DRF paper's Algorithm 1). No number here was tuned to
fit what the demo prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from workload import AGENTS, CAPACITY, SUBMISSION_ORDER, TRES, DemoAgent

from policies.fairness.whole_jobs import fill_whole_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster import Sample

_GPU: Final = TRES.index("gres/gpu")

ALLOWED_JOBS: Final = 1
"""Distance to exact weighted DRF that the issue allows, in jobs of each agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Steady-state running jobs of each agent against the three ways to split.

    Attributes
    ----------
    mean : dict
        Running jobs, time average over the samples.
    drf : dict
        Exact weighted DRF of the GPUs that were in use, time average. Some GPUs are empty between the end of a job
        and Slurm's next scheduling pass; whose turn is next is our question, how soon Slurm looks is not.
    idle_frac : float
        Average part of the GPUs that were empty (0-1).
    within_frac : float
        Part of the samples in which every agent was within one job of exact weighted DRF (0-1).
    """

    mean: dict[str, float]
    drf: dict[str, float]
    fifo: dict[str, int]
    proportional: dict[str, Fraction]
    idle_frac: float
    within_frac: float
    n_samples: int

    @property
    def is_fair(self) -> bool:
        """Whether every agent is, on average, within one job of exact weighted DRF."""
        return not differs(self.mean, self.drf)


def judge(samples: Sequence[Sample]) -> Verdict:
    """Judge a window in which every agent had work waiting."""
    counts = [{agent.name: len(sample.running.get(agent.name, ())) for agent in AGENTS} for sample in samples]
    in_use = [sum(count[agent.name] * agent.request[_GPU] for agent in AGENTS) for count in counts]
    fair = [expected_drf(n_gpus) for n_gpus in in_use]
    return Verdict(
        mean=_mean(counts),
        drf=_mean(fair),
        fifo=expected_fifo(),
        proportional=expected_proportional(),
        idle_frac=1 - sum(in_use) / len(in_use) / CAPACITY[_GPU],
        within_frac=sum(not differs(*pair) for pair in zip(counts, fair, strict=True)) / len(counts),
        n_samples=len(counts),
    )


def expected_drf(n_gpus: int = CAPACITY[_GPU]) -> dict[str, int]:
    """Whole jobs per agent under exact weighted DRF, with ``n_gpus`` to share."""
    n_axes = len(CAPACITY)
    unused = [(0,) * _GPU + (CAPACITY[_GPU] - n_gpus,) + (0,) * (n_axes - _GPU - 1)]
    filled = fill_whole_jobs(
        [[agent.request] * agent.n_jobs for agent in AGENTS] + [[]],
        CAPACITY,
        weights=[agent.weight for agent in AGENTS] + [Fraction(0)],
        held=[(0,) * n_axes for _ in AGENTS] + unused,
    )
    return dict(zip((agent.name for agent in AGENTS), filled.n_started, strict=False))


def expected_fifo() -> dict[str, int]:
    """Whole jobs per agent if jobs start in submission order and blocked ones are skipped."""
    free = list(CAPACITY)
    by_name = {agent.name: agent for agent in AGENTS}
    return {name: _take(by_name[name], free) for name in SUBMISSION_ORDER}


def expected_proportional() -> dict[str, Fraction]:
    """Jobs per agent if GPUs alone were split by weight."""
    return {agent.name: agent.weight * CAPACITY[_GPU] / agent.request[_GPU] for agent in AGENTS}


def _take(agent: DemoAgent, free: list[int]) -> int:
    jobs = min(agent.n_jobs, *(free[r] // need for r, need in enumerate(agent.request) if need))
    for r, need in enumerate(agent.request):
        free[r] -= jobs * need
    return jobs


def table_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Rows for printing: agent, measured, exact weighted DRF, FIFO, GPU-proportional."""
    return [
        (
            name,
            f"{verdict.mean[name]:.1f}",
            f"{verdict.drf[name]:.1f}",
            str(verdict.fifo[name]),
            f"{float(verdict.proportional[name]):.1f}",
        )
        for name in sorted(verdict.drf)
    ]


def _mean(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    return {agent.name: sum(count[agent.name] for count in counts) / len(counts) for agent in AGENTS}


def differs(left: Mapping[str, float | Fraction | int], right: Mapping[str, float | Fraction | int]) -> bool:
    """Whether two splits are more than one job apart for some agent."""
    return any(abs(float(left[name]) - float(right[name])) > ALLOWED_JOBS for name in left)
