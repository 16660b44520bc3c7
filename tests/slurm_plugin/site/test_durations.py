from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.site.durations import format_duration, parse_duration_s


@pytest.mark.parametrize(
    ("text", "want_s"),
    [
        ("20ms", 0.02),
        ("5s", 5.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1.5m", 90.0),
        ("0s", 0.0),
        (" 7us ", 7e-6),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, want_s: float) -> None:
    assert parse_duration_s(text) == want_s


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "1h30m", "nan", "infs", "1e3s", "5 s", "5S", "5.s", "\u0665s"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as"):
        parse_duration_s(text)


@given(st.integers(0, 10**9), st.sampled_from(["us", "ms", "s", "m", "h", "d"]))
def test_a_printed_duration_reads_back_as_itself(count: int, unit: str) -> None:
    seconds = parse_duration_s(f"{count}{unit}")
    assert parse_duration_s(format_duration(seconds)) == pytest.approx(seconds, rel=1e-9)
