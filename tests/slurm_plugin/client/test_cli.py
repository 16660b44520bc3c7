from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.records import JobId
from slurm_plugin.client import CliSettings, CliSlurm, UpdateStatus
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.client.table import Separators
from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmParseError, SlurmUnavailable
from tests.slurm_plugin.client.recordings import RecordedCluster, native

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = Separators(cell="_recordedc", row="_recordedr")
NATIVE_FILES = {
    "squeue": "squeue.txt",
    "sprio": "sprio.txt",
    "sinfo": "sinfo.txt",
    "sdiag": "sdiag.txt",
    "scontrol show": "scontrol-config.txt",
    "scontrol ping": "scontrol-ping.txt",
    "scontrol --version": "version.txt",
}


class NativeCluster:
    """Runner that serves the native recording and keeps what was asked; an answer can be replaced."""

    def __init__(self, **answers: CommandResult | Callable[[Command], CommandResult]) -> None:
        self.asked: list[Command] = []
        self._answers = answers

    def __call__(self, command: Command) -> CommandResult:
        self.asked.append(command)
        answer = self._answers.get(command.argv[0])
        if callable(answer):
            return answer(command)
        if answer is not None:
            return answer
        for words, name in NATIVE_FILES.items():
            if " ".join(command.argv).startswith(words):
                return CommandResult(0, native(name), "")
        return CommandResult(0, "", "")


def client(runner: NativeCluster, hostname: str = "ctl") -> CliSlurm:
    return CliSlurm(CliSettings(runner=runner, now=lambda: 1.0, separators=lambda: RECORDED, hostname=hostname))


def test_the_native_recording_is_read_without_a_problem() -> None:
    seen = client(NativeCluster()).observe()
    assert seen.problems == ()
    assert {str(job.job_id): job.site_factor for job in seen.jobs if job.het_job_id} == {
        "22+0": 10,
        "22+1": 3,
        "24+0": 24,
        "24+1": 7,
    }
    assert [node.is_schedulable for node in seen.nodes] == [True, True, True, False]


def test_the_cluster_is_asked_for_its_name_once() -> None:
    runner = NativeCluster()
    slurm = client(runner)
    slurm.observe()
    slurm.observe()
    assert [command.argv[0] for command in runner.asked].count("scontrol") == 1


def test_each_call_has_separators_of_its_own() -> None:
    runner = RecordedCluster(release="25.11.7")
    formats: list[str] = []

    def spy(command: Command) -> CommandResult:
        formats.append(command.argv[-1])
        return runner(command)

    CliSlurm(CliSettings(runner=spy)).observe()
    tails = {text[-13:] for text in formats if text.endswith("r")}
    assert len(tails) == 3


def test_where_squeue_prints_tasks_only_they_are_asked_for_once_that_is_known() -> None:
    def squeue(command: Command) -> CommandResult:
        if "--array-unique" in command.argv:
            return CommandResult(1, "", "squeue: unrecognized option '--array-unique'\nTry \"squeue --help\"\n")
        return CommandResult(0, native("squeue.txt"), "")

    runner = NativeCluster(squeue=squeue)
    slurm = client(runner)
    assert slurm.observe() == client(NativeCluster()).observe()
    slurm.observe()
    asked = [command.argv[3] for command in runner.asked if command.argv[0] == "squeue"]
    assert asked == ["--array-unique", "--array", "--array"]


def test_another_complaint_of_squeue_is_not_taken_for_a_missing_option() -> None:
    runner = NativeCluster(squeue=CommandResult(1, "", "squeue: unrecognized option '--local'\n"))
    with pytest.raises(SlurmError, match="--local"):
        client(runner).observe()
    assert [command.argv[0] for command in runner.asked].count("squeue") == 1


def test_updates_of_a_partly_started_array_reach_only_its_waiting_tasks() -> None:
    runner = NativeCluster()
    slurm = client(runner)
    slurm.observe()
    slurm.set_site_factors([(JobId("18"), 5), (JobId("18_0"), 6), (JobId("3"), 7)])
    assert runner.asked[-1].stdin == (
        "update jobid=18_[3-9] SiteFactor=5\nupdate jobid=18_0 SiteFactor=6\nupdate jobid=3 SiteFactor=7\n"
    )
    assert runner.asked[-1].is_merged


def test_a_text_that_is_no_job_id_never_reaches_scontrol() -> None:
    runner = NativeCluster()
    (found,) = client(runner).set_site_factors([(JobId("1 priority=9\nupdate jobid=2"), 5)])
    assert found.status is UpdateStatus.REJECTED
    assert runner.asked == []


