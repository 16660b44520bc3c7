from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.bands.accounting import AssocKey
from slurm_plugin.bands.journal import FILE_NAME, FormerAssoc, open_journal, read_journal
from slurm_plugin.errors import AlreadyRunningError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KEY = AssocKey("risk", "bob", "gpu")
FORMER = FormerAssoc(own_qos=("+debug", "-normal"), own_default="debug")


def write(state_dir: Path) -> None:
    with open_journal(state_dir, cluster="shop") as journal:
        journal.note_qos("fg_shop_a", at_s=1.0)
        journal.note_assoc(KEY, FORMER, at_s=2.0)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write(tmp_path)
    found = read_journal(tmp_path, cluster="shop")
    assert found.created == {"fg_shop_a"}
    assert found.former == {KEY: FORMER}


def test_the_first_value_counts(tmp_path: Path) -> None:
    write(tmp_path)
    with open_journal(tmp_path, cluster="shop") as journal:
        journal.note_assoc(KEY, FormerAssoc(own_qos=("fg_shop_a",), own_default="fg_shop_a"), at_s=3.0)
        journal.note_qos("fg_shop_a", at_s=3.0)
    assert read_journal(tmp_path, cluster="shop").former == {KEY: FORMER}
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 2


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read_journal(tmp_path, cluster="shop").former == {}


def test_a_line_cut_short_by_a_crash_is_dropped_and_overwritten(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes() + b'{"kind": "qos", "na')
    assert read_journal(tmp_path, cluster="shop").created == {"fg_shop_a"}
    with open_journal(tmp_path, cluster="shop") as journal:
        journal.note_qos("fg_shop_b", at_s=4.0)
    assert read_journal(tmp_path, cluster="shop").created == {"fg_shop_a", "fg_shop_b"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 1"),
        ("[]", "line 1"),
        ("[" * 200_000, "line 1"),
        (json.dumps({"version": 1, "kind": "assoc"}), "line 1: 'account'"),
        (json.dumps({"version": 9, "kind": "qos", "name": "x"}), "unknown version or kind"),
    ],
)
def test_a_damaged_line_is_an_error_not_a_guess(tmp_path: Path, line: str, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(line + "\n")
    with pytest.raises(ConfigError, match="is damaged") as caught:
        read_journal(tmp_path, cluster="shop")
    assert text in caught.value.problems[0]


def test_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o666)
    with pytest.raises(ConfigError, match="only its owner may write"):
        read_journal(tmp_path, cluster="shop")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / FILE_NAME).rename(tmp_path / "elsewhere")
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot read"):
        read_journal(tmp_path, cluster="shop")
    with pytest.raises(ConfigError, match="cannot write"), open_journal(tmp_path, cluster="shop"):
        pass


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        open_journal(tmp_path, cluster="shop"),
        pytest.raises(AlreadyRunningError, match="another 'fairgpu apply' runs"),
        open_journal(tmp_path, cluster="shop"),
    ):
        pass


def test_a_missing_state_directory_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="install -d -o fairgpu"), open_journal(tmp_path / "none", cluster="shop"):
        pass


def test_a_journal_that_is_only_read_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for reading only"):
        read_journal(tmp_path, cluster="shop").note_qos("fg_shop_a", at_s=1.0)


def test_nobody_else_can_open_it_and_so_lock_it(tmp_path: Path) -> None:
    write(tmp_path)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE_NAME).chmod(0o644)
    with open_journal(tmp_path, cluster="shop"):
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["normal", "fg_other_a", "fg_shopping_a"])
def test_a_qos_that_is_none_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    line = json.dumps({"version": 1, "kind": "qos", "name": name})
    (tmp_path / FILE_NAME).write_text(line + "\n")
    with pytest.raises(ConfigError, match="is damaged") as caught:
        read_journal(tmp_path, cluster="Shop")
    assert caught.value.problems == (f"line 1: QOS {name!r} does not begin with fg_shop_",)
    with pytest.raises(ConfigError, match="is damaged"), open_journal(tmp_path, cluster="shop"):
        pass
