from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.records import JobState
from slurm_plugin import translate
from slurm_plugin.translate import GresCount

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("16", 16),
        ("-200", -200),
        ("2K", 2048),
        ("2-4", 2),
        ("0", 0),
        ("N/A", None),
        ("(null)", None),
        ("", None),
        ("UNLIMITED", None),
        ("4294967294", None),
        ("65534", None),
        ("18446744073709551615", None),
    ],
)
def test_counts(raw: str, want: int | None) -> None:
    assert translate.parse_count(raw) == want


@pytest.mark.parametrize("raw", ["x", "1x", "-", "--1", "1e5", "\u00b2", "\u0661", "-\u0661"])
def test_a_text_that_is_no_count_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        translate.parse_count(raw)


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("1-12:00:00", 129_600),
        ("2:00:00", 7200),
        ("30:00", 1800),
        ("59", 59),
        ("1-00", 86_400),
        ("1-02:30", 95_400),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("INVALID", None),
    ],
)
def test_durations(raw: str, want: int | None) -> None:
    assert translate.parse_duration_s(raw) == want


def test_a_text_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="no duration"):
        translate.parse_duration_s("soon")


@pytest.mark.parametrize(
    ("raw", "want"),
    [("16G", 16384), ("2000M", 2000), ("1.50T", 1_572_864), ("512K", 0), ("64000", 64000), ("N/A", None)],
)
def test_memory_is_whole_mib(raw: str, want: int | None) -> None:
    assert translate.parse_memory_mib(raw) == want


def test_times_are_epoch_seconds_or_absent() -> None:
    assert translate.parse_time_s("1796049921") == 1_796_049_921
    assert translate.parse_time_s("0") is None
    assert translate.parse_time_s("N/A") is None
    assert translate.parse_time_s("Unknown") is None


def test_an_iso_time_is_local_time() -> None:
    one_hour = translate.parse_time_s("2026-11-30T14:00:00"), translate.parse_time_s("2026-11-30T13:00:00")
    assert one_hour[0] is not None
    assert one_hour[1] is not None
    assert one_hour[0] - one_hour[1] == 3600


def test_tres_keep_what_can_be_shared_out() -> None:
    raw = "cpu=2,mem=2000M,node=1,billing=2,gres/gpu=2,gres/gpu:a100=2,license/x=3,energy=5"
    want = (("cpu", 2), ("gres/gpu", 2), ("gres/gpu:a100", 2), ("license/x", 3), ("mem", 2000))
    assert translate.parse_tres(raw) == want


def test_absent_tres_are_empty() -> None:
    assert translate.parse_tres("(null)") == translate.parse_tres("N/A") == translate.parse_tres("cpu=0") == ()


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("gpu:a100:4(S:0-1)", [("gpu", "a100", 4)]),
        ("gpu:a100:2(S:0,2),gpu:h100:1(S:1)", [("gpu", "a100", 2), ("gpu", "h100", 1)]),
        ("gres:gpu:2", [("gpu", "", 2)]),
        ("gres/gpu:a100:2", [("gpu", "a100", 2)]),
        ("gres/gpu:h100=1", [("gpu", "h100", 1)]),
        ("gres/gpu=1", [("gpu", "", 1)]),
        ("cpu=4,gres/gpu=2", [("gpu", "", 2)]),
        ("cpu:4,gres/gpu:2", [("cpu", "", 4), ("gpu", "", 2)]),
        ("gpu", [("gpu", "", 1)]),
        ("gpu:a100", [("gpu", "a100", 1)]),
        ("shard:16,gpu:0", [("shard", "", 16), ("gpu", "", 0)]),
        ("gres:gpu:2K", [("gpu", "", 2048)]),
        ("(null)", []),
        ("N/A", []),
    ],
)
def test_gres_in_every_spelling(raw: str, want: list[tuple[str, str, int]]) -> None:
    assert list(translate.parse_gres(raw)) == [GresCount(*entry) for entry in want]


def test_a_gres_count_knows_its_tres_names() -> None:
    typed, untyped = translate.parse_gres("gpu:a100:4,gpu:2")
    assert (typed.tres, typed.typed_tres) == ("gres/gpu", "gres/gpu:a100")
    assert untyped.typed_tres == ""


@pytest.mark.parametrize(
    ("raw", "want"),
    [("0,2-5%2", 5), ("1-9999:2", 5000), ("7", 1), ("0-1,4,9-10%1", 5), ("1,4,9,...", None), ("5-1", None), ("", None)],
)
def test_tasks_of_an_array_are_counted(raw: str, want: int | None) -> None:
    assert translate.count_tasks(raw) == want


def test_a_huge_range_is_no_array() -> None:
    assert translate.count_tasks("0-99999999999999") is None


@pytest.mark.parametrize(("raw", "want"), [("0,2-5%2", "0,2-5"), ("1-7:3", "1,4,7"), ("1,...", ""), ("3-4:1", "3-4")])
def test_task_lists_for_scontrol_have_no_step_and_no_limit(raw: str, want: str) -> None:
    assert translate.expand_steps(raw) == want


@pytest.mark.parametrize(("tasks", "want"), [([], ""), ([7], "7"), ([5, 4, 0, 4], "0,4-5"), (range(3), "0-2")])
def test_task_numbers_are_written_as_slurm_does(tasks: Iterable[int], want: str) -> None:
    assert translate.task_expression(tasks) == want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("RUNNING", JobState.RUNNING),
        ("RUNNING+COMPLETING", JobState.RUNNING),
        ("FROBNICATED", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
    ],
)
def test_job_states(raw: str, want: JobState) -> None:
    assert translate.parse_job_state(raw) is want


def test_the_default_partition_loses_its_mark() -> None:
    assert translate.parse_partition("main*") == ("main", True)
    assert translate.parse_partition("alt") == ("alt", False)
