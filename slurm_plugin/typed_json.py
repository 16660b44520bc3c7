"""Frozen dataclasses to JSON values and back, exactly, led by the annotations of their fields.

Understands what the core's records are made of: dataclasses, tuples, ``X | None``, unions of dataclasses (an object
with its class as ``kind``), string enumerations, fractions (``"p/q"``), new types and scalars. Reading trusts nothing:
every value is checked against its type. A field that is missing takes its default, so that files of earlier releases
can be read; an unknown one is an error.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeVar

from slurm_plugin.errors import FairGpuError

_FRACTION: Final = re.compile(r"-?[0-9]{1,1000}/[0-9]{1,1000}")
_KIND: Final = "kind"
"""Names the class of an object whose field has a union type; a file of an earlier release lacks it and means the
first member."""
_LARGEST: Final = 2**63 - 1
"""Largest number in a field: a 64-bit integer, which every amount, time and factor of Slurm fits into."""

Json = Any
"""A value at the JSON border; checked against a field's type before anything else sees it."""

Decode = Callable[[Json, str], object]

T = TypeVar("T")


class TypedJsonError(FairGpuError):
    """JSON values do not fit a type; the message starts with the path of the field."""


def to_jsonable(kind: type[T], value: T) -> Json:
    """Return a dataclass of type ``kind`` as JSON values."""
    return _encoder(_key(kind))(value)


def from_jsonable(kind: type[T], value: Json, where: str) -> T:
    """Return JSON values as a dataclass of type ``kind``; ``where`` starts the path in error messages.

    Raises
    ------
    TypedJsonError
        If they do not fit.
    """
    return typing.cast("T", _decoder(_key(kind))(value, where))


def _key(kind: Any) -> Hashable:  # noqa: ANN401 - a type expression
    return typing.cast("Hashable", kind)


