"""Where each agent stands, so that a new job gets its site factor at submission.

The rebalancer writes the standings once per cycle. Between two cycles the book adds what was submitted since,
so that a burst of one agent spreads as the next cycle would order it. The book is an estimate that each cycle
replaces: a submission that Slurm refuses afterwards, or ``sbatch --test-only``, is forgotten by the next one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from policies.errors import UnknownPolicyError
from policies.fairness.share import standing_tag
from policies.registry import RegisteredPolicy, get_policy
from slurm_plugin.errors import StaleStateError

VERSION: Final = 1
MAX_AGE_S: Final = 60.0
"""Older standings set no factor; the rebalancer adopts the job later."""

_DAMAGE: Final = (
    *(ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, OverflowError),
    *(RecursionError, UnknownPolicyError),
)
"""What reading a file raises that holds anything at all."""

MAX_JOURNAL: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """One cycle's standings.

    Attributes
    ----------
    at_s : float
        When the cycle observed the cluster, seconds since the epoch.
    policy : RegisteredPolicy
        The scheduling policy that the rebalancer follows.
    scale : int
        Site factor of a job with share tag 0.
    tres : tuple of str
        Axis order of the amounts below.
    capacity : tuple of int
    weights : mapping of str to Fraction
        Weight by agent.
    next_amounts : mapping of str to tuple of int
        What the agent holds and what it waits for: where its next job starts.
    qos : mapping of str to str
        Guaranteed QOS by agent, of those whose bands slurmctld shows.
    """

    at_s: float
    policy: RegisteredPolicy
    scale: int
    tres: tuple[str, ...]
    capacity: tuple[int, ...]
    weights: Mapping[str, Fraction]
    next_amounts: Mapping[str, tuple[int, ...]]
    qos: Mapping[str, str] = field(default_factory=dict)


def parse_standings(raw: bytes) -> Standings:
    """Return the standings in the rebalancer's file.

    Raises
    ------
    StaleStateError
        It is damaged or of another version.
    """
    try:
        tree: dict[str, Any] = json.loads(raw)
        if tree["version"] != VERSION:
            raise StaleStateError(f"standings of version {tree['version']!r}, this release reads {VERSION}")
        agents = tree["agents"]
        standings = Standings(
            at_s=float(tree["at_s"]),
            policy=get_policy(str(tree["policy"])),
            scale=int(tree["scale"]),
            tres=tuple(str(name) for name in tree["tres"]),
            capacity=tuple(int(amount) for amount in tree["capacity"]),
            weights={name: Fraction(entry["weight"]) for name, entry in agents.items()},
            next_amounts={name: tuple(int(n) for n in entry["next"]) for name, entry in agents.items()},
            qos={name: str(entry["qos"]) for name, entry in agents.items() if "qos" in entry},
        )
    except _DAMAGE as err:
        raise StaleStateError(f"standings file is damaged: {err!r}") from err
    lengths = {len(standings.tres), len(standings.capacity), *map(len, standings.next_amounts.values())}
    if len(lengths) != 1:
        raise StaleStateError("standings file is damaged: amounts do not match its tres")
    return standings


class StandingsBook:
    """The standings plus what was submitted since; for the answering thread only, except :meth:`offer`."""

    def __init__(self) -> None:
        self._offered: Standings | None = None
        self._current: Standings | None = None
        self._next: dict[str, list[int]] = {}
        self._factors: dict[str, int] = {}
        self._journal: deque[tuple[float, str, tuple[int, ...]]] = deque(maxlen=MAX_JOURNAL)

    def offer(self, standings: Standings) -> None:
        """Hand over newer standings from another thread; they count from the next submission on."""
        self._offered = standings

    def site_factor(self, agent: str, now_s: float) -> int | None:
        """Site factor of the agent's next job, ``None`` without fresh standings of that agent."""
        standings = self._fresh(now_s)
        if standings is None or agent not in self._next:
            return None
        known = self._factors.get(agent)
        return self._compute_factor(agent, standings) if known is None else known

    def has_qos(self, agent: str, qos: str, now_s: float) -> bool:
        """Whether slurmctld showed this as the agent's guaranteed QOS; not without fresh standings."""
        standings = self._fresh(now_s)
        return standings is not None and standings.qos.get(agent) == qos

    def _fresh(self, now_s: float) -> Standings | None:
        self._take_offer()
        standings = self._current
        return None if standings is None or abs(now_s - standings.at_s) > MAX_AGE_S else standings

    def _compute_factor(self, agent: str, standings: Standings) -> int:
        tag = standing_tag(self._next[agent], standings.capacity, standings.weights[agent])
        factor = standings.policy.factor_at_submission(tag, standings.scale)
        self._factors[agent] = factor
        return factor

    def advance(self, agent: str, amounts: Mapping[str, int], n_tasks: int, now_s: float) -> None:
        """Add a submission of ``n_tasks`` times ``amounts`` to the agent's standing.

        A job that asks for more than there is cannot start and moves nothing.
        """
        standings = self._current
        if standings is None or agent not in self._next:
            return
        task = [amounts.get(name, 0) for name in standings.tres]
        if any(asked > there for asked, there in zip(task, standings.capacity, strict=True)):
            return
        step = tuple(amount * n_tasks for amount in task)
        self._journal.append((now_s, agent, step))
        self._add(agent, step)
        # Now, after the answer, rather than during the next one.
        self._compute_factor(agent, standings)

    def _add(self, agent: str, step: tuple[int, ...]) -> None:
        before = self._next.get(agent)
        if before is not None and len(before) == len(step):
            self._next[agent] = [a + b for a, b in zip(before, step, strict=True)]

    def _take_offer(self) -> None:
        offered = self._offered
        if offered is None or offered is self._current:
            return
        # What was submitted after the cycle looked is not in its numbers yet: add it again.
        is_same_axes = self._current is None or self._current.tres == offered.tres
        self._current = offered
        self._next = {name: list(amounts) for name, amounts in offered.next_amounts.items()}
        self._factors.clear()
        # An entry far ahead of the cycle was made before the clock was set back.
        last_s = offered.at_s + MAX_AGE_S
        while self._journal and not (is_same_axes and offered.at_s < self._journal[0][0] <= last_s):
            self._journal.popleft()
        for _, agent, step in self._journal:
            self._add(agent, step)
