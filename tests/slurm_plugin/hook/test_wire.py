import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.hook.wire import (
    HEADER_BYTES,
    MAX_BODY_BYTES,
    MAX_FIELDS,
    WireError,
    encode_frame,
    parse_fields,
    parse_header,
    split_frame,
)

names = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
values = st.binary(max_size=200)


@given(op=st.sampled_from("SMPR"), fields=st.dictionaries(names, values, max_size=12))
def test_a_frame_gives_back_its_fields(op: str, fields: dict[str, bytes]) -> None:
    raw = encode_frame(op, fields)
    header = parse_header(raw)
    assert (header.op, header.body_bytes) == (op, len(raw) - HEADER_BYTES)
    got = parse_fields(raw[HEADER_BYTES:])
    assert {name: value.encode("utf-8", "surrogateescape") for name, value in got.items()} == fields


def test_a_value_that_looks_like_a_field_stays_a_value() -> None:
    hostile = "x,7:account,4:risk,"
    raw = encode_frame("S", {"comment": hostile, "account": "rec"})
    assert parse_fields(raw[HEADER_BYTES:]) == {"comment": hostile, "account": "rec"}


def test_nul_and_invalid_utf8_survive() -> None:
    raw = encode_frame("S", {"comment": b"a\0b\xff\xfe"})
    assert parse_fields(raw[HEADER_BYTES:])["comment"] == "a\0b\udcff\udcfe"


@given(st.binary(max_size=64))
def test_any_bytes_are_a_header_or_refused(raw: bytes) -> None:
    try:
        header = parse_header(raw)
    except WireError:
        return
    assert raw[:3] == b"FG1"
    assert 0 <= header.body_bytes <= MAX_BODY_BYTES


@given(st.binary(max_size=120))
def test_any_bytes_are_fields_or_refused(body: bytes) -> None:
    try:
        fields = parse_fields(body)
    except WireError:
        return
    assert encode_frame("S", fields)[HEADER_BYTES:] == body


@given(fields=st.dictionaries(names, values, min_size=1, max_size=4), cut=st.integers(min_value=1))
def test_a_cut_body_is_refused(fields: dict[str, bytes], cut: int) -> None:
    body = encode_frame("S", fields)[HEADER_BYTES:]
    shorter = body[: len(body) - 1 - cut % (len(body) - 1)] if len(body) > 1 else b""
    try:
        got = parse_fields(shorter)
    except WireError:
        return
    # What is left is refused, or ends exactly between two fields.
    assert len(got) < len(fields)


BAD_BODIES = {
    "a name twice": b"3:uid,1:1,3:uid,1:2,",
    "upper case in a name": b"3:Uid,1:1,",
    "an empty name": b"0:,1:1,",
    "a leading zero": b"03:uid,1:1,",
    "a negative length": b"-3:uid,1:1,",
    "a length beyond the end": b"3:uid,9:1,",
    "no comma": b"3:uid,1:1;",
    "a name without a value": b"3:uid,",
    "text behind": b"3:uid,1:1,x",
    "a huge length": b"3:uid,99999999999999999999:1,",
    "too many fields": b"".join(b"3:a%02d,1:1," % n for n in range(MAX_FIELDS + 1)),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_damaged_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        parse_fields(body)


BAD_HEADERS = (
    b"",
    b"FG1S",
    b"FG2S00000001",
    b"FG1s00000001",
    b"FG1S0000001x",
    b"FG1S99999999",
    b"GET / HTTP/1",
)


@pytest.mark.parametrize("raw", BAD_HEADERS)
def test_other_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_header(raw)


def test_an_oversized_frame_is_not_made() -> None:
    with pytest.raises(WireError, match="over the limit"):
        encode_frame("S", {"comment": b"x" * MAX_BODY_BYTES})


@given(op=st.sampled_from("SMPR"), fields=st.dictionaries(names, values, max_size=4), data=st.data())
def test_a_frame_is_split_only_when_it_is_whole(op: str, fields: dict[str, bytes], data: st.DataObject) -> None:
    raw = encode_frame(op, fields)
    cut = data.draw(st.integers(0, len(raw) - 1))
    assert split_frame(raw[:cut]) is None
    assert split_frame(bytearray(raw)) == split_frame(raw) == (op, raw[HEADER_BYTES:])
    with pytest.raises(WireError, match="after the request"):
        split_frame(raw + b"x")


def test_more_fields_than_the_limit_are_not_read() -> None:
    # Refused at field 65, however many follow and whatever they are.
    body = b"".join(b"3:a%02d,1:1," % n for n in range(MAX_FIELDS)) + b"garbage"
    with pytest.raises(WireError, match="more than 64 fields"):
        parse_fields(body)