@cache
def _encoder(kind: Any) -> Callable[[Any], Json]:  # noqa: ANN401 - a type expression
    kind = _plain(kind)
    if kind is Fraction:
        return lambda value: f"{value.numerator}/{value.denominator}"
    if is_dataclass(kind):
        parts = [(name, _encoder(hint)) for name, hint in _hints(_key(kind)).items()]
        return lambda value: {name: encode(getattr(value, name)) for name, encode in parts}
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return _tuple_encoder(arguments)
    if arguments:
        return _union_encoder(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return lambda value: value.value
    return lambda value: value


def _union_encoder(kind: Any) -> Callable[[Any], Json]:  # noqa: ANN401 - a type expression
    members = _union_members(kind)
    if len(members) == 1:
        encode = _encoder(members[0])
        return lambda value: None if value is None else encode(value)
    encoders = {member: _encoder(member) for member in members}
    return lambda value: {_KIND: type(value).__name__, **encoders[type(value)](value)}


def _tuple_encoder(arguments: tuple[Any, ...]) -> Callable[[Any], Json]:
    encoders = [_encoder(argument) for argument in arguments if argument is not Ellipsis]
    if Ellipsis in arguments:
        encode = encoders[0]
        return lambda value: [encode(item) for item in value]
    return lambda value: [encode(item) for encode, item in zip(encoders, value, strict=True)]


@cache
def _decoder(kind: Any) -> Decode:  # noqa: ANN401 - a type expression
    kind = _plain(kind)
    if kind is Fraction:
        return _decode_fraction
    if is_dataclass(kind):
        return _dataclass_decoder(typing.cast("type[Any]", kind))
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return _tuple_decoder(arguments)
    if arguments:
        return _union_decoder(kind)
    if issubclass(kind, StrEnum):
        return _enum_decoder(kind)
    return _scalar_decoder(kind)


def _union_decoder(kind: Any) -> Decode:  # noqa: ANN401 - a type expression
    members = _union_members(kind)
    if len(members) == 1:
        decode_one = _decoder(members[0])
        return lambda value, where: None if value is None else decode_one(value, where)
    decoders = {member.__name__: _decoder(member) for member in members}

    def decode(value: Json, where: str) -> object:
        if not isinstance(value, dict):
            raise TypedJsonError(f"{where}: expected an object, got {value!r:.80}")
        name = value.get(_KIND, members[0].__name__)
        if not isinstance(name, str) or name not in decoders:
            raise TypedJsonError(f"{where}.{_KIND}: {name!r:.80} is none of {', '.join(decoders)}")
        return decoders[name]({key: item for key, item in value.items() if key != _KIND}, where)

    return decode


def _decode_fraction(value: Json, where: str) -> Fraction:
    if not isinstance(value, str) or not _FRACTION.fullmatch(value):
        raise TypedJsonError(f'{where}: expected a fraction like "3/5", got {value!r:.80}')
    numerator, _, denominator = value.partition("/")
    if int(denominator) == 0:
        raise TypedJsonError(f"{where}: the denominator of {value!r:.80} is 0")
    return Fraction(int(numerator), int(denominator))


def _dataclass_decoder(kind: type[Any]) -> Decode:
    decoders = {name: _decoder(hint) for name, hint in _hints(_key(kind)).items()}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def decode(value: Json, where: str) -> object:
        if not isinstance(value, dict):
            raise TypedJsonError(f"{where}: expected an object, got {value!r:.80}")
        if not required <= value.keys() <= decoders.keys():
            raise TypedJsonError(f"{where}: {_key_problem(value, decoders, required)}")
        return kind(**{name: decoders[name](item, f"{where}.{name}") for name, item in value.items()})

    return decode


def _key_problem(value: Mapping[str, Json], decoders: Mapping[str, Decode], required: set[str]) -> str:
    missing, unknown = sorted(required - value.keys()), sorted(value.keys() - decoders.keys())
    return f"missing fields {missing!r:.200}, unknown fields {unknown!r:.200}"


def _tuple_decoder(arguments: tuple[Any, ...]) -> Decode:
    decoders = [_decoder(argument) for argument in arguments if argument is not Ellipsis]
    length = None if Ellipsis in arguments else len(decoders)

    def decode(value: Json, where: str) -> object:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise TypedJsonError(f"{where}: expected a list, got {value!r:.80}")
        parts = decoders if length is not None else decoders * len(value)
        return tuple(part(item, f"{where}[{n}]") for n, (part, item) in enumerate(zip(parts, value, strict=True)))

    return decode


def _enum_decoder(kind: type[StrEnum]) -> Decode:
    members = {member.value: member for member in kind}

    def decode(value: Json, where: str) -> StrEnum:
        if not isinstance(value, str) or value not in members:
            raise TypedJsonError(f"{where}: {value!r:.80} is none of {', '.join(members)}")
        return members[value]

    return decode


def _scalar_decoder(kind: type[Any]) -> Decode:
    # An int stands for a float as it was written, so that the bytes of a plan do not change on the way.
    accepted = (int, float) if kind is float else (kind,)

    def decode(value: Json, where: str) -> object:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypedJsonError(f"{where}: expected {kind.__name__}, got {_shown(value)}")
        if isinstance(value, int | float) and not -_LARGEST <= value <= _LARGEST:
            raise TypedJsonError(f"{where}: {_shown(value)} is out of range")
        return value

    return decode


def _shown(value: Json) -> str:
    # Python refuses to print an integer of some thousand digits.
    if isinstance(value, int) and abs(value) > _LARGEST:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.80}"


def _plain(kind: Any) -> Any:  # noqa: ANN401 - a type expression
    while isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    return kind


def _union_members(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type expression
    """Members of ``X | None`` (one) or of a union of dataclasses (several, never beside ``None``)."""
    arguments = typing.get_args(kind)
    members = tuple(member for member in arguments if member is not types.NoneType)
    is_tagged = len(members) == len(arguments) and all(is_dataclass(member) for member in members)
    if len(members) != 1 and not is_tagged:
        raise TypeError(f"snapshots know no field of type {kind}")
    return members


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type expression
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
