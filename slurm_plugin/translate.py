"""Slurm's spellings of numbers, times, TRES, GRES and states, turned into plain values.

Everything that is peculiar to Slurm's text (``N/A``, ``(null)``, ``UNLIMITED``, ``1-12:00:00``, ``16G``,
``gres:gpu:a100:2`` of 22.05 beside ``gres/gpu:a100:2`` of later releases) ends here and nowhere else.
An absent value is ``None``; text that cannot be read raises ``ValueError`` with the text.
"""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.records import JobState, Tres

if TYPE_CHECKING:
    from collections.abc import Iterable

_ABSENT: Final = frozenset({"", "N/A", "n/a", "(null)", "NONE", "None", "Unknown", "NOT_SET", "INVALID"})
_UNLIMITED: Final = frozenset({"UNLIMITED", "INFINITE", "Partition_Limit"})
_NO_VALUES: Final = frozenset({65534, 65535, 4294967294, 4294967295, 2**64 - 2, 2**64 - 1})
"""``NO_VAL`` and ``INFINITE`` in 16, 32 and 64 bits: what a field shows that nobody set."""

_SUFFIX_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MIB_FACTORS: Final = {"M": 1, "G": 1 << 10, "T": 1 << 20}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)(?:[iB]*)", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_TASK_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_KEPT_PREFIXES: Final = ("gres/", "license/")
_MAX_TASK_ID: Final = 4_000_001
"""Slurm's largest ``MaxArraySize``: a longer range is no array."""


class GresCount(NamedTuple):
    """One entry of a GRES text: ``gpu:a100:4`` is ``("gpu", "a100", 4)``, an untyped one has type ``""``."""

    name: str
    type: str
    amount: int

    @property
    def tres(self) -> str:
        """Name of the TRES that counts all types of this GRES, ``gres/gpu``."""
        return f"gres/{self.name}"

    @property
    def typed_tres(self) -> str:
        """Name of the TRES that counts this type, ``gres/gpu:a100``; ``""`` for an untyped entry."""
        return f"gres/{self.name}:{self.type}" if self.type else ""


def parse_text(raw: str) -> str:
    """Text as it is, ``""`` where Slurm prints ``(null)`` or ``N/A`` for no text."""
    return "" if raw in {"(null)", "N/A"} else raw


@lru_cache(maxsize=4096)
def parse_count(raw: str) -> int | None:
    """Whole number; ``None`` if nobody set it. ``"2K"`` counts in 1024s, ``"2-4"`` is its minimum.

    Raises
    ------
    ValueError
        If it is no number.
    """
    if raw.isascii() and raw.isdecimal():
        number = int(raw)
        return None if number in _NO_VALUES else number
    if raw in _ABSENT or raw in _UNLIMITED:
        return None
    if raw.isascii() and raw.startswith("-"):
        return int(raw)
    match = _AMOUNT.fullmatch(raw.partition("-")[0])
    if match is None:
        raise ValueError(f"no count: {raw!r}")
    return int(Fraction(match[1]) * 1024 ** _SUFFIX_POWERS.get(match[2], 0))


