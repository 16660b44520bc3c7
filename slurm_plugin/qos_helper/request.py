"""One change that the rebalancer asks of the helper, and its bytes: a frame of :mod:`slurm_plugin.hook.wire`.

A request is a frame with operation ``Q`` and exactly three fields: ``qos`` (names joined by commas), ``setting`` and
``value``. The reply is a frame with ``verdict`` and ``text``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.wire import WireError, encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OP_CHANGE: Final = "Q"
OP_PING: Final = "P"


class Setting(StrEnum):
    """What of a QOS may change."""

    PRIORITY = "priority"
    PREEMPT = "preempt"
    """The whole list. Never ``+=`` or ``-=``: given several QOSes with different lists, slurmdbd 22.05 keeps a wrong
    list in memory (seen: a loop reported where there was none, until slurmdbd was restarted)."""
    GRP_TRES = "grp_tres"


class Verdict(StrEnum):
    """The helper's answer."""

    DONE = "done"
    REFUSED = "refused"
    """Outside the rules; sacctmgr was not run."""
    FAILED = "failed"
    """sacctmgr said no."""
    AWAY = "away"
    """slurmdbd or its database did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QosChange:
    """Equal values for several QOSes, in ``sacctmgr``'s spelling; names are sorted."""

    names: tuple[str, ...]
    setting: Setting
    value: str


def group_changes(wanted: Iterable[tuple[str, Setting, str]]) -> tuple[QosChange, ...]:
    """Changes with QOSes of equal value together: one ``sacctmgr`` each (three QOSes in one take 0.08 s)."""
    groups: dict[tuple[Setting, str], list[str]] = {}
    for name, setting, value in wanted:
        groups.setdefault((setting, value), []).append(name)
    return tuple(
        QosChange(names=tuple(sorted(names)), setting=setting, value=value)
        for (setting, value), names in groups.items()
    )


def encode_change(change: QosChange) -> bytes:
    """Bytes of the request."""
    fields = {"qos": ",".join(change.names), "setting": change.setting.value, "value": change.value}
    return encode_frame(OP_CHANGE, fields)


def parse_change(fields: Mapping[str, str]) -> QosChange:
    """Return the change in a request's fields; nothing about it is checked but its form.

    Raises
    ------
    WireError
        A field is missing, unknown, or the setting is none of ours.
    """
    if fields.keys() != {"qos", "setting", "value"}:
        raise WireError(f"fields {sorted(fields)!r:.200} instead of qos, setting, value")
    if fields["setting"] not in set(Setting):
        raise WireError(f"no setting of ours: {fields['setting']!r:.80}")
    return QosChange(names=tuple(fields["qos"].split(",")), setting=Setting(fields["setting"]), value=fields["value"])
