"""pydantic's complaints in an admin's words, with line, path and a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from slurm_plugin.site.durations import format_duration
from slurm_plugin.site.yaml_tree import Path, Problem, Tree

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_EMPTY: Final = "must not be empty"


def format_path(path: Path) -> str:
    """Return a path as text: ``agents.risk.accounts[0]``; empty for the top of the file."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def suggest(word: str, known: tuple[str, ...]) -> str:
    """Return ``; did you mean 'x'?`` for a close match, else the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known here: {', '.join(known)}"


def from_validation(err: ValidationError, tree: Tree, model: type[BaseModel]) -> tuple[Problem, ...]:
    """Return one problem per complaint of pydantic, in the file's order."""
    problems = tuple(_problem(detail, tree, model) for detail in err.errors(include_url=False))
    # pydantic counts only the valid items of a list; a full list of wrong items is not empty.
    return tuple(one for one in problems if one.text != _EMPTY or not tree.get(one.path))


def _problem(detail: ErrorDetails, tree: Tree, model: type[BaseModel]) -> Problem:
    path: Path = tuple(part for part in detail["loc"] if part != "[key]")
    text = _out_of_range(detail, tree.get(path)) or _text(detail, path, model)
    return Problem(line=tree.line_of(path), path=path, text=text)


def _out_of_range(detail: ErrorDetails, raw: object) -> str:
    """Return a range complaint in the file's own spelling (durations keep their unit), else nothing."""
    bounds = detail.get("ctx", {})
    for key, word in _RANGES.items():
        if detail["type"] == key:
            bound = next(iter(bounds.values()))
            wanted = format_duration(bound) if isinstance(raw, str) else bound
            return f"must be {word} {wanted}, got {raw}"
    return _EMPTY if detail["type"] == "too_short" else ""


def _text(detail: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{suggest(str(path[-1]), known_keys(model, path[:-1]))}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context["error"])
    wanted = _TYPES.get(kind) or context.get("expected")
    return f"must be {wanted}, got {_got(detail)}" if wanted else _plain(detail)


def _plain(detail: ErrorDetails) -> str:
    message = detail["msg"]
    if message.startswith("Input should be "):
        return f"must be {message.removeprefix('Input should be ')}, got {_got(detail)}"
    return f"{message[:1].lower()}{message[1:]}"


_RANGES = {
    "greater_than": "greater than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
_TYPES = {
    "tuple_type": "a list such as [a, b]",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "dict_type": "a mapping (name: settings)",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text (in quotes if it looks like a number)",
}


def _got(detail: ErrorDetails) -> str:
    value = detail["input"]
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:60] if isinstance(value, str) else str(value)[:60]


def known_keys(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    """Return the keys that the file may contain under ``path``, in the order of their definition."""
    keys = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    if not path:
        return tuple(keys)
    return _keys_under(keys.get(str(path[0])), path[1:])


def _keys_under(annotation: object, path: Path) -> tuple[str, ...]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return known_keys(annotation, path)
    for inner in get_args(annotation):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return known_keys(inner, path[1:] if get_origin(annotation) is dict else path)
    return ()
