"""YAML text as a plain tree with line numbers: safe, bounded, and without YAML's surprises.

The tree is built from the parser's events, not by a constructor: no tag can create an object, numbers keep
their exact digits (``0.6`` stays three fifths), ``no`` stays text, and every problem knows its line. Anchors,
tags and several documents are refused: a site file needs none of them, and aliases can grow without bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file to a value."""

MAX_DEPTH: Final = 12
MAX_VALUES: Final = 200_000
MAX_NUMBER_DIGITS: Final = 40

_INTEGER: Final = re.compile(r"[-+]?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d{1,9})?", re.ASCII)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """The text is not YAML that a site file may contain; the message starts with the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where (line, path) and what."""

    line: int
    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A parsed file.

    Attributes
    ----------
    value : Any
        Mappings as ``dict``, lists as ``tuple``; ``str``, ``int``, ``Decimal``, ``bool`` or ``None``.
    lines : dict of Path to int
        Line of each value's key (of the value itself in a list), counted from 1.
    problems : tuple of Problem
        Duplicate keys and keys that are no text.
    """

    value: Any
    lines: dict[Path, int]
    problems: tuple[Problem, ...]

    def line_of(self, path: Path) -> int:
        """Return the line of ``path`` or of its nearest parent that the file contains."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1

    def get(self, path: Path) -> object:
        """Return the value at ``path``, ``None`` where the file has none."""
        value = self.value
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, tuple) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value


@dataclass(slots=True)
class _Builder:
    events: list[Any]
    at: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, path: Path) -> Any:  # noqa: ANN401 - the tree of an arbitrary YAML file
        event = self.events[self.at]
        self.at += 1
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _sequence(self, path: Path) -> tuple[Any, ...]:
        items: list[Any] = []
        while not isinstance(self.events[self.at], yaml.SequenceEndEvent):
            items.append(self.value((*path, len(items))))
        self.at += 1
        return tuple(items)

    def _mapping(self, path: Path) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(self.events[self.at], yaml.MappingEndEvent):
            line = self.events[self.at].start_mark.line + 1
            key = self._key(path, line)
            if key in items:
                first = self.lines[(*path, key)]
                text = f"key {key!r} is given twice, first on line {first}"
                self.problems.append(Problem(line=line, path=(*path, key), text=text))
                self.value((*path, key, "(twice)"))
                continue
            self.lines[(*path, key)] = line
            items[key] = self.value((*path, key))
        self.at += 1
        return items

    def _key(self, path: Path, line: int) -> str:
        event = self.events[self.at]
        if isinstance(event, yaml.ScalarEvent):
            self.at += 1
            return str(event.value)
        text = "a key must be plain text, not a list or a mapping"
        self.problems.append(Problem(line=line, path=path, text=text))
        self.value((*path, "(key)"))
        return f"(key on line {line})"


def read_tree(text: str) -> Tree:
    """Return the tree of one YAML document.

    Parameters
    ----------
    text : str
        The file's text; the caller bounds its size.

    Raises
    ------
    YamlError
        Syntax errors, anchors, aliases, tags, several documents, or nesting beyond ``MAX_DEPTH``.
    """
    events = _fetch_events(text)
    if not events:
        return Tree(value=None, lines={}, problems=())
    builder = _Builder(events=events)
    value = builder.value(())
    return Tree(value=value, lines=builder.lines, problems=tuple(builder.problems))


def _fetch_events(text: str) -> list[Any]:
    kept: list[Any] = []
    depth = documents = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            if isinstance(event, yaml.CollectionStartEvent | yaml.CollectionEndEvent):
                depth += 1 if isinstance(event, yaml.CollectionStartEvent) else -1
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                kept.append(event)
            _refuse(event, depth=depth, documents=documents, n_values=len(kept))
    except yaml.YAMLError as err:
        raise YamlError(_syntax_message(err)) from err
    return kept


def _refuse(event: Any, *, depth: int, documents: int, n_values: int) -> None:  # noqa: ANN401 - yaml's events
    what = ""
    if documents > 1:
        what = "a site file is one YAML document, remove the second '---'"
    elif depth > MAX_DEPTH:
        what = f"nested deeper than {MAX_DEPTH} levels"
    elif n_values > MAX_VALUES:
        what = f"more than {MAX_VALUES} values"
    elif getattr(event, "anchor", None):
        what = "anchors and aliases (& and *) are not supported; quote the text if it was meant as text"
    elif getattr(event, "tag", None):
        what = f"tags such as {str(event.tag)[:40]} are not supported; quote the text if it was meant as text"
    if what:
        raise YamlError(f"line {event.start_mark.line + 1}: {what}")


def _syntax_message(err: yaml.YAMLError) -> str:
    mark = getattr(err, "problem_mark", None)
    if mark is None:
        return f"not readable as YAML: {' '.join(str(err).split())}"
    problem = getattr(err, "problem", None) or "not readable as YAML"
    hint = "; a tab? YAML is indented with blanks" if "cannot start any token" in problem else ""
    return f"line {mark.line + 1}: {problem} (column {mark.column + 1}){hint}"


def _scalar(event: yaml.ScalarEvent) -> str | int | Decimal | bool | None:
    text: str = event.value
    if event.style not in (None, ""):
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) <= MAX_NUMBER_DIGITS:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return Decimal(text)
    return text
