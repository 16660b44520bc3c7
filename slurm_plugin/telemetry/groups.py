"""Unix groups of users, as the site's name service knows them.

The name service may be LDAP and take seconds: call this from the rebalancer's cycle or a background thread,
never where Slurm waits.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def resolve_groups(users: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Names of the groups of each user, sorted; a user whom the name service does not know is absent.

    A group without a name is left out: the site file can only name groups.
    """
    names_by_gid: dict[int, str | None] = {}
    groups_by_user: dict[str, tuple[str, ...]] = {}
    for user in sorted(set(users)):
        gids = _group_ids(user)
        if gids is not None:
            names = (_cached_name(gid, names_by_gid) for gid in gids)
            groups_by_user[user] = tuple(sorted({name for name in names if name is not None}))
    return groups_by_user


def _group_ids(user: str) -> list[int] | None:
    try:
        return os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, OSError, ValueError):  # unknown; name service failed; NUL in the name
        return None


def _cached_name(gid: int, names_by_gid: dict[int, str | None]) -> str | None:
    if gid not in names_by_gid:
        try:
            names_by_gid[gid] = grp.getgrgid(gid).gr_name
        except (KeyError, OSError):
            names_by_gid[gid] = None
    return names_by_gid[gid]
