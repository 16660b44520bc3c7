"""``apply`` against a slurmdbd in memory: what comes out, twice, after any kill, and the way back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.bands.accounting import AssocKey
from slurm_plugin.bands.changes import ModifyQos, describe
from slurm_plugin.bands.journal import read_journal
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.errors import SlurmRejected
from tests.slurm_plugin.bands.conftest import SITE, apply_once, difference_of, policy
from tests.slurm_plugin.bands.fake_sacctmgr import Assoc, FakeSacctmgr, Killed, shop

if TYPE_CHECKING:
    from collections.abc import Callable

RISK = ["fg_shop_risk", "fg_shop_risk_borrow", "fg_shop_risk_opp"]


def test_the_guaranteed_qos_has_the_quota_on_every_axis(fields: Callable[[str], dict[str, str]]) -> None:
    found = fields("fg_shop_risk")
    # 24 cpu, 24 gpu, 2400 MiB by 0.6 : 0.3
    assert found["grptres"] == "cpu=16,gres/gpu=16,mem=1600M"
    assert (found["priority"], found["preemptmode"]) == ("100", "cluster")
    assert set(found["preempt"].split(",")) == {f"fg_shop_{one}" for one in ("rec_borrow", "rec_opp", *_risk_loans())}


def _risk_loans() -> tuple[str, str]:
    return "risk_borrow", "risk_opp"


def test_the_borrow_qos_has_the_cap_and_one_node(fields: Callable[[str], dict[str, str]]) -> None:
    found = fields("fg_shop_risk_borrow")
    assert (found["grptres"], found["maxtresperjob"]) == ("cpu=3,gres/gpu=3,mem=320M", "node=1")
    assert (found["gracetime"], found["preemptmode"], found["priority"]) == ("00:00:00", "requeue", "9")
    assert found["preempt"] == "fg_shop_rec_opp,fg_shop_risk_opp"


def test_the_opportunistic_qos_is_unlimited_and_lowest(fields: Callable[[str], dict[str, str]]) -> None:
    found = fields("fg_shop_risk_opp")
    assert (found.get("grptres", ""), found["priority"], found["gracetime"]) == ("", "1", "00:00:00")


def test_limits_of_the_template_are_kept_but_not_what_would_hurt(fields: Callable[[str], dict[str, str]]) -> None:
    found = fields("fg_shop_rec")
    assert found["maxwalldurationperjob"] == "1-00:00:00"
    assert found["flags"] == "OverPartQOS"
    assert "grpjobs" not in found


def test_associations_may_use_their_agents_qoses_and_default_to_the_guaranteed_one(applied: FakeSacctmgr) -> None:
    for key in applied.associations:
        names, default = applied.effective(key)
        if key[0] == "risk":
            assert set(RISK) <= set(names), key
            assert default == "fg_shop_risk", key
    assert applied.effective(("risk", "bob", ""))[0] == sorted([*RISK, "long", "normal"])


def test_a_user_of_a_tag_may_use_its_qoses_from_another_account(applied: FakeSacctmgr) -> None:
    names, default = applied.effective(("guest", "erin", ""))
    assert set(RISK) <= set(names)
    assert default == ""
    assert applied.effective(("guest", "carol", "")) == (["normal"], "")


def test_users_who_inherit_are_left_alone(applied: FakeSacctmgr) -> None:
    assert applied.associations["risk", "alice", ""] == Assoc()


def test_a_second_apply_has_nothing_to_do(applied: FakeSacctmgr, tmp_path: Path) -> None:
    n_written = len(applied.written)
    assert difference_of(policy(), applied, tmp_path).is_empty
    assert apply_once(policy(), applied, tmp_path) == []
    assert len(applied.written) == n_written


def test_the_diff_says_what_was_there_and_what_comes(fake: FakeSacctmgr, tmp_path: Path) -> None:
    lines = [line for change in difference_of(policy(), fake, tmp_path).changes for line in describe(change)]
    assert "~ association account=risk user=bob  defaultqos: long -> fg_shop_risk" in lines
    assert any(
        line.startswith("~ association account=risk  qos: (inherited) -> (inherited) +fg_shop") for line in lines
    )
    assert any(line.startswith("+ qos fg_shop_rec  ") and "mem=800M" in line for line in lines)


def _n_writes() -> int:
    """Writes of an uninterrupted run; counted while pytest collects, before there is a ``tmp_path``."""
    fake = shop()
    with TemporaryDirectory() as folder:
        apply_once(policy(), fake, Path(folder))
    return len(fake.written)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(_n_writes()))
def test_killed_at_any_step_it_resumes_to_the_same_end(
    fake: FakeSacctmgr, tmp_path: Path, step: int, *, is_done: bool
) -> None:
    want = shop()
    (tmp_path / "want").mkdir()
    apply_once(policy(), want, tmp_path / "want")
    fake.die_after, fake.die_before = (step, None) if is_done else (None, step)
    with pytest.raises(Killed):
        apply_once(policy(), fake, tmp_path)
    fake.die_after = fake.die_before = None
    apply_once(policy(), fake, tmp_path)
    assert sorted(fake.image().splitlines()) == sorted(want.image().splitlines())
    assert read_journal(tmp_path, cluster="shop").former == read_journal(tmp_path / "want", cluster="shop").former


def test_a_larger_quota_changes_only_the_limits(applied: FakeSacctmgr, tmp_path: Path) -> None:
    text = SITE.replace("base_weight: 0.3}", "base_weight: 0.3, quota: {gres/gpu: 4}}")
    lines = [line for change in difference_of(policy(text), applied, tmp_path).changes for line in describe(change)]
    assert "~ qos fg_shop_rec  grptres: cpu=8,gres/gpu=8,mem=800M -> gres/gpu=4" in lines
    apply_once(policy(text), applied, tmp_path)
    assert applied.qos["fg_shop_rec"]["grptres"] == "gres/gpu=4"


def test_ranks_and_shortened_preempt_lists_are_the_rebalancers(applied: FakeSacctmgr, tmp_path: Path) -> None:
    applied.qos["fg_shop_risk_borrow"]["priority"] = "3"
    applied.qos["fg_shop_risk"]["preempt"] = "fg_shop_rec_opp"
    assert difference_of(policy(), applied, tmp_path, is_steered=True).is_empty
    assert len(difference_of(policy(), applied, tmp_path).changes) == 2
    applied.qos["fg_shop_risk_borrow"]["priority"] = "99"
    assert not difference_of(policy(), applied, tmp_path, is_steered=True).is_empty


def test_an_agent_that_leaves_loses_its_associations_and_its_qoses_are_retired(
    applied: FakeSacctmgr, tmp_path: Path
) -> None:
    text = SITE.replace("  rec: {accounts: [rec], base_weight: 0.3}\n", "")
    found = difference_of(policy(text), applied, tmp_path)
    assert found.retired == ("fg_shop_rec", "fg_shop_rec_borrow", "fg_shop_rec_opp")
    apply_once(policy(text), applied, tmp_path)
    assert applied.associations["rec", "", ""] == Assoc(qos=["normal", "debug"], default="normal")


def test_the_grace_is_that_of_the_borrow_band_only(fake: FakeSacctmgr, tmp_path: Path) -> None:
    apply_once(policy(SITE.replace("bands: {}", "bands: {grace: 90s}")), fake, tmp_path)
    assert [fake.qos[name]["gracetime"] for name in RISK] == ["00:00:00", "00:01:30", "00:00:00"]


def test_without_set_default_qos_no_default_is_touched(fake: FakeSacctmgr, tmp_path: Path) -> None:
    apply_once(policy(SITE.replace("bands: {}", "bands: {set_default_qos: false}")), fake, tmp_path)
    assert fake.effective(("risk", "bob", ""))[1] == "long"
    assert fake.effective(("risk", "alice", ""))[1] == ""


def test_the_journal_holds_what_was_there_before_us(applied: FakeSacctmgr, tmp_path: Path) -> None:
    former = read_journal(tmp_path, cluster="shop").former
    assert former[AssocKey("risk", "bob")].own_qos == ("long", "normal")
    assert former[AssocKey("risk", "bob")].own_default == "long"
    assert former[AssocKey("risk", "dora", "gpu")].own_default == "long"
    assert "fg_shop_rec_opp" in applied.qos


OFF = SITE.replace("bands: {}", "bands: {opportunistic: false}")
RENAMED = SITE.replace("  rec: {", "  recs: {")


def test_switching_opportunistic_off_keeps_its_qoses_so_that_no_borrow_list_is_emptied(
    applied: FakeSacctmgr, tmp_path: Path
) -> None:
    before = {name: fields["preempt"] for name, fields in applied.qos.items() if "preempt" in fields}
    found = difference_of(policy(OFF), applied, tmp_path)
    assert (found.retired, found.closed) == ((), ("fg_shop_rec_opp", "fg_shop_risk_opp"))
    apply_once(policy(OFF), applied, tmp_path)
    assert {name: fields["preempt"] for name, fields in applied.qos.items() if "preempt" in fields} == before
    allowed = {name for key in applied.associations for name in applied.effective(key)[0]}
    assert not {name for name in allowed if name.endswith("_opp")}
    assert difference_of(policy(OFF), applied, tmp_path).is_empty
    apply_once(policy(), applied, tmp_path)
    assert "fg_shop_rec_opp" in applied.effective(("rec", "", ""))[0]


def test_with_opportunistic_off_from_the_start_none_is_made(fake: FakeSacctmgr, tmp_path: Path) -> None:
    apply_once(policy(OFF), fake, tmp_path)
    assert not {name for name in fake.qos if name.endswith("_opp")}


def test_with_opportunistic_off_former_agents_ones_stay_too(applied: FakeSacctmgr, tmp_path: Path) -> None:
    apply_once(policy(OFF), applied, tmp_path)
    text = RENAMED.replace("bands: {}", "bands: {opportunistic: false}")
    found = difference_of(policy(text), applied, tmp_path)
    assert found.retired == ("fg_shop_rec", "fg_shop_rec_borrow")
    assert "fg_shop_rec_opp" in found.closed


def test_lists_of_borrow_qoses_are_written_before_guaranteed_ones(fake: FakeSacctmgr, tmp_path: Path) -> None:
    lists = [
        change.name.endswith("_borrow")
        for change in difference_of(policy(), fake, tmp_path).changes
        if isinstance(change, ModifyQos) and "preempt" in change.fields
    ]
    assert lists == [True, True, False, False]


def test_loans_of_a_renamed_agent_stay_in_every_guaranteed_list_under_a_rebalancer_too(
    applied: FakeSacctmgr, tmp_path: Path
) -> None:
    # The rebalancer had taken rec, which was below its quota then, out of the list.
    applied.qos["fg_shop_risk"]["preempt"] = "fg_shop_risk_borrow"
    found = difference_of(policy(RENAMED), applied, tmp_path, is_steered=True)
    assert any(isinstance(one, ModifyQos) and one.name == "fg_shop_risk" for one in found.changes)
    apply_once(policy(RENAMED), applied, tmp_path)
    for name in ("fg_shop_risk", "fg_shop_recs"):
        assert {"fg_shop_rec_borrow", "fg_shop_rec_opp"} <= set(applied.qos[name]["preempt"].split(","))
    assert not difference_of(policy(RENAMED), applied, tmp_path).changes


def test_former_agents_qoses_do_not_lower_the_guaranteed_priority(applied: FakeSacctmgr, tmp_path: Path) -> None:
    apply_once(policy(RENAMED), applied, tmp_path)
    assert applied.qos["fg_shop_rec"]["priority"] == "100"
    assert applied.qos["fg_shop_recs"]["priority"] == "100"


class LoopingSlurmdbd:
    """Refuses lists that name a borrow QOS until the borrow lists are written, or for good."""

    def __init__(self, answer: FakeSacctmgr, *, is_stubborn: bool) -> None:
        self.answer, self.is_stubborn, self.is_mended = answer, is_stubborn, False

    def __call__(self, command: Command) -> CommandResult:
        text = next((word for word in command.argv if word.startswith("preempt=")), "")
        if "_borrow" in text and (self.is_stubborn or not self.is_mended):
            return CommandResult(1, "", " error: QOS Preemption loop detected\n")
        self.is_mended |= text.startswith("preempt=fg_shop_rec_opp")
        return self.answer(command)


def test_after_a_loop_error_the_borrow_lists_are_written_and_it_is_tried_once_more(
    applied: FakeSacctmgr, tmp_path: Path
) -> None:
    want = applied.qos["fg_shop_risk"]["preempt"]
    applied.qos["fg_shop_risk"]["preempt"] = ""
    said = apply_once(policy(), LoopingSlurmdbd(applied, is_stubborn=False), tmp_path)
    assert applied.qos["fg_shop_risk"]["preempt"] == want
    assert any("written anew" in line for line in said)


def test_a_loop_error_that_stays_names_the_way_out(applied: FakeSacctmgr, tmp_path: Path) -> None:
    applied.qos["fg_shop_risk"]["preempt"] = ""
    with pytest.raises(SlurmRejected, match=r"(?s)loop detected.*Restart slurmdbd, then run 'fairgpu apply' again"):
        apply_once(policy(), LoopingSlurmdbd(applied, is_stubborn=True), tmp_path)
