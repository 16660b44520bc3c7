from __future__ import annotations

from collections import Counter

import pytest

from policies.records import JobId, QosRecord
from slurm_plugin.client import CliSettings, CliSlurm, UpdateStatus
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.client.qos import ASSOC_MGR, RETRY_AFTER_S, QosReader, is_qos_name, parse_assoc_mgr, parse_limits
from slurm_plugin.errors import SlurmError, SlurmUnavailable

LINE = (
    "QOS=fg_prod_risk(7) UsageRaw=0.5 GrpJobs=N(0) GrpTRES=cpu=100(4),mem=524288(0),energy=N(0),node=N(1),"
    "gres/gpu=8(3),gres/gpu:a100=0(0) GrpTRESMins=cpu=9(0) GrpTRESRunMins=cpu=N(0) MaxWallPJ= "
    "MaxTRESPJ=mem=524288,node=2,gres/gpu=4 MaxTRESPN= MinTRESPJ= PreemptMode=REQUEUE Priority=1000 "
    "Account Limits= risk={MaxJobsPA=N(0) MaxTRESPA=cpu=N(4) Priority=3} User Limits= alice(2001)={GrpTRES=cpu=1(0)}"
)


class Answers:
    """What slurmctld and slurmdbd say; slurmdbd may be away."""

    def __init__(self) -> None:
        self.database = "fg_prod_risk|00:00:30|fg_prod_rec_opp,fg_prod_rec_borrow\n"
        self.is_away = False
        self.n_asked = 0
        self.now_s = 0.0

    def __call__(self, argv: tuple[str, ...]) -> str:
        if argv == ASSOC_MGR:
            return LINE + "\n"
        self.n_asked += 1
        if self.is_away:
            raise SlurmError("sacctmgr: Problem talking to the database")
        return self.database


def reader(answers: Answers) -> QosReader:
    return QosReader(ask=answers, now=lambda: answers.now_s)


def test_a_line_gives_limits_and_zeros_and_ignores_what_users_have() -> None:
    problems: Counter[str] = Counter()
    assert parse_assoc_mgr(f"Current Association Manager state\n\nQOS Records\n\n{LINE}\n", problems) == (
        QosRecord(
            name="fg_prod_risk",
            priority=1000,
            preempt_mode="requeue",
            grp_tres=(("cpu", 100), ("gres/gpu", 8), ("gres/gpu:a100", 0), ("mem", 524288)),
            max_tres_per_job=(("gres/gpu", 4), ("mem", 524288), ("node", 2)),
        ),
    )
    assert not problems


def test_lists_and_grace_come_from_the_database() -> None:
    (record,) = reader(Answers()).read(Counter())
    assert (record.preempt, record.grace_s) == (("fg_prod_rec_borrow", "fg_prod_rec_opp"), 30)


def test_a_database_that_is_away_leaves_the_last_lists_and_is_not_asked_each_cycle() -> None:
    answers, problems = Answers(), Counter[str]()
    asked = reader(answers)
    before = asked.read(problems)
    answers.is_away = True
    assert asked.read(problems) == before
    assert asked.read(problems) == before
    assert answers.n_asked == 2
    assert sum(problems.values()) == 2
    answers.is_away, answers.now_s, answers.database = False, RETRY_AFTER_S, "fg_prod_risk|00:00:30|\n"
    assert asked.read(problems)[0].preempt == ()


@pytest.mark.parametrize("line", ["QOS=x", "QOS=x(1) GrpTRES=cpu=many(0) Priority=1", "QOS=x(1) Priority=high"])
def test_a_damaged_line_costs_itself_and_is_counted(line: str) -> None:
    problems: Counter[str] = Counter()
    assert [record.name for record in parse_assoc_mgr(f"{line}\n{LINE}", problems)] == ["fg_prod_risk"]
    assert problems == {"QOS line of scontrol not understood": 1}


def test_no_limits_are_none() -> None:
    assert parse_limits("") == ()


@pytest.mark.parametrize("name", ["normal", "fg_prod_risk-a_opp", "a.b"])
def test_plain_names_may_stand_in_a_command(name: str) -> None:
    assert is_qos_name(name)


@pytest.mark.parametrize("name", ["", "a b", "a\nupdate jobid=1", "-i", "a,b", "a'", "ü", "a" * 200])
def test_other_texts_never_reach_scontrol(name: str) -> None:
    asked: list[Command] = []

    def run(command: Command) -> CommandResult:
        asked.append(command)
        return CommandResult(0, "", "")

    slurm = CliSlurm(CliSettings(runner=run))
    good, bad, last = slurm.set_job_qos([(JobId("1"), "normal"), (JobId("2"), name), (JobId("3"), "normal")])
    assert [good.status, bad.status, last.status] == [UpdateStatus.OK, UpdateStatus.REJECTED, UpdateStatus.OK]
    assert [command.stdin for command in asked] == ["update jobid=1 QOS=normal\nupdate jobid=3 QOS=normal\n"]


@pytest.mark.parametrize("name", ["fg_prod_risk_borrow", "fg_prod_risk_opp"])
def test_a_move_onto_borrowed_quota_makes_the_job_requeueable_in_the_same_update(name: str) -> None:
    asked: list[Command] = []

    def run(command: Command) -> CommandResult:
        asked.append(command)
        return CommandResult(0, "", "")

    CliSlurm(CliSettings(runner=run)).set_job_qos([(JobId("1"), name), (JobId("2"), "fg_prod_risk")])
    want = f"update jobid=1 QOS={name} Requeue=1\nupdate jobid=2 QOS=fg_prod_risk\n"
    assert [command.stdin for command in asked] == [want]


def test_a_controller_that_is_away_is_an_error() -> None:
    def run(_: Command) -> CommandResult:
        return CommandResult(1, "", "Unable to contact slurm controller (connect failure)\n")

    with pytest.raises(SlurmUnavailable):
        CliSlurm(CliSettings(runner=run)).fetch_qos()
