"""What the helper accepts: the exact QOSes of this site's agents, and for each setting the exact form of its value.

The helper has the rights to change every QOS of every cluster; these rules are all that stands between a broken or
captured rebalancer and slurmdbd. The names come from the site file that root owns, never from the request; only a
Preempt list may also name a lower QOS of ours whose agent has left the site file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from policies.quota.layout import HIGHEST_BORROW_PRIORITY, LOWEST_BORROW_PRIORITY
from policies.quota.names import Band, band_qos, may_be_preempted_by
from slurm_plugin.errors import FairGpuError
from slurm_plugin.qos_helper.request import QosChange, Setting

if TYPE_CHECKING:
    from policies.site_policy import SitePolicy

MAX_TRES: Final = 64
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_LIMIT: Final = re.compile(r"(cpu|mem|node|gres/[a-z0-9_]{1,32}(?::[a-z0-9_.-]{1,32})?)=(?:0|[1-9][0-9]{0,14})")


class RefusedError(FairGpuError):
    """A change outside the rules; the message says which one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperRules:
    """The cluster, and names of this site's QOSes by band."""

    cluster: str
    guaranteed: frozenset[str]
    borrow: frozenset[str]
    opportunistic: frozenset[str]

    @classmethod
    def from_policy(cls, policy: SitePolicy) -> HelperRules:
        """Rules of a site; without bands nothing is accepted."""
        agents = policy.agents if policy.bands is not None else ()

        def names(band: Band) -> frozenset[str]:
            return frozenset(band_qos(policy.cluster, agent.name, band) for agent in agents)

        return cls(
            cluster=policy.cluster,
            guaranteed=names(Band.GUARANTEED),
            borrow=names(Band.BORROW),
            opportunistic=names(Band.OPPORTUNISTIC),
        )

    def check(self, change: QosChange) -> None:
        """Accept a change.

        Raises
        ------
        RefusedError
            It is outside the rules.
        """
        what = f"QOS whose {change.setting.value} may change"
        match change.setting:
            case Setting.PRIORITY:
                _check_names(change.names, self.borrow, what)
                _check_priority(change.value)
            case Setting.PREEMPT:
                _check_names(change.names, self.guaranteed | self.borrow, what)
                self._check_preempt(change)
            case Setting.GRP_TRES:
                _check_names(change.names, self.guaranteed | self.borrow, what)
                _check_limits(change.value)
            case _:
                assert_never(change.setting)

    def _check_preempt(self, change: QosChange) -> None:
        """Guaranteed may preempt borrowed and opportunistic, borrowed only opportunistic; of retired agents, too."""
        band = Band.BORROW if self.borrow.intersection(change.names) else Band.GUARANTEED
        names = tuple(change.value.split(",")) if change.value else ()
        lower = frozenset(name for name in names if may_be_preempted_by(self.cluster, band, name))
        _check_names(names, lower - self.guaranteed, "lower QOS")


def _check_names(names: tuple[str, ...], allowed: frozenset[str], what: str) -> None:
    for name in names:
        if name not in allowed:
            raise RefusedError(f"{name!r:.140} is no {what} of this site")
    if list(names) != sorted(set(names)):
        raise RefusedError("names are not sorted, or one comes twice")


def _check_priority(value: str) -> None:
    if not _NUMBER.fullmatch(value) or not LOWEST_BORROW_PRIORITY <= int(value) <= HIGHEST_BORROW_PRIORITY:
        raise RefusedError(f"priority {value!r:.40} is not within {LOWEST_BORROW_PRIORITY}-{HIGHEST_BORROW_PRIORITY}")


def _check_limits(value: str) -> None:
    entries = value.split(",")
    matches = [_LIMIT.fullmatch(entry) for entry in entries[: MAX_TRES + 1]]
    names = [match[1] for match in matches if match is not None]
    if len(names) != len(entries) or len(set(names)) != len(names):
        raise RefusedError(f"limits {value!r:.140} are not name=amount, each name once, at most {MAX_TRES}")
