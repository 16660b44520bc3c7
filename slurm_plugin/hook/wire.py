"""Frames between the shim and the server: ``docs/reference/wire-protocol.md``.

A frame is a header of 12 bytes (``FG1``, an operation letter, the body's length as 8 digits) and a body of
netstrings that alternate between field name and value. Nothing is escaped, so no value can look like a field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import FairGpuError

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER_BYTES: Final = 12
MAX_BODY_BYTES: Final = 1024 * 1024
"""Longer bodies are refused before they are read."""

MAX_FIELDS: Final = 64

OP_SUBMIT: Final = "S"
OP_MODIFY: Final = "M"
OP_PING: Final = "P"
OP_REPLY: Final = "R"

_HEADER: Final = re.compile(rb"FG1([A-Z])([0-9]{8})")
_FIELD: Final = re.compile(r"([1-9][0-9]?):([a-z][a-z0-9_]{0,31}),(0|[1-9][0-9]{0,6}):")


class WireError(FairGpuError):
    """Bytes that are no frame of this protocol; the connection is closed."""


@dataclass(frozen=True, slots=True)
class Header:
    """Operation letter and body length of a frame."""

    op: str
    body_bytes: int


def encode_frame(op: str, fields: Mapping[str, str | bytes]) -> bytes:
    """Bytes of one frame.

    Examples
    --------
    >>> encode_frame("S", {"uid": "1000"})
    b'FG1S000000133:uid,4:1000,'
    """
    return frame_body(op, encode_fields(fields))


def encode_fields(fields: Mapping[str, str | bytes]) -> bytes:
    """Bytes of a frame's body."""
    parts: list[bytes] = []
    for name, value in fields.items():
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        parts.append(b"%d:%s,%d:%s," % (len(name), name.encode("ascii"), len(raw), raw))
    return b"".join(parts)


def frame_body(op: str, body: bytes) -> bytes:
    """Bytes of the frame with this body.

    Raises
    ------
    WireError
        The body is longer than ``MAX_BODY_BYTES``.
    """
    if len(body) > MAX_BODY_BYTES:
        raise WireError(f"a frame of {len(body)} bytes is over the limit of {MAX_BODY_BYTES}")
    return b"FG1%s%08d%s" % (op.encode("ascii"), len(body), body)


def parse_header(raw: bytes | bytearray) -> Header:
    """Header in the first ``HEADER_BYTES`` of ``raw``.

    Raises
    ------
    WireError
        It is none, or announces more than ``MAX_BODY_BYTES``.
    """
    match = _HEADER.match(raw)
    if match is None:
        raise WireError(f"no frame header: {bytes(raw[:HEADER_BYTES])!r}")
    length = int(match[2])
    if length > MAX_BODY_BYTES:
        raise WireError(f"announces {length} bytes, over the limit of {MAX_BODY_BYTES}")
    return Header(match[1].decode("ascii"), length)


def split_frame(raw: bytes | bytearray) -> tuple[str, bytes] | None:
    """Operation and body of the one frame in ``raw``, ``None`` while bytes are missing.

    Raises
    ------
    WireError
        It is no frame, or more than one.
    """
    if len(raw) < HEADER_BYTES:
        return None
    header = parse_header(raw)
    extra = len(raw) - HEADER_BYTES - header.body_bytes
    if extra > 0:
        raise WireError(f"{extra} bytes after the request")
    return None if extra else (header.op, bytes(raw[HEADER_BYTES:]))


def parse_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a body; bytes that are no UTF-8 become lone surrogates (``surrogateescape``).

    Raises
    ------
    WireError
        A netstring is damaged, a name is not lower case ASCII or comes twice, or there are more than
        ``MAX_FIELDS``.
    """
    fields: dict[str, str] = {}
    # One character per byte, so that the lengths count characters; values are decoded below if they need it.
    text = body.decode("latin-1")
    at, end = 0, len(text)
    while at < end and len(fields) < MAX_FIELDS:
        match = _FIELD.match(text, at)
        if match is None:
            raise WireError(f"no field at byte {at}: {body[at : at + 40]!r}")
        name_length, name, length = match.groups()
        start = match.end()
        stop = start + int(length)
        if int(name_length) != len(name) or text[stop : stop + 1] != "," or name in fields:
            raise WireError(f"field {name} has another length, does not end in a comma or comes twice")
        fields[name] = text[start:stop]
        at = stop + 1
    if at < end:
        raise WireError(f"more than {MAX_FIELDS} fields")
    return fields if text.isascii() else {name: _decode(value) for name, value in fields.items()}


def _decode(value: str) -> str:
    return value.encode("latin-1").decode("utf-8", "surrogateescape")
