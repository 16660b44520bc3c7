import os
import pwd

from policies.submission.decision import Identity
from slurm_plugin.hook.directory import UserDirectory, fetch_identities, look_up


def test_the_child_brings_names_and_groups_of_interest() -> None:
    root = fetch_identities([0], ["root"])[0]
    assert root.user == "root"
    assert root.groups == frozenset({"root"})


def test_groups_that_nobody_named_are_not_kept() -> None:
    assert fetch_identities([0], [])[0].groups == frozenset()


def test_a_uid_without_a_name_is_left_out() -> None:
    nameless = max(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid < 2**31) + 12_345
    assert nameless not in look_up([nameless, 2**40], ["no-such-group-here"])


def test_every_known_user_is_brought() -> None:
    found = look_up([], [])
    assert found[os.geteuid()]["name"] == pwd.getpwuid(os.geteuid()).pw_name


def test_a_nameless_uid_is_asked_about_once() -> None:
    users = UserDirectory()
    assert users.identity(7) == Identity(user=None, groups=None)
    users.replace({})
    users.identity(7)
    assert not users.has_unknown
    assert users.asked_uids() == (7,)
