from __future__ import annotations

import grp
import os
import pwd

from slurm_plugin.telemetry import resolve_groups


def test_a_user_has_the_groups_of_the_name_service() -> None:
    me = pwd.getpwuid(os.getuid())
    assert grp.getgrgid(me.pw_gid).gr_name in resolve_groups([me.pw_name])[me.pw_name]


def test_an_unknown_user_is_absent() -> None:
    assert resolve_groups(["no-such-user-here", "nul\0user", ""]) == {}
