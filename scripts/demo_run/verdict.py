"""Compare what ran with exact weighted DRF, and with what FIFO and a GPU-proportional split would have given.

The expectation is computed by the core (``fill_whole_jobs``, the DRF paper's Algorithm 1); nothing here is a number that
the demo was tuned to print.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from workload import AGENTS, CAPACITY, SUBMISSION_ORDER, DemoAgent

from policies.fairness.whole_jobs import fill_whole_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster import Sample

ALLOWED_JOBS: Final = 1
"""Distance to exact weighted DRF that the issue allows, in jobs of each agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Steady-state running jobs of each agent against the three ways to split.

    ``mean`` is the time average over the samples; ``within_frac`` the part of the samples in which every agent was
    within one job of exact weighted DRF (0-1).
    """

    mean: dict[str, float]
    drf: dict[str, int]
    fifo: dict[str, int]
    proportional: dict[str, Fraction]
    within_frac: float
    n_samples: int

    @property
    def is_fair(self) -> bool:
        """Whether the time average of every agent is within one job of exact weighted DRF."""
        return all(abs(self.mean[name] - jobs) <= ALLOWED_JOBS for name, jobs in self.drf.items())


def judge(samples: Sequence[Sample]) -> Verdict:
    """Judge a window in which every agent had work waiting."""
    counts = [{agent.name: len(sample.running.get(agent.name, ())) for agent in AGENTS} for sample in samples]
    drf = expected_drf()
    within = sum(all(abs(count[name] - jobs) <= ALLOWED_JOBS for name, jobs in drf.items()) for count in counts)
    return Verdict(
        mean={agent.name: sum(count[agent.name] for count in counts) / len(counts) for agent in AGENTS},
        drf=drf,
        fifo=expected_fifo(),
        proportional=expected_proportional(),
        within_frac=within / len(counts),
        n_samples=len(counts),
    )


def expected_drf() -> dict[str, int]:
    """Whole jobs per agent under exact weighted DRF."""
    filled = fill_whole_jobs(
        [[agent.request] * agent.n_jobs for agent in AGENTS],
        CAPACITY,
        weights=[agent.weight for agent in AGENTS],
    )
    return dict(zip((agent.name for agent in AGENTS), filled.n_started, strict=True))


def expected_fifo() -> dict[str, int]:
    """Whole jobs per agent if jobs start in submission order and blocked ones are skipped."""
    free = list(CAPACITY)
    by_name = {agent.name: agent for agent in AGENTS}
    return {name: _take(by_name[name], free) for name in SUBMISSION_ORDER}


def expected_proportional() -> dict[str, Fraction]:
    """Jobs per agent if GPUs alone were split by weight."""
    return {agent.name: agent.weight * CAPACITY[2] / agent.request[2] for agent in AGENTS}


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
            str(verdict.drf[name]),
            str(verdict.fifo[name]),
            f"{float(verdict.proportional[name]):.1f}",
        )
        for name in sorted(verdict.drf)
    ]


def differs(left: Mapping[str, float | Fraction | int], right: Mapping[str, float | Fraction | int]) -> bool:
    """Whether two splits are more than one job apart for some agent."""
    return any(abs(left[name] - right[name]) > ALLOWED_JOBS for name in left)
