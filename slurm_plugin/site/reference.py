"""The site file's JSON Schema and reference page, both made from :mod:`slurm_plugin.site.model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from slurm_plugin.site.durations import format_duration
from slurm_plugin.site.model import SiteSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

_DURATION_MARK: Final = "(us|ms|s|m|h|d)$"
_AGENT: Final = "NAME"
_KINDS: Final = {
    "array": "list of names",
    "boolean": "true \\| false",
    "integer": "whole number",
    "number": "number",
    "object": "amounts per TRES",
    "string": "text",
}
_INTRODUCTION: Final = """\
# Site file

This page is made from the code: `fairgpu check-config --reference`. The JSON Schema for editors is in
[site.schema.json](site.schema.json) (`fairgpu check-config --schema`).

`fairgpu` reads `/etc/fairgpu/site.yaml`, the file that `FAIRGPU_SITE` names, or the one after `--site`.
Every problem is reported at once, with its line and path. Unknown keys are errors. Numbers are read exactly:
0.6 is three fifths. A duration has a unit: us, ms, s, m, h or d. Anchors, tags, a second document and files
over 1 MiB are refused.

The hook server notices a changed file by itself, the rebalancer reads it again on SIGHUP. A file with problems
is refused and the former one stays in force. `paths` and `hook.socket` count from the next start on.
`hook.deadline` and the breaker are given to the shim in job_submit.lua; `fairgpu doctor` prints the line.

Documented examples: [examples/ecommerce.yaml](../../examples/ecommerce.yaml),
[examples/inference.yaml](../../examples/inference.yaml).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the file as the reference page shows it."""

    key: str
    kind: str
    default: str
    allowed: str
    meaning: str


def export_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the site file, for editors."""
    schema = SiteSettings.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "FairGPU site file"
    for _, model in iter_sections():
        node = schema if model is SiteSettings else schema["$defs"][model.__name__]
        node["additionalProperties"] = False
        defaults = _defaults(model)
        for name, field in model.model_fields.items():
            key = field.alias or name
            _complete(node["properties"][key], field, defaults.get(key))
    return schema


def _complete(node: dict[str, Any], field: FieldInfo, default: object) -> None:
    """Put the file's own spelling of the default and the range into one property."""
    node.pop("title", None)
    if "default" in node:
        node["default"] = default
    inner = _inner(node)
    for key in ("gt", "ge", "lt", "le"):
        inner.pop(key, None)
    if _is_duration(inner):
        node["description"] = f"{node['description']} {_allowed(inner, field)}".rstrip()
    else:
        inner.update(_bounds(field))


def iter_sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield ``(path, model)`` of every section, the top first, in the file's order."""
    yield from _sections("", SiteSettings)


def _sections(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        inner = _section_of(field)
        if inner is not None:
            key = field.alias or name
            below = f"{key}.{_AGENT}" if get_origin(field.annotation) is dict else key
            yield from _sections(f"{path}.{below}".lstrip("."), inner)


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def list_settings(model: type[BaseModel]) -> tuple[Setting, ...]:
    """Return the keys of one section that hold values, in the order of their definition."""
    schema = model.model_json_schema(by_alias=True)
    defaults = _defaults(model)
    return tuple(
        _setting(field.alias or name, field, schema=schema, defaults=defaults)
        for name, field in model.model_fields.items()
        if _section_of(field) is None
    )


def _setting(key: str, field: FieldInfo, *, schema: dict[str, Any], defaults: dict[str, Any]) -> Setting:
    node = _inner(schema["properties"][key])
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return Setting(
        key=key,
        kind=_kind(node),
        default="required" if field.is_required() else _shown(defaults[key]),
        allowed=_allowed(node, field),
        meaning=field.description or "",
    )


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_construct().model_dump(mode="json", by_alias=True)


def _inner(node: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the value itself where ``null`` is allowed too."""
    options: list[dict[str, Any]] = node.get("anyOf", [])
    return options[0] if len(options) == 2 and options[1].get("type") == "null" else node


def _is_duration(node: dict[str, Any]) -> bool:
    return str(node.get("pattern", "")).endswith(_DURATION_MARK)


def _kind(node: dict[str, Any]) -> str:
    if "anyOf" in node:
        return " \\| ".join(_kind(option) for option in node["anyOf"])
    if "enum" in node:
        return " \\| ".join(node["enum"])
    if _is_duration(node):
        return "duration"
    if node.get("pattern") == "^/":
        return "absolute path"
    return _KINDS[str(node["type"])]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _bounds(field: FieldInfo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mark in field.metadata:
        match mark:
            case Ge(ge=value):
                found["minimum"] = value
            case Gt(gt=value):
                found["exclusiveMinimum"] = value
            case Le(le=value):
                found["maximum"] = value
            case Lt(lt=value):
                found["exclusiveMaximum"] = value
            case _:
                continue
    return found


def _allowed(node: dict[str, Any], field: FieldInfo) -> str:
    spell = format_duration if _is_duration(node) else _number_text
    bounds = {key: node[key] for key in ("minimum", "maximum") if key in node} | _bounds(field)
    if "exclusiveMinimum" in bounds:
        bounds.pop("minimum", None)
    words = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {spell(bounds[key])}" for key, sign in words.items() if key in bounds)


def _number_text(value: float) -> str:
    return f"{value:g}" if value < 1_000_000 else str(value)


def render_reference() -> str:
    """Return the reference page in Markdown."""
    parts = [_INTRODUCTION]
    for path, model in iter_sections():
        parts.append(f"## {path or 'Top level'}\n")
        parts.append(f"{' '.join((model.__doc__ or '').split())}\n")
        parts.append("| key | value | default | allowed | meaning |\n|---|---|---|---|---|")
        parts.extend(
            f"| `{one.key}` | {one.kind} | {one.default} | {one.allowed} | {one.meaning} |"
            for one in list_settings(model)
        )
        parts.append("")
    return "\n".join(parts)
