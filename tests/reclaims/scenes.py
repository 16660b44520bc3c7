"""Random mixes of jobs on loan and of claims: who lends, who is over quota, how large the jobs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.reclaims.queue import QUOTA
from tests.reclaims.watch import Claim

if TYPE_CHECKING:
    from random import Random

DEMAND: Final = 28
"""GPUs that agents over quota ask for: some of their jobs always wait, so what a claim leaves is taken at once."""

JOB_SIZES: Final = (1, 2, 3, 4)
"""GPUs of a job on one node."""

SIZE_WEIGHTS: Final = (45, 30, 10, 15)

TWO_NODES_FRAC: Final = 0.1
PAIR_FRAC: Final = 0.25
LENDERS: Final = (("rec", "vision"), ("risk",), ("vision",), ("rec",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Who lends, and what the others submit, in this order: agent and sbatch options."""

    lenders: tuple[str, ...]
    jobs: tuple[tuple[str, tuple[str, ...]], ...]


def make_scene(rng: Random, number: int) -> Scene:
    """Return the next scene; lenders take turns."""
    lenders = LENDERS[number % len(LENDERS)]
    agents = [agent for agent in sorted(QUOTA) if agent not in lenders]
    jobs, asked = [], 0
    while asked < DEMAND:
        n_nodes = 2 if rng.random() < TWO_NODES_FRAC else 1
        gpus = rng.choice((1, 2)) if n_nodes == 2 else rng.choices(JOB_SIZES, SIZE_WEIGHTS)[0]
        jobs.append((rng.choice(agents), (f"--nodes={n_nodes}", f"--gpus-per-node={gpus}")))
        asked += gpus * n_nodes
    return Scene(lenders=lenders, jobs=tuple(jobs))


def make_claims(rng: Random, lenders: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return one claim, or two at once that fit the lenders' quotas together."""
    first = _make_claim(rng, rng.choice(lenders), 4)
    if rng.random() >= PAIR_FRAC:
        return (first,)
    agent = rng.choice(lenders)
    left = QUOTA[agent] - (first.gpus * first.n_nodes if agent == first.agent else 0)
    return (first, _make_claim(rng, agent, min(2, left))) if left else (first,)


def _make_claim(rng: Random, agent: str, at_most: int) -> Claim:
    n_nodes = 2 if at_most > 1 and rng.random() < 0.2 else 1
    return Claim(agent=agent, n_nodes=n_nodes, gpus=rng.randint(1, at_most // n_nodes))