def test_many_updates_go_in_chunks() -> None:
    runner = NativeCluster()
    slurm = CliSlurm(CliSettings(runner=runner, updates_per_process=2))
    outcomes = slurm.set_site_factors([(JobId(str(number)), 1) for number in range(1, 6)])
    assert [command.stdin.count("\n") for command in runner.asked] == [2, 2, 1]
    assert {found.status for found in outcomes} == {UpdateStatus.OK}


def test_updates_that_no_message_named_are_asked_one_by_one() -> None:
    def scontrol(command: Command) -> CommandResult:
        if command.argv == ("scontrol",):
            return CommandResult(1, "slurm_update error: odd\n", "")
        return CommandResult(1, "", "odd\n") if "jobid=2" in command.argv else CommandResult(0, "", "")

    runner = NativeCluster(scontrol=scontrol)
    outcomes = client(runner).set_site_factors([(JobId("1"), 5), (JobId("2"), 5)])
    assert [(found.status, found.text) for found in outcomes] == [
        (UpdateStatus.OK, ""),
        (UpdateStatus.REJECTED, "odd"),
    ]


def test_no_operator_is_an_error() -> None:
    text = "scontrol: update jobid=1 SiteFactor=5\nAccess/permission denied for job 1\n"
    with pytest.raises(SlurmAuthError, match="Operator"):
        client(NativeCluster(scontrol=CommandResult(1, text, ""))).set_site_factors([(JobId("1"), 5)])


@pytest.mark.parametrize(
    "text",
    ["Unable to contact slurm controller (connect failure) for job 1", "Unexpected message received for job 1"],
)
def test_a_controller_that_goes_away_during_updates_is_unavailable(text: str) -> None:
    with pytest.raises(SlurmUnavailable):
        client(NativeCluster(scontrol=CommandResult(1, text, ""))).set_site_factors([(JobId("1"), 5)])


def test_a_controller_that_is_away_is_unavailable() -> None:
    away = CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    with pytest.raises(SlurmUnavailable, match="squeue"):
        client(NativeCluster(squeue=away)).observe()
    with pytest.raises(SlurmUnavailable, match="sprio"):
        client(NativeCluster(sprio=away)).observe()


def test_without_multifactor_priority_there_are_no_site_factors() -> None:
    refused = CommandResult(1, "", "You are not running a supported priority plugin\n(priority/basic).\n")
    seen = client(NativeCluster(sprio=refused)).observe()
    assert all(job.site_factor is None for job in seen.jobs)
    assert len(seen.problems) == 1


def test_an_answer_without_a_needed_column_names_it() -> None:
    text = native("squeue.txt").replace("TRES_ALLOC_recordedc", "", 1)
    with pytest.raises(SlurmParseError) as caught:
        client(NativeCluster(squeue=CommandResult(0, text, ""))).observe()
    assert caught.value.field == "tres-alloc"


@pytest.mark.parametrize(
    ("ping", "hostname", "want"),
    [
        ("Slurmctld(primary) at ctl is UP", "elsewhere", True),
        ("Slurmctld(primary) at ctl is DOWN", "ctl", False),
        ("Slurmctld(primary) at c1 is UP\nSlurmctld(backup) at c2 is UP", "c1.example.org", True),
        ("Slurmctld(primary) at c1 is UP\nSlurmctld(backup) at c2 is UP", "c2", False),
        ("Slurmctld(primary) at c1 is DOWN\nSlurmctld(backup1) at c2 is UP", "c2", True),
        ("Slurmctld(primary) at c1 is DOWN\nSlurmctld(backup1) at c2 is DOWN", "c2", False),
    ],
)
def test_which_controller_acts(ping: str, hostname: str, want: bool) -> None:  # noqa: FBT001 - the table's column
    runner = NativeCluster(scontrol=CommandResult(1, ping, ""))
    assert client(runner, hostname).is_primary() is want


def test_a_ping_that_says_nothing_is_an_error() -> None:
    with pytest.raises(SlurmError):
        client(NativeCluster(scontrol=CommandResult(1, "", "odd"))).is_primary()


def test_statistics_and_configuration_have_keys() -> None:
    slurm = client(NativeCluster())
    diag, config = slurm.fetch_diag(), slurm.fetch_config()
    assert diag["Remote Procedure Call statistics by message type/REQUEST_JOB_INFO"].startswith("count:")
    assert diag["Main schedule statistics (microseconds)/Last cycle"].isdecimal()
    assert config["SlurmctldHost[0]"].startswith("ctl(")
    assert slurm.version() == "22.05.8"
