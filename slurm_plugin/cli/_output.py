"""What every verb prints with: tables and JSON on stdout, talk on stderr, nothing untrusted unescaped.

Job names, comments and user names come from anybody. They are printed without control characters (a terminal
would obey them), without bidirectional overrides (they reorder what one reads) and never as rich markup.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import unicodedata
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PIPE_WIDTH: Final = 100_000
"""Columns where stdout is no terminal: nothing is folded or cut, whoever reads it does that."""

_GAP: Final = 3
"""Blanks between two columns."""

_MIN_FOLDED: Final = 24
"""Columns of the screen that a last column of long text needs beside others."""

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of controls, overrides, surrogates, private and unassigned characters, line breaks."""


def clean(value: object) -> str:
    r"""Return ``value`` as one line of printable text; every other character is shown as its escape.

    Examples
    --------
    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(_escaped(char) if unicodedata.category(char) in _UNSAFE else char for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, file: IO[str] | None = None
) -> None:
    """Print one table; a column of numbers is aligned to the right, colour appears on a terminal only.

    On a terminal that is too narrow the columns go on in a further table below, the first column repeated.

    Parameters
    ----------
    title : str
        Printed above; empty for none.
    columns : sequence of str
        Headings, with units.
    rows : iterable of sequence
        Cells; ``None`` is shown as ``-``, everything is escaped. Order is the caller's.
    """
    shown = [[_cell(value) for value in row] for row in rows]
    console = make_console(file)
    with console.capture() as captured:
        if title:
            console.print(Text(title, style="bold"))
        for group in _fit_columns(columns, shown, console.width):
            console.print(_make_table(columns, shown, group))
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    print(text, file=file or sys.stdout)


def _fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[tuple[int, ...]]:
    """Split columns (by number) into groups that fit beside each other; each group begins with the first column.

    A column that is wider than the screen is folded; nothing is ever cut.
    """
    needs = [max(cell_len(text) for text in (name, *cells)) for name, *cells in zip(columns, *rows, strict=True)]
    group, used = [0], needs[0]
    for index, need in enumerate(needs[1:], start=1):
        # A last column of long text folds into what is left, if that is not too little.
        asked = min(need, _MIN_FOLDED) if index == len(needs) - 1 else need
        if used + _GAP + asked > width and len(group) > 1:
            yield tuple(group)
            group, used = [0], needs[0]
        group.append(index)
        used += _GAP + need
    yield tuple(group)


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[str]], group: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in group:
        is_numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        folds = index == group[-1]
        justify: Literal["left", "right"] = "right" if is_numeric else "left"
        table.add_column(Text(columns[index]), justify=justify, no_wrap=not folds, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in group))
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-+").replace(".", "", 1).replace("/", "", 1).isdecimal()


def make_console(file: IO[str] | None = None) -> Console:
    """Return a console for stdout (or ``file``): colour on a terminal only, no width limit elsewhere."""
    target = file or sys.stdout
    is_terminal = target.isatty()
    return Console(
        file=target,
        width=None if is_terminal else _PIPE_WIDTH,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_line(text: object = "") -> None:
    """Print one line of data on stdout, escaped."""
    print(clean(text), file=sys.stdout)  # noqa: T201 - this is the output of the command line


def talk(text: object) -> None:
    """Print one line for the human on stderr, escaped."""
    print(clean(text), file=sys.stderr)  # noqa: T201 - as above


def echo_json(value: object) -> None:
    """Print ``value`` as canonical JSON: sorted keys, two blanks of indent, ASCII, one trailing newline.

    Dataclasses and pydantic models become objects, enums their value, fractions ``"3/5"``, paths text, sets
    sorted lists. Not-a-number and infinities have no JSON and become ``null``.
    """
    text = json.dumps(_plain(value), sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False)
    print(text, file=sys.stdout)  # noqa: T201 - as above


def echo_json_line(value: object) -> None:
    """Print ``value`` as :func:`echo_json` does, on one line, at once."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    print(text, file=sys.stdout, flush=True)  # noqa: T201 - as above


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON border
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Fraction | PurePath):
        return str(value)
    return _plain_collection(value)


def _plain_collection(value: Any) -> Any:  # noqa: ANN401 - JSON border
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    return [_plain(item) for item in value]
