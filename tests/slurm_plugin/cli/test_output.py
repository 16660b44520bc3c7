from __future__ import annotations

import io
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.site_policy import Mode, SlaTargets
from slurm_plugin.cli._output import clean, echo_json, print_line, print_table, talk


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(*rows: tuple[object, ...], columns: tuple[str, ...] = ("job", "name")) -> str:
    out = io.StringIO()
    print_table("", columns, rows, file=out)
    return out.getvalue()


def test_nothing_is_cut_or_padded_where_stdout_is_no_terminal() -> None:
    text = table((1, "x" * 500))
    assert "x" * 500 in text
    assert all(line == line.rstrip() for line in text.splitlines())


@given(st.text())
def test_no_untrusted_text_can_steer_a_terminal(text: str) -> None:
    shown = clean(text)
    assert not any(char in shown for char in "\x00\x07\x1b\n\r\x9b\u202e\u2066\u2028\ud800")


def test_markup_and_emoji_codes_are_printed_as_written() -> None:
    assert "[bold]a[/bold] :smile:" in table((1, "[bold]a[/bold] :smile:"))


def test_colour_appears_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, pipe = Terminal(), io.StringIO()
    for file in (terminal, pipe):
        print_table("Title", ("a",), [("b",)], file=file)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in pipe.getvalue()


def on_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, columns: tuple[str, ...], *rows: tuple[object, ...]
) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    print_table("", columns, rows, file=terminal)
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_narrow_terminal_cuts_no_cell(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    columns = ("agent", "share", "running", "oldest wait", "holds")
    rows = [("recommender", "0.3750", 12, "1m40s", "cpu=6 mem=393216M"), ("risk", "0.6875", 7, "2m00s", "cpu=22")]
    text = on_terminal(monkeypatch, width, columns, *rows)
    assert all(len(line) <= width for line in text.splitlines())
    words = text.split()
    assert {"recommender", "0.3750", "12", "1m40s", "risk", "0.6875", "7", "2m00s", "cpu=22"} <= set(words)
    # Each further table begins with the agents again.
    assert words.count("risk") == text.count("──\n")


def test_a_wide_terminal_shows_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_terminal(monkeypatch, 60, ("job", "a", "b"), (1, "x" * 20, "y" * 20))
    assert len(text.splitlines()) == 3


def test_long_text_in_the_last_column_folds_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_terminal(monkeypatch, 60, ("kind", "text"), ("reader", "word " * 30))
    assert text.count("reader") == 1
    assert text.split().count("word") == 30


def test_numbers_stand_right_and_absent_values_are_a_dash() -> None:
    lines = table((5, "a"), (123, None)).splitlines()
    assert lines[2].startswith("  5")
    assert lines[3].endswith("-")


def test_json_is_canonical_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json(
        {
            "b": Fraction(3, 5),
            "a": Mode.ENFORCE,
            "c": {2, 1},
            "d": float("inf"),
            "e": Path("/x"),
            "f": SlaTargets(queue_wait_s=1.0),
            "g": ("\u202e", True, None),
        }
    )
    text = capsys.readouterr().out
    assert "\u202e" not in text
    assert json.loads(text) == {
        "a": "enforce",
        "b": "3/5",
        "c": [1, 2],
        "d": None,
        "e": "/x",
        "f": {"queue_wait_s": 1.0, "p99_latency_s": None, "error_rate_frac": None},
        "g": ["\u202e", True, None],
    }
    assert text.index('"a"') < text.index('"b"')


def test_data_goes_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("data\x1b")
    talk("talk\x1b")
    assert capsys.readouterr() == ("data\\x1b\n", "talk\\x1b\n")