def parse_time_s(raw: str) -> int | None:
    """Seconds since the epoch, from ``%s`` or from ISO in the local time zone; ``None`` if absent.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if raw.isascii() and raw.isdecimal():
        return int(raw) or None
    if raw in _ABSENT:
        return None
    return int(datetime.fromisoformat(raw).timestamp())


@lru_cache(maxsize=4096)
def parse_duration_s(raw: str) -> int | None:
    """Seconds from ``days-hours[:minutes[:seconds]]`` or ``[[hours:]minutes:]seconds``; ``None`` if unlimited.

    Raises
    ------
    ValueError
        If it is no duration.
    """
    if raw in _ABSENT or raw in _UNLIMITED:
        return None
    match = _DURATION.fullmatch(raw)
    if match is None:
        raise ValueError(f"no duration: {raw!r}")
    days, *parts = (None if part is None else int(part) for part in match.groups())
    clock = [part for part in parts if part is not None]
    clock = [0] * (3 - len(clock)) + clock if days is None else clock + [0] * (3 - len(clock))
    return (((days or 0) * 24 + clock[0]) * 60 + clock[1]) * 60 + clock[2]


def parse_memory_mib(raw: str) -> int | None:
    """Memory in MiB (rounded down) from ``16G``, ``1.50T`` or a bare number of MiB; ``None`` if absent.

    Raises
    ------
    ValueError
        If it is no amount.
    """
    if raw in _ABSENT or raw in _UNLIMITED:
        return None
    if raw[-1] in _MIB_FACTORS and raw.isascii() and raw[:-1].isdecimal():
        return int(raw[:-1]) * _MIB_FACTORS[raw[-1]]
    match = _AMOUNT.fullmatch(raw)
    if match is None:
        raise ValueError(f"no memory size: {raw!r}")
    return int(Fraction(match[1]) * Fraction(1024) ** (_SUFFIX_POWERS.get(match[2], 2) - 2))


@lru_cache(maxsize=8192)
def parse_tres(raw: str) -> Tres:
    """TRES text (``cpu=2,mem=2000M,node=1,gres/gpu=2``) as sorted names with amounts, memory in MiB.

    Only what can be shared out is kept: ``cpu``, ``mem``, ``gres/*`` and ``license/*``; zeros are left out.

    Raises
    ------
    ValueError
        If an amount cannot be read.
    """
    amounts: dict[str, int] = {}
    for entry in () if raw in _ABSENT else raw.split(","):
        name, _, amount = entry.rpartition("=")
        if name == "mem":
            number = parse_memory_mib(amount)
        elif name == "cpu" or name.startswith(_KEPT_PREFIXES):
            number = parse_count(amount)
        else:
            continue
        if number:
            amounts[name] = amounts.get(name, 0) + number
    return tuple(sorted(amounts.items()))


@lru_cache(maxsize=4096)
def parse_gres(raw: str) -> tuple[GresCount, ...]:
    """Entries of any GRES text that Slurm prints, requested or configured, in any release's spelling.

    ``gpu:a100:4(S:0-1)``, ``gres:gpu:2``, ``gres/gpu:a100:2``, ``gres/gpu:h100=1``, ``gpu`` (one piece) and
    lists of them; a TRES that is no GRES (``cpu=2`` in ``tres-per-task``) is passed over.

    Raises
    ------
    ValueError
        If a count cannot be read.
    """
    entries = () if raw in _ABSENT else re.sub(r"\([^()]*\)", "", raw).split(",")
    return tuple(count for count in map(_parse_gres_entry, entries) if count is not None)


def _parse_gres_entry(entry: str) -> GresCount | None:
    body = entry.strip()
    for prefix in ("gres:", "gres/"):
        body = body.removeprefix(prefix)
    if "=" in body and body == entry.strip():
        return None
    name, *rest = body.replace("=", ":").split(":")
    if not name:
        return None
    if rest and rest[-1][:1].isdecimal():
        number = parse_count(rest.pop())
        count = 0 if number is None else number
    else:
        count = 1
    return GresCount(name, ":".join(rest), count)


def parse_partition(raw: str) -> tuple[str, bool]:
    """Name of a partition in ``sinfo`` and whether it is the default one, which carries a ``*``."""
    return raw.removesuffix("*"), raw.endswith("*")


@lru_cache(maxsize=1024)
def count_tasks(expression: str) -> int | None:
    """How many array tasks ``0,2-5%2`` or ``1-99:2`` names; ``None`` if it is cut short (``...``) or odd."""
    total = 0
    for first, last, step in _task_ranges(expression):
        total += (last - first) // step + 1
    return total or None


def expand_steps(expression: str) -> str:
    """Task expression without ``%limit`` and ``:step``, as ``scontrol update`` wants it; ``""`` if odd."""
    parts: list[str] = []
    for first, last, step in _task_ranges(expression):
        if step != 1:
            parts.extend(str(task) for task in range(first, last + 1, step))
        else:
            parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def task_expression(tasks: Iterable[int]) -> str:
    """Task numbers as Slurm writes them, sorted, runs as ranges: ``0,2-5``."""
    ranges: list[list[int]] = []
    for task in sorted(set(tasks)):
        if ranges and task == ranges[-1][1] + 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _task_ranges(expression: str) -> list[tuple[int, int, int]]:
    ranges: list[tuple[int, int, int]] = []
    for part in expression.partition("%")[0].split(","):
        match = _TASK_RANGE.fullmatch(part)
        if match is None:
            return []
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if not (first <= last <= _MAX_TASK_ID and step > 0):
            return []
        ranges.append((first, last, step))
    return ranges


_STATES: Final = {state.value: state for state in JobState}


def parse_job_state(raw: str) -> JobState:
    """Job state, the first of a ``RUNNING+COMPLETING`` list; ``UNKNOWN`` for a word that we do not know."""
    known = _STATES.get(raw)
    return known if known is not None else _STATES.get(raw.partition("+")[0], JobState.UNKNOWN)
