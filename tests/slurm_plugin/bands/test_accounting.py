from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.bands.accounting import (
    AssocKey,
    canonical,
    parse_associations,
    parse_dump,
    parse_qos,
    read_accounting,
)
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.errors import SlurmAuthError, SlurmParseError

if TYPE_CHECKING:
    from tests.slurm_plugin.bands.fake_sacctmgr import FakeSacctmgr

FIXTURES = Path(__file__).parents[2] / "data" / "fixtures"
RELEASES = ("22.05.8", "24.11.5", "25.11.7", "26.05.5")


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_qoses_of_every_release_are_read_by_header(release: str) -> None:
    rows = {row.name: row for row in parse_qos((FIXTURES / f"cli-{release}" / "sacctmgr-qos-hdr.txt").read_text())}
    assert rows["borrow2"].priority == 20
    assert rows["borrow"].fields["flags"] == "NoReserve"
    assert rows["risk"].fields["grptres"] == "gres/gpu=4"
    assert rows["risk"].fields["preempt"].split(",")[0] == "borrow"
    assert ("maxtresrunminsperuser" in rows["risk"].fields) == (release != "22.05.8")


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_associations_of_every_release_are_read_by_header(release: str) -> None:
    rows = parse_associations((FIXTURES / f"cli-{release}" / "sacctmgr-assoc.txt").read_text())
    found = {row.key: row for row in rows}
    assert found[AssocKey("rec", "alice")].qos == ("borrow", "borrow2", "normal", "rec")
    assert found[AssocKey("rec", "alice")].default == "rec"
    assert found[AssocKey("rec")].default == ""


def test_a_missing_column_is_named_not_guessed() -> None:
    with pytest.raises(SlurmParseError, match="no column GrpTRES"):
        parse_qos("Name|Priority|GraceTime|Preempt|PreemptMode|MaxTRES\nnormal|0|00:00:00||cluster|\n")


def test_a_line_of_another_length_is_an_error() -> None:
    with pytest.raises(SlurmParseError, match="another length"):
        parse_associations("Account|User|Partition|QOS|Def QOS\nrisk||\n")


def test_a_limit_that_cannot_be_read_names_its_qos() -> None:
    text = "Name|Priority|GraceTime|Preempt|PreemptMode|GrpTRES|MaxTRES\nodd|0|00:00:00||cluster|cpu=x|\n"
    with pytest.raises(SlurmParseError, match="QOS odd"):
        parse_qos(text)


def test_a_dump_keeps_the_signs_and_is_not_fooled_by_a_description() -> None:
    text = (
        "Cluster - 'c':Fairshare=1:QOS='normal'\n"
        "Parent - 'root'\n"
        "Account - 'risk':Description='x:QOS=':Organization='y':DefaultQOS='long':Fairshare=1:QOS='long,normal'\n"
        "Parent - 'risk'\n"
        "User - 'alice':Partition='gpu':DefaultAccount='risk':Fairshare=1:QOS='+debug,-normal'\n"
    )
    found = parse_dump(text)
    assert found[AssocKey("risk")] == (("long", "normal"), "long", "root")
    assert found[AssocKey("risk", "alice", "gpu")].qos == ("+debug", "-normal")


def test_effective_and_own_values_are_joined(fake: FakeSacctmgr) -> None:
    rows = {row.key: row for row in read_accounting(fake, "shop").associations}
    carol = rows[AssocKey("risk", "carol")]
    assert (carol.qos, carol.own_qos, carol.is_inheriting) == (("debug",), ("+debug", "-normal"), True)
    assert not rows[AssocKey("risk", "bob")].is_inheriting


@pytest.mark.parametrize(
    ("keyword", "text", "want"),
    [
        ("grptres", "mem=2G,gres/gpu=0,cpu=4", "cpu=4,gres/gpu=0,mem=2048"),
        ("maxtresperjob", "node=1", "node=1"),
        ("gracetime", "00:01:30", "90"),
        ("gracetime", "", "0"),
        ("preemptmode", "REQUEUE", "requeue"),
        ("preempt", "b,a", "a,b"),
        ("maxwalldurationperjob", "1-00:00:00", "1-00:00:00"),
    ],
)
def test_equal_values_have_one_spelling(keyword: str, text: str, want: str) -> None:
    assert canonical(keyword, text) == want


def test_who_may_not_dump_is_told_what_to_do() -> None:
    def refuse(_command: Command) -> CommandResult:
        return CommandResult(1, "", "Your uid (64030) is not in the accounting system, can't dump cluster.\n")

    with pytest.raises(SlurmAuthError, match="Run as root, or make SlurmUser"):
        read_accounting(refuse, "shop")
