"""QOSes as slurmctld has them in memory, and the two things about them that only slurmdbd tells.

``scontrol -o show assoc_mgr flags=qos`` prints one line per QOS with limits as ``gres/gpu=8(3)`` (limit and usage;
``N`` is no limit), but neither the Preempt list nor the grace time, on no release from 22.05 to 26.05. Those come from
``sacctmgr``; while slurmdbd is away nobody can change them, so the last known ones stay true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.records import QosRecord, Tres
from slurm_plugin import translate
from slurm_plugin.errors import SlurmError

if TYPE_CHECKING:
    from collections import Counter

ASSOC_MGR: Final = ("scontrol", "-o", "show", "assoc_mgr", "flags=qos")
SHOW_QOS: Final = ("sacctmgr", "-nP", "show", "qos", "format=name,gracetime,preempt")
NO_LISTS: Final = "no Preempt lists"
"""How the problem starts that slurmdbd does not answer: nothing of a QOS can be changed, either."""

RETRY_AFTER_S: Final = 30.0
"""Pause after a failure: a slurmdbd that is away costs a cycle one wait, not one per cycle."""

_QOS_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LINE: Final = re.compile(r"QOS=(.+?)\(\d+\) (.*?)(?:\s+Account Limits=.*)?")
_FIELD: Final = re.compile(r"(?:^|\s)(GrpTRES|MaxTRESPJ|PreemptMode|Priority)=(\S*)")
_LIMIT: Final = re.compile(r"(\w+)(?:\(\d+\))?", re.ASCII)


class _DbFields(NamedTuple):
    grace_s: int
    preempt: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class QosReader:
    """Reads QOSes and remembers what slurmdbd said last.

    Attributes
    ----------
    ask : callable
        Runs one of the two commands above and returns what it printed, or raises ``SlurmError``.
    now : callable
        Seconds, for the pause after a failure.
    """

    ask: Callable[[tuple[str, ...]], str]
    now: Callable[[], float]
    _known: Mapping[str, _DbFields] = field(default_factory=dict)
    _retry_at_s: float = float("-inf")

    def read(self, problems: Counter[str]) -> tuple[QosRecord, ...]:
        """Every QOS, sorted by name; what slurmdbd could not say is counted in ``problems``.

        Raises
        ------
        SlurmError
            slurmctld did not answer.
        """
        records = parse_assoc_mgr(self.ask(ASSOC_MGR), problems)
        known = self._ask_database(problems)
        return tuple(_with_db_fields(record, known.get(record.name)) for record in records)

    def _ask_database(self, problems: Counter[str]) -> Mapping[str, _DbFields]:
        if 0 < self._retry_at_s - self.now() <= RETRY_AFTER_S:  # more: the clock was set back
            problems[f"{NO_LISTS}: slurmdbd was away a moment ago"] += 1
            return self._known
        try:
            self._known = _parse_show_qos(self.ask(SHOW_QOS))
        except SlurmError as err:
            self._retry_at_s = self.now() + RETRY_AFTER_S
            problems[f"{NO_LISTS}: {err}"] += 1
        return self._known


def is_qos_name(text: str) -> bool:
    """Whether this names one QOS and may stand in a command."""
    return _QOS_NAME.fullmatch(text) is not None


def parse_assoc_mgr(text: str, problems: Counter[str]) -> tuple[QosRecord, ...]:
    """QOS records without Preempt list and grace time, sorted by name."""
    records = []
    for line in text.splitlines():
        if not line.startswith("QOS="):
            continue
        try:
            records.append(_read_line(line))
        except ValueError:
            problems["QOS line of scontrol not understood"] += 1
    return tuple(sorted(records, key=lambda record: record.name))


def _read_line(line: str) -> QosRecord:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"no QOS: {line!r:.80}")
    fields: dict[str, str] = dict(reversed(_FIELD.findall(match[2])))  # the first of equal names counts
    return QosRecord(
        name=match[1],
        priority=translate.parse_count(fields.get("Priority", "")) or 0,
        preempt_mode=fields.get("PreemptMode", "").lower(),
        grp_tres=parse_limits(fields.get("GrpTRES", "")),
        max_tres_per_job=parse_limits(fields.get("MaxTRESPJ", "")),
    )


def parse_limits(text: str) -> Tres:
    """Limits by TRES name, sorted, explicit zeros kept: ``cpu=N(3),mem=524288(0),gres/gpu=8(3)``.

    Raises
    ------
    ValueError
        A limit is no amount.
    """
    limits: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        name, _, value = entry.rpartition("=")
        match = _LIMIT.fullmatch(value)
        if not name or match is None:
            raise ValueError(f"no limit: {entry!r}")
        if match[1] == "N":
            continue
        amount = translate.parse_memory_mib(match[1]) if name == "mem" else translate.parse_count(match[1])
        if amount is not None:
            limits[name] = amount
    return tuple(sorted(limits.items()))


def _parse_show_qos(text: str) -> dict[str, _DbFields]:
    found = {}
    for line in text.splitlines():
        name, grace, preempt = (*line.split("|"), "", "")[:3]
        try:
            grace_s = translate.parse_duration_s(grace) or 0
        except ValueError:
            grace_s = 0
        found[name] = _DbFields(grace_s, tuple(sorted(filter(None, preempt.split(",")))))
    return found


def _with_db_fields(record: QosRecord, known: _DbFields | None) -> QosRecord:
    return record if known is None else replace(record, grace_s=known.grace_s, preempt=known.preempt)
