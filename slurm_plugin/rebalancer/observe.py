"""Observe: what Slurm, the indicator file and the name service say, as one observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import SlurmError, SlurmUnavailable
from slurm_plugin.telemetry import IndicatorReading, read_indicators, resolve_groups

if TYPE_CHECKING:
    from policies.records import Observation, QosRecord
    from policies.site_policy import SitePolicy
    from slurm_plugin.client import SlurmClient
    from slurm_plugin.site import SiteFile

GROUPS_MAX_AGE_S: Final = 300.0
"""How long a user's groups are believed; the name service may be slow."""


@dataclass(slots=True, kw_only=True)
class GroupCache:
    """Unix groups of users, looked up at most once per ``GROUPS_MAX_AGE_S``.

    Attributes
    ----------
    look_up : callable
        From user names to their groups; a user whom nobody knows is absent.
    """

    look_up: Callable[[Iterable[str]], Mapping[str, tuple[str, ...]]] = resolve_groups
    _known: dict[str, tuple[float, tuple[str, ...] | None]] = field(default_factory=dict)

    def groups_of(self, users: Iterable[str], *, now_s: float) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return users with their groups, sorted by name; users with unknown groups are absent."""
        wanted = sorted(set(users))
        old = [user for user in wanted if not self._is_fresh(user, now_s)]
        found = self.look_up(old) if old else {}
        self._known = {user: self._known[user] for user in wanted if user in self._known}
        self._known |= {user: (now_s, found.get(user)) for user in old}
        return tuple((user, groups) for user in wanted if (groups := self._known[user][1]) is not None)

    def _is_fresh(self, user: str, now_s: float) -> bool:
        return user in self._known and 0 <= now_s - self._known[user][0] < GROUPS_MAX_AGE_S


def observe(client: SlurmClient, site: SiteFile, groups: GroupCache) -> Observation:
    """Return one observation: jobs and nodes, SLA indicators, and groups and QOSes where the site file names any.

    QOSes that this user may not see count as a problem; then no decision about bands is made.

    Raises
    ------
    SlurmError
        As ``client.observe``.
    """
    seen = client.observe()
    qos, qos_problems = _fetch_qos(client) if site.policy.bands is not None else ((), ())
    reading = IndicatorReading()
    if site.sla_indicators is not None:
        reading = read_indicators(site.sla_indicators, now_s=seen.at_s)
    users = {job.user for job in seen.jobs} if _names_groups(site.policy) else set()
    return replace(
        seen,
        qos=tuple(qos),
        indicators=reading.samples,
        groups_by_user=groups.groups_of(users, now_s=seen.at_s),
        problems=_add_up(seen.problems, reading.problems, qos_problems),
    )


def _names_groups(policy: SitePolicy) -> bool:
    return any(agent.groups for agent in policy.agents)


def _fetch_qos(client: SlurmClient) -> tuple[Sequence[QosRecord], Sequence[tuple[str, int]]]:
    try:
        return client.fetch_qos()
    except SlurmUnavailable:
        raise
    except SlurmError as err:
        return (), ((f"no QOSes: {err}", 1),)


def _add_up(*counts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(dict(one))
    return tuple(sorted(total.items()))
