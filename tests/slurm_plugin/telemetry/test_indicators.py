from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from policies.records import AgentName, IndicatorSample
from slurm_plugin.telemetry import parse_indicators, read_indicators

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = 1_000_000.0
P99 = "fairgpu_agent_p99_latency_seconds"
ERRORS = "fairgpu_agent_error_rate"


def sample(agent: str, name: str, value: float, at_s: float = 900.0) -> IndicatorSample:
    return IndicatorSample(agent=AgentName(agent), name=name, value=value, at_s=at_s)


def parse(text: str) -> tuple[tuple[IndicatorSample, ...], dict[str, int]]:
    reading = parse_indicators(text, modified_s=900.0, now_s=NOW_S)
    return reading.samples, dict(reading.problems)


def test_both_indicators_are_read() -> None:
    text = f'# TYPE {P99} gauge\n{P99}{{agent="risk"}} 0.18\n{ERRORS}{{agent="risk"}} 4e-4\nother_metric 5\n\n'
    want = (sample("risk", "error_rate_frac", 4e-4), sample("risk", "p99_latency_s", 0.18))
    assert parse(text) == (want, {})


def test_a_time_stamp_is_milliseconds() -> None:
    assert parse(f'{P99}{{agent="risk"}} 0.18 800500')[0] == (sample("risk", "p99_latency_s", 0.18, 800.5),)


def test_labels_may_hold_escapes_and_braces() -> None:
    samples, problems = parse(f'{P99}{{zone="a}}b",agent="x\\"y\\\\z\\n, agent=\\"root"}} 1\n')
    assert [found.agent for found in samples] == ['x"y\\z\n, agent="root']
    assert problems == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.1"])
def test_values_that_are_no_measurement_are_counted(value: str) -> None:
    assert parse(f'{P99}{{agent="risk"}} {value}') == ((), {"indicator that is negative or no number": 1})


@pytest.mark.parametrize(
    "line",
    [
        f'{P99}{{agent="risk" 0.18',
        f'{P99}{{agent="risk"}} abc',
        f'{P99}{{agent="risk"}}',
        f"{P99}{{agent=risk}} 0.18",
        f'{P99}{{agent="risk"}} 0.18 soon',
        f"{P99}{{",
    ],
)
def test_a_bad_line_is_counted_and_harms_no_other(line: str) -> None:
    samples, problems = parse(f'{line}\n{P99}{{agent="rec"}} 0.2\n')
    assert [found.agent for found in samples] == ["rec"]
    assert problems == {"indicator line not understood": 1}


def test_an_indicator_without_an_agent_is_counted() -> None:
    assert parse(f"{P99} 0.18") == ((), {"indicator without an agent label": 1})


def test_a_metric_with_a_longer_name_is_another_metric() -> None:
    assert parse(f'{P99}_max{{agent="risk"}} 0.18') == ((), {})


def test_of_two_values_the_newer_one_counts() -> None:
    samples, problems = parse(f'{P99}{{agent="risk"}} 1 800000\n{P99}{{agent="risk"}} 2 700000\n')
    assert [found.value for found in samples] == [1.0]
    assert problems == {"indicator given twice, the newer one counts": 1}


def test_a_time_stamp_from_the_future_would_never_grow_old() -> None:
    text = f'{P99}{{agent="risk"}} 0.18 {int(NOW_S + 61) * 1000}'
    assert parse(text) == ((), {"indicator with a time stamp in the future": 1})


def test_a_file_without_time_stamps_is_as_old_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "fairgpu.prom"
    path.write_text(f'{P99}{{agent="risk"}} 0.18\n', encoding="utf-8")
    os.utime(path, (500.0, 500.0))
    assert read_indicators(path, now_s=NOW_S).samples == (sample("risk", "p99_latency_s", 0.18, 500.0),)


def test_bytes_that_are_no_text_harm_only_their_line(tmp_path: Path) -> None:
    path = tmp_path / "fairgpu.prom"
    path.write_bytes(b"\xff\xfe\x00\n" + f'{P99}{{agent="risk"}} 0.18\n'.encode())
    os.utime(path, (500.0, 500.0))
    assert len(read_indicators(path, now_s=NOW_S).samples) == 1


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert read_indicators(path, now_s=NOW_S).problems == ((f"{path}: No such file or directory", 1),)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "fairgpu.prom"
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert read_indicators(path, now_s=NOW_S).problems == ((f"{path}: larger than 1 MiB", 1),)


def test_a_pipe_does_not_block_the_cycle(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert read_indicators(path, now_s=NOW_S).problems == ((f"{path}: not a regular file", 1),)
