"""Canonical bytes of the core's records: equal values give equal bytes, and nothing else does."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policies.plan import Plan


def to_canonical(value: Any) -> Any:  # noqa: ANN401 - a JSON border
    """The value in JSON's types: dataclasses as objects, fractions as ``"p/q"``, tuples as lists."""
    if is_dataclass(value):
        return {field.name: to_canonical(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, tuple):
        return [to_canonical(item) for item in value]
    return value


def canonical_bytes(value: Any) -> bytes:  # noqa: ANN401 - a JSON border
    """Sorted keys, no blanks, ASCII, no NaN."""
    return json.dumps(
        to_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def plan_bytes(plan: Plan) -> bytes:
    """The whole plan as canonical JSON; replay compares these bytes."""
    return canonical_bytes(plan)


def plan_digest(plan: Plan) -> str:
    """SHA-256 of :func:`plan_bytes`, 64 hexadecimal digits."""
    return hashlib.sha256(plan_bytes(plan)).hexdigest()
