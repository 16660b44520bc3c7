"""The helper follows the site file while it runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.qos_helper.request import QosChange, Setting
from slurm_plugin.qos_helper.rules import RefusedError
from slurm_plugin.qos_helper.site_rules import SiteRules
from tests.slurm_plugin.rebalancer.world import make_site

if TYPE_CHECKING:
    from pathlib import Path

NEW = QosChange(names=("fg_fake_vision_borrow",), setting=Setting.PRIORITY, value="4")
OLD = QosChange(names=("fg_fake_rec_borrow",), setting=Setting.PRIORITY, value="4")
AGENT = "  vision: {accounts: [vision], base_weight: 0.4}\n"


@pytest.fixture
def rules(tmp_path: Path) -> SiteRules:
    return SiteRules(make_site(tmp_path, more="bands: {}\n"))


def rewrite(path: Path, old: str, new: str) -> None:
    text = (path / "site.yaml").read_text(encoding="utf-8")
    assert old in text
    (path / "new.yaml").write_text(text.replace(old, new), encoding="utf-8")
    (path / "new.yaml").replace(path / "site.yaml")


def test_a_new_agent_is_accepted_and_a_retired_one_is_not(tmp_path: Path, rules: SiteRules) -> None:
    rules.check(OLD)
    with pytest.raises(RefusedError):
        rules.check(NEW)
    rewrite(tmp_path, "  rec: {accounts: [rec], base_weight: 0.4}\n", AGENT)
    rules.check(NEW)
    with pytest.raises(RefusedError):
        rules.check(OLD)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("accounts: [rec]", "users: [rec"), "site_file_refused"),
        (("cluster: fake", "cluster: other"), "rules_kept"),
    ],
    ids=["broken", "another cluster"],
)
def test_a_file_that_is_no_good_leaves_the_former_rules_and_is_logged_once(
    tmp_path: Path, rules: SiteRules, caplog: pytest.LogCaptureFixture, edit: tuple[str, str], said: str
) -> None:
    rewrite(tmp_path, *edit)
    with caplog.at_level(logging.ERROR):
        rules.check(OLD)
        rules.check(OLD)
    assert caplog.text.count(said) == 1
    with pytest.raises(RefusedError):
        rules.check(QosChange(names=("fg_other_rec_borrow",), setting=Setting.PRIORITY, value="4"))


def test_a_file_that_is_gone_leaves_the_former_rules(tmp_path: Path, rules: SiteRules) -> None:
    (tmp_path / "site.yaml").unlink()
    rules.check(OLD)


def test_a_file_without_bands_accepts_nothing(tmp_path: Path, rules: SiteRules) -> None:
    rewrite(tmp_path, "bands: {}\n", "")
    with pytest.raises(RefusedError):
        rules.check(OLD)
