"""The kinds of values that a site file holds: what each accepts, and how it is shown in the JSON Schema."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from policies.records import Tres
from policies.site_policy import Quota, QuotaKind
from slurm_plugin.site.durations import format_duration, parse_duration_s
from slurm_plugin.translate import parse_memory_mib

_MAX_WEIGHT: Final = 10**12
_MAX_PLACES: Final = 18
_NAME: Final = re.compile(r"""[^\s,=:*;'"\\|()\[\]{}]{1,128}""")
_AGENT: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_TRES: Final = re.compile(r"cpu|mem|(?:gres|license)/[^\s,=;'\"]{1,100}", re.ASCII)
_MAX_AMOUNT: Final = 10**12
_QUOTA_WORDS: Final = (QuotaKind.AUTO.value, QuotaKind.NONE.value)
_NOT_FINITE: Final = re.compile(r"[-+]?\.?(?:nan|inf|infinity)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", re.ASCII)
_MAX_SOCKET_PATH: Final = 107
"""``sockaddr_un.sun_path`` holds 108 bytes, the last is zero."""


def exact_number(value: object) -> Fraction:
    """Return a YAML number as an exact fraction, without a detour over binary floating point.

    Raises
    ------
    ValueError
        Not a number, not finite, negative, too large (over 1e12) or more than 18 decimals: each is named.
    """
    if isinstance(value, Fraction):
        return value
    number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(number, Decimal):
        raise ValueError(_no_number(value))  # noqa: TRY004 - pydantic collects ValueError
    if number < 0:
        raise ValueError(f"must not be negative, got {value}")
    if number and number.adjusted() > 12:
        raise ValueError(f"is too large, at most {_MAX_WEIGHT}, got {value}")
    if number and -int(number.normalize().as_tuple().exponent) > _MAX_PLACES:
        raise ValueError(f"has more than {_MAX_PLACES} decimals, got {value}")
    if number > _MAX_WEIGHT:
        raise ValueError(f"is too large, at most {_MAX_WEIGHT}, got {value}")
    return Fraction(number)


def _no_number(value: object) -> str:
    if isinstance(value, str) and _NOT_FINITE.fullmatch(value.strip()):
        return f"must be a finite number, got {value.strip()}"
    if isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) > 1:
        return f"must be a number of at most 40 digits without quotes, got {value[:60]!r}"
    return f"must be a number such as 0.6, got {_shown(value)}"


def _fraction_of_one(value: object) -> float:
    if isinstance(value, float):
        return value
    number = exact_number(value)
    if number > 1:
        raise ValueError(f"must be a fraction between 0 and 1, got {value}")
    return float(number)


def _seconds(value: object) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        raise ValueError(f"needs a unit (us, ms, s, m, h, d), for example {value}s")  # noqa: TRY004 - as above
    if not isinstance(value, str):
        raise ValueError(f"must be a duration such as 20ms, 5s, 2h or 1d, got {_shown(value)}")  # noqa: TRY004 - as above
    return parse_duration_s(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"must be text; put it in quotes if {_shown(value)} is meant as a name")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:60] if isinstance(value, str) else str(value)[:60]


def _slurm_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"must be one name without blanks, commas, quotes or brackets, got {value[:60]!r}")
    return value


def _account_name(value: str) -> str:
    if value != value.lower():
        raise ValueError(f"{value!r} never matches: Slurm keeps account names in lower case; write {value.lower()!r}")
    return _slurm_name(value)


def _qos_name(value: str) -> str:
    if value != value.lower():
        raise ValueError(f"{value!r} never matches: Slurm keeps QOS names in lower case; write {value.lower()!r}")
    return _slurm_name(value)


def _whole_seconds(value: float) -> float:
    if value != int(value):
        raise ValueError(f"must be whole seconds, got {format_duration(value)}")
    return value


def _tres_amounts(value: object) -> Tres:
    """Return TRES amounts from a mapping, sorted by name; zeros stay."""
    if isinstance(value, dict):
        return tuple(sorted((str(name), _tres_amount(str(name), amount)) for name, amount in value.items()))
    if isinstance(value, tuple) and all(isinstance(item, tuple) for item in value):
        return value
    raise ValueError(f"must be amounts such as {{gres/gpu: 8, cpu: 64, mem: 512G}}, got {_shown(value)}")


