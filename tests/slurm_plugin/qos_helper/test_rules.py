"""Hostile requests: only this site's own QOSes, only the exact form of each value."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.records import AccountName, AgentName, PartitionName
from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.hook.wire import WireError
from slurm_plugin.qos_helper.request import QosChange, Setting, group_changes, parse_change
from slurm_plugin.qos_helper.rules import HelperRules, RefusedError
from slurm_plugin.qos_helper.service import QosHelperService

if TYPE_CHECKING:
    from collections.abc import Mapping

SITE = SitePolicy(
    cluster="Prod",
    partitions=(PartitionName("gpu"),),
    agents=tuple(
        AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=Fraction(1))
        for name in ("rec", "risk")
    ),
    bands=BandPolicy(),
)
RULES = HelperRules.from_policy(SITE)
G, B, OPP = "fg_prod_risk", "fg_prod_risk_borrow", "fg_prod_risk_opp"
FINE = [
    {"qos": B, "setting": "priority", "value": "2"},
    {"qos": f"fg_prod_rec_borrow,{B}", "setting": "priority", "value": "9"},
    {"qos": G, "setting": "preempt", "value": f"fg_prod_rec_borrow,{B},{OPP}"},
    {"qos": G, "setting": "preempt", "value": ""},
    {"qos": B, "setting": "preempt", "value": f"fg_prod_rec_opp,{OPP}"},
    # a retired agent's
    {"qos": G, "setting": "preempt", "value": f"fg_prod_gone_borrow,fg_prod_gone_opp,{B}"},
    {"qos": B, "setting": "preempt", "value": "fg_prod_gone_opp"},
    {"qos": f"{G},{B}", "setting": "grp_tres", "value": "cpu=64,mem=524288,gres/gpu=8,gres/gpu:a100=0"},
]
REFUSED = [
    # not ours
    {"qos": "normal", "setting": "priority", "value": "2"},
    {"qos": "fg_other_risk_borrow", "setting": "priority", "value": "2"},
    {"qos": "fg_prod_nobody_borrow", "setting": "priority", "value": "2"},
    {"qos": "fg_prod_risk_borrow ", "setting": "priority", "value": "2"},
    {"qos": "FG_PROD_RISK_BORROW", "setting": "priority", "value": "2"},
    {"qos": f"{B},normal", "setting": "priority", "value": "2"},
    {"qos": "", "setting": "priority", "value": "2"},
    {"qos": f"{B},{B}", "setting": "priority", "value": "2"},
    {"qos": f"{B},fg_prod_rec_borrow", "setting": "priority", "value": "2"},
    {"qos": f"{B} set priority=9", "setting": "priority", "value": "2"},
    {"qos": f"where name={B}", "setting": "priority", "value": "2"},
    # the wrong band
    {"qos": G, "setting": "priority", "value": "2"},
    {"qos": OPP, "setting": "priority", "value": "2"},
    {"qos": OPP, "setting": "preempt", "value": OPP},
    {"qos": B, "setting": "preempt", "value": B},
    {"qos": f"{G},{B}", "setting": "preempt", "value": B},
    {"qos": OPP, "setting": "grp_tres", "value": "gres/gpu=8"},
    {"qos": G, "setting": "preempt", "value": "fg_prod_rec"},
    {"qos": B, "setting": "preempt", "value": "fg_prod_gone_borrow"},
    {"qos": G, "setting": "preempt", "value": "fg_prod_gone"},
    {"qos": G, "setting": "preempt", "value": "fg_other_gone_opp"},
    {"qos": G, "setting": "preempt", "value": f"{B},scav"},
    {"qos": G, "setting": "preempt", "value": "scav_opp"},
    {"qos": OPP, "setting": "preempt", "value": "fg_prod_gone_opp"},
    # the value
    *(
        {"qos": B, "setting": "priority", "value": text}
        for text in ("", "1", "10", "65534", "-2", "+2", "02", "2 ", "٢", "2\n")
    ),
    *(
        {"qos": G, "setting": "preempt", "value": text}
        for text in ("normal", ",", f"{B},", f"{OPP},{B}", f"{B},{B}", "''", f"{B} GraceTime=0", "fg_prod_risk")
    ),
    *(
        {"qos": G, "setting": "grp_tres", "value": text}
        for text in (
            "",
            "gpu=1",
            "gres/gpu=-1",
            "gres/gpu=1e9",
            "cpu=1,cpu=2",
            "cpu=1 Priority=9",
            "cpu=01",
            "cpu=9" * 99,
        )
    ),
]
DAMAGED: list[Mapping[str, str]] = [
    {},
    {"qos": B, "setting": "priority"},
    {"qos": B, "setting": "priority", "value": "2", "cluster": "prod"},
    {"qos": B, "setting": "Priority", "value": "2"},
    {"qos": B, "setting": "flags", "value": "NoReserve"},
]


class Sacctmgr:
    """Remembers what was run."""

    def __init__(self, result: CommandResult | None = None) -> None:
        self.ran: list[tuple[str, ...]] = []
        self._result = result

    def __call__(self, command: Command) -> CommandResult:
        self.ran.append(command.argv)
        if self._result is None:
            raise SlurmUnavailable("sacctmgr did not end within 10 s")
        return self._result


def ask(fields: Mapping[str, str], sacctmgr: Sacctmgr) -> dict[str, str]:
    return QosHelperService(rules=RULES, runner=sacctmgr).answer("Q", fields, 0.0)


@pytest.mark.parametrize("fields", FINE)
def test_changes_within_the_rules_run_one_command(fields: dict[str, str]) -> None:
    sacctmgr = Sacctmgr(CommandResult(0, " Modified qos...\n", ""))
    assert ask(fields, sacctmgr) == {"verdict": "done", "text": ""}
    words = {"priority": "Priority=", "preempt": "Preempt=", "grp_tres": "GrpTRES="}
    assignment = words[fields["setting"]] + fields["value"]
    assert sacctmgr.ran == [("sacctmgr", "-i", "modify", "qos", fields["qos"], "set", assignment)]


@pytest.mark.parametrize("fields", REFUSED)
def test_anything_else_is_refused_and_runs_nothing(fields: dict[str, str]) -> None:
    sacctmgr = Sacctmgr(CommandResult(0, "", ""))
    reply = ask(fields, sacctmgr)
    assert reply["verdict"] == "refused"
    assert reply["text"]
    assert sacctmgr.ran == []


@pytest.mark.parametrize("fields", DAMAGED)
def test_a_request_of_another_form_gets_no_answer(fields: Mapping[str, str]) -> None:
    with pytest.raises(WireError):
        ask(fields, Sacctmgr())


def test_another_operation_gets_no_answer_and_a_ping_does() -> None:
    service = QosHelperService(rules=RULES, runner=Sacctmgr())
    assert service.answer("P", {}, 0.0)["verdict"] == "done"
    with pytest.raises(WireError, match="no operation"):
        service.answer("S", FINE[0], 0.0)


def test_what_sacctmgr_says_comes_back() -> None:
    said = ask(FINE[0], Sacctmgr(CommandResult(1, " Nothing modified\n", "")))
    assert said == {"verdict": "failed", "text": "Nothing modified"}


def test_a_slurmdbd_that_is_away_or_hangs_is_no_refusal() -> None:
    gone = CommandResult(1, "", "sacctmgr: error: Sending PersistInit msg: Unable to connect to database\n")
    assert ask(FINE[0], Sacctmgr(gone))["verdict"] == "away"
    assert ask(FINE[0], Sacctmgr())["verdict"] == "away"


def test_without_bands_nothing_is_accepted() -> None:
    rules = HelperRules.from_policy(replace(SITE, bands=None))
    with pytest.raises(RefusedError):
        rules.check(parse_change(FINE[0]))


@given(qos=st.text(max_size=60), setting=st.sampled_from(list(Setting)), value=st.text(max_size=60))
def test_no_random_text_reaches_sacctmgr(qos: str, setting: Setting, value: str) -> None:
    sacctmgr = Sacctmgr(CommandResult(0, "", ""))
    assert ask({"qos": qos, "setting": setting.value, "value": value}, sacctmgr)["verdict"] == "refused"
    assert not sacctmgr.ran


def test_equal_values_go_in_one_change() -> None:
    wanted = [("b", Setting.PRIORITY, "2"), ("c", Setting.PRIORITY, "3"), ("a", Setting.PRIORITY, "2")]
    assert group_changes(wanted) == (
        QosChange(names=("a", "b"), setting=Setting.PRIORITY, value="2"),
        QosChange(names=("c",), setting=Setting.PRIORITY, value="3"),
    )
