from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.client.command import Command, CommandResult, ProcessRunner, check, clean_environment
from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmUnavailable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    def program(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    program("say", r"""printf 'a\377b|%s|%s' "$1" "$SLURM_TIME_FORMAT" """)
    program("echo-in", "cat; echo oops >&2; exit 3")
    program("hang", "exec sleep 60")
    return ProcessRunner(bin_dir=tmp_path)


def command(*argv: str, stdin: str = "", timeout_s: float = 10.0, is_merged: bool = False) -> Command:
    return Command(argv=argv, stdin=stdin, timeout_s=timeout_s, is_merged=is_merged)


def test_arguments_reach_the_program_as_they_are_and_any_bytes_come_back(runner: ProcessRunner) -> None:
    assert runner(command("say", "$(x); 'y'")).stdout == "a\\xffb|$(x); 'y'|%s"


def test_exit_status_and_both_streams_come_back(runner: ProcessRunner) -> None:
    assert runner(command("echo-in", stdin="in\n")) == CommandResult(3, "in\n", "oops\n")


def test_streams_can_be_merged(runner: ProcessRunner) -> None:
    assert runner(command("echo-in", stdin="in\n", is_merged=True)) == CommandResult(3, "in\noops\n", "")


def test_a_program_that_hangs_is_unavailable(runner: ProcessRunner) -> None:
    with pytest.raises(SlurmUnavailable, match=r"hang did not end within 0\.1 s"):
        runner(command("hang", timeout_s=0.1))


def test_a_program_that_is_not_there_is_unavailable(runner: ProcessRunner) -> None:
    with pytest.raises(SlurmUnavailable, match="nothing cannot be run"):
        runner(command("nothing"))


def test_a_prefix_gets_the_format_variables_as_words(tmp_path: Path) -> None:
    result = ProcessRunner(prefix=("echo", str(tmp_path)))(command("squeue", "-a"))
    assert result.stdout.split()[1:] == [
        "env",
        "LC_ALL=C",
        "SLURM_TIME_FORMAT=%s",
        "SLURM_BITSTR_LEN=0",
        "squeue",
        "-a",
    ]


def test_variables_that_change_slurms_answers_are_dropped() -> None:
    before = {"PATH": "/bin", "SLURM_CONF": "/c", "SLURM_CLUSTERS": "x", "SQUEUE_FORMAT": "%i", "SLURM_JOB_ID": "1"}
    after = clean_environment(before)
    assert after["SLURM_CONF"] == "/c"
    assert after["PATH"] == "/bin"
    assert not {"SLURM_CLUSTERS", "SQUEUE_FORMAT", "SLURM_JOB_ID"} & set(after)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailable),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", SlurmUnavailable),
        ("slurm_load_jobs error: Protocol authentication error", SlurmUnavailable),
        ("scontrol: Access/permission denied", SlurmAuthError),
        ("something else", SlurmError),
        ("", SlurmError),
    ],
)
def test_errors_are_told_apart_by_what_can_be_done(message: str, error: type[SlurmError]) -> None:
    with pytest.raises(SlurmError) as caught:
        check(CommandResult(1, "", message), ("squeue",))
    assert type(caught.value) is error
    assert str(caught.value).startswith("squeue: ")


def test_a_good_answer_is_given_back_whatever_stderr_says() -> None:
    assert check(CommandResult(0, "rows", "squeue: error: Invalid job format specification"), ("squeue",)) == "rows"