def _tres_amount(name: str, value: object) -> int:
    if not _TRES.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no TRES that can be shared; write cpu, mem, gres/gpu, gres/gpu:TYPE")
    amount = value
    if name == "mem" and isinstance(value, str):
        try:
            amount = parse_memory_mib(value)
        except ValueError:
            amount = None
    if not isinstance(amount, int) or isinstance(amount, bool) or not 0 <= amount <= _MAX_AMOUNT:
        wanted = "MiB or a size such as 512G" if name == "mem" else "a whole number"
        raise ValueError(f"{name} must be {wanted}, at least 0, got {_shown(value)}")
    return amount


def _quota(value: object) -> Quota:
    if isinstance(value, Quota):
        return value
    if isinstance(value, dict):
        if not value:
            raise ValueError("must name at least one TRES, for example {gres/gpu: 8}; none means no quota at all")
        return Quota(kind=QuotaKind.EXPLICIT, amounts=_tres_amounts(value))
    if value in _QUOTA_WORDS:
        return Quota(kind=QuotaKind(str(value)))
    raise ValueError(f"must be auto, none or amounts such as {{gres/gpu: 8, cpu: 64}}, got {_shown(value)}")


def _plain_quota(value: Quota) -> str | dict[str, int]:
    return dict(value.amounts) if value.kind is QuotaKind.EXPLICIT else value.kind.value


def _agent_name(value: str) -> str:
    if not _AGENT.fullmatch(value):
        raise ValueError(
            f"agent name {value[:60]!r} must start with a lower-case letter and contain only "
            "lower-case letters, digits, '_' and '-' (at most 40)"
        )
    return value


def _absolute_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    text = _text(value)
    if not text.startswith("/") or "\0" in text or ".." in PurePosixPath(text).parts:
        raise ValueError(f"must be an absolute path without '..', got {text[:60]!r}")
    return Path(text)


def _socket_path(value: object) -> Path:
    path = _absolute_path(value)
    if len(str(path).encode()) > _MAX_SOCKET_PATH:
        raise ValueError(f"is too long for a Unix socket (at most {_MAX_SOCKET_PATH} bytes)")
    return path


def _listen_address(value: object) -> str:
    text = value if isinstance(value, str) else _shown(value)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError(f"must be HOST:PORT such as 127.0.0.1:9465, got {text[:60]!r}")
    return text


def _plain_number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _schema(kind: str, **more: Any) -> WithJsonSchema:  # noqa: ANN401 - JSON Schema values
    return WithJsonSchema({"type": kind, **more})


Number = Annotated[
    Fraction, BeforeValidator(exact_number), PlainSerializer(_plain_number), _schema("number", minimum=0)
]
"""An exact number >= 0."""

UnitFraction = Annotated[float, BeforeValidator(_fraction_of_one), _schema("number", minimum=0, maximum=1)]
"""A fraction between 0 and 1."""

Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(format_duration, return_type=str),
    _schema("string", pattern=r"^[0-9]+(\.[0-9]+)?(us|ms|s|m|h|d)$"),
]
"""A duration with its unit; seconds in Python."""

SlurmName = Annotated[str, BeforeValidator(_text), AfterValidator(_slurm_name)]
AccountText = Annotated[str, BeforeValidator(_text), AfterValidator(_account_name)]
AgentText = Annotated[str, BeforeValidator(_text), AfterValidator(_agent_name)]
AbsolutePath = Annotated[
    Path,
    BeforeValidator(_absolute_path),
    PlainSerializer(str, return_type=str),
    _schema("string", pattern="^/"),
]
SocketPath = Annotated[
    Path,
    BeforeValidator(_socket_path),
    PlainSerializer(str, return_type=str),
    _schema("string", pattern="^/"),
]
ListenAddress = Annotated[str, BeforeValidator(_listen_address), _schema("string", pattern="^.+:[0-9]+$")]
QosName = Annotated[str, BeforeValidator(_text), AfterValidator(_qos_name)]

WholeSeconds = Annotated[Seconds, AfterValidator(_whole_seconds)]
"""A duration of whole seconds, as Slurm keeps its own."""

_AMOUNTS_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": {"type": ["integer", "string"]},
    "examples": [{"gres/gpu": 8, "cpu": 64, "mem": "512G"}],
}
TresAmounts = Annotated[
    Tres,
    BeforeValidator(_tres_amounts),
    PlainSerializer(dict, return_type=dict),
    WithJsonSchema(_AMOUNTS_SCHEMA),
]
"""Amounts per TRES; memory in MiB in Python."""

QuotaAmounts = Annotated[
    Quota,
    BeforeValidator(_quota),
    PlainSerializer(_plain_quota),
    WithJsonSchema({"anyOf": [{"type": "string", "enum": list(_QUOTA_WORDS)}, _AMOUNTS_SCHEMA]}),
]
"""``auto``, ``none`` or amounts."""
