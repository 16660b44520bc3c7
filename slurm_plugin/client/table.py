"""Tables that a hostile cell cannot forge: Slurm's own ``-O`` formats with separators that nobody can guess.

Slurm prints job names and comments as they are, so any fixed separator can be faked, a newline included.
The format options of ``squeue``, ``sinfo`` and ``sprio`` take literal text after each field. We put a
random word there, new for each call, and no field width, which means unlimited. Columns are found by the
header line, never by position: a field that a release does not know is left out of header and rows alike,
with exit code 0.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from slurm_plugin.errors import SlurmParseError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Separators:
    """Texts that end a cell and a row; neither starts with a digit, which would be a field width."""

    cell: str
    row: str

    @classmethod
    def random(cls) -> Separators:
        """Separators that no job's text can hold, because they did not exist when it was written."""
        word = secrets.token_urlsafe(8)
        return cls(cell=f"_{word}c", row=f"_{word}r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes
    ----------
    field : str
        What the format option calls it (``tres-alloc``; a letter for ``sprio``).
    header : str
        What the header line calls it (``TRES_ALLOC``).
    default : str or None
        Stands in every row if the release does not know the field; ``None`` if we cannot do without.
    """

    field: str
    header: str
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells in the order of the asked columns, and how many rows made no sense."""

    rows: list[tuple[str, ...]]
    n_malformed: int
    missing: tuple[str, ...]


def long_format(columns: Sequence[Column], separators: Separators) -> str:
    """Value of ``-O`` for ``squeue`` and ``sinfo``."""
    return ",".join(
        f"{column.field}:{separators.row if column is columns[-1] else separators.cell}" for column in columns
    )


def short_format(columns: Sequence[Column], separators: Separators) -> str:
    """Value of ``-o`` for ``sprio``, whose fields are letters."""
    return "".join(
        f"%{column.field}{separators.row if column is columns[-1] else separators.cell}" for column in columns
    )


def parse_table(text: str, columns: Sequence[Column], separators: Separators) -> Table:
    """Rows of the answer, cells in the order of ``columns``.

    Raises
    ------
    SlurmParseError
        If the header lacks a column without default; names the field.
    """
    head, *rows = text.split(separators.row + "\n")
    headers = head.split(separators.cell)
    missing = tuple(column.field for column in columns if column.header not in headers)
    pick = _picker(columns, headers, head)
    filler = [column.default or "" for column in columns if column.header not in headers]
    n_cells = len(headers)
    picked: list[tuple[str, ...]] = []
    n_malformed = 0
    tail = rows.pop() if rows else ""
    if tail.strip():
        n_malformed += 1
    for row in rows:
        cells = row.split(separators.cell)
        if len(cells) == n_cells:
            picked.append(pick(cells + filler if filler else cells))
        else:
            n_malformed += 1
    return Table(rows=picked, n_malformed=n_malformed, missing=missing)


def _picker(columns: Sequence[Column], headers: Sequence[str], head: str) -> Callable[[Sequence[str]], tuple[str, ...]]:
    indices: list[int] = []
    n_missing = 0
    for column in columns:
        if column.header in headers:
            indices.append(headers.index(column.header))
        elif column.default is not None:
            indices.append(len(headers) + n_missing)
            n_missing += 1
        else:
            raise SlurmParseError(f"Slurm's answer has no column {column.header}", field=column.field, raw=head)
    return itemgetter(*indices)
