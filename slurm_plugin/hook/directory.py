"""Unix users and their groups, kept in memory so that no answer waits for a name service.

A child process (this module run with ``-m``) asks the name service every minute: a slow LDAP server then
delays only that child, never the server's answers and never its interpreter lock. A uid that nobody asked
about before is unknown: the submission falls to the account's agent, and the child is asked at once.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from policies.submission.decision import Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_USERS: Final = 20_000
"""Enumerated users beyond this many are looked up only after their first submission."""

MAX_REMEMBERED: Final = 100_000
FETCH_TIMEOUT_S: Final = 30.0

_UNKNOWN: Final = Identity(user=None, groups=None)


class UserDirectory:
    """Identities by uid; reading never blocks, replacing is one assignment.

    Parameters
    ----------
    identities : mapping of int to Identity
        What is known at the start.
    """

    def __init__(self, identities: Mapping[int, Identity] | None = None) -> None:
        self._identities = dict(identities or {})
        self._asked: set[int] = set()
        self.has_unknown = False

    def identity(self, uid: int) -> Identity:
        """Who this uid is as far as known; an unknown uid is noted for the next look-up."""
        known = self._identities.get(uid)
        if known is not None:
            return known
        if uid not in self._asked and len(self._asked) < MAX_REMEMBERED:
            self._asked.add(uid)
            self.has_unknown = True
        return _UNKNOWN

    @property
    def version(self) -> object:
        """The same object as long as the identities are the same."""
        return self._identities

    def asked_uids(self) -> tuple[int, ...]:
        """Uids seen in submissions that the enumeration did not bring."""
        return tuple(sorted(self._asked.copy()))

    def replace(self, identities: Mapping[int, Identity]) -> None:
        """Take the result of a look-up."""
        self.has_unknown = False
        if identities != self._identities:
            self._identities = dict(identities)


def fetch_identities(uids: Iterable[int], groups: Iterable[str]) -> dict[int, Identity]:
    """Ask the name service in a child process.

    Parameters
    ----------
    uids : iterable of int
        To look up beside the users that the name service enumerates.
    groups : iterable of str
        Groups of interest (those that the site file names); others are not kept.

    Raises
    ------
    OSError, ValueError, subprocess.SubprocessError
        The child could not be started, failed, took over ``FETCH_TIMEOUT_S`` or answered something else.
    """
    question = json.dumps({"uids": sorted(uids), "groups": sorted(groups)})
    done = subprocess.run(
        [sys.executable, "-P", "-m", "slurm_plugin.hook.directory"],
        input=question,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return {
        int(uid): Identity(user=entry["name"], groups=None if entry["groups"] is None else frozenset(entry["groups"]))
        for uid, entry in answer.items()
    }


def look_up(uids: Iterable[int], groups: Iterable[str]) -> dict[int, dict[str, Any]]:
    """Name and groups of interest of each user, by blocking name service calls.

    ``groups`` is ``None`` for a user whose groups cannot be told; a uid without a name is left out.
    """
    names = {gid: name for name in groups if (gid := _gid_of(name)) is not None}
    found: dict[int, dict[str, Any]] = {}
    for entry in _entries(uids):
        try:
            gids = os.getgrouplist(entry.pw_name, entry.pw_gid)
        except OSError:
            member_of = None
        else:
            member_of = sorted(names[gid] for gid in set(gids) & names.keys())
        found[entry.pw_uid] = {"name": entry.pw_name, "groups": member_of}
    return found


def _entries(uids: Iterable[int]) -> list[pwd.struct_passwd]:
    # The first name of a uid wins, as in getpwuid.
    entries: dict[int, pwd.struct_passwd] = {}
    for entry in pwd.getpwall()[:MAX_USERS]:
        entries.setdefault(entry.pw_uid, entry)
    for uid in uids:
        if uid not in entries:
            try:
                entries[uid] = pwd.getpwuid(uid)
            except (KeyError, OverflowError):
                continue
    return list(entries.values())


def _gid_of(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


if __name__ == "__main__":
    question = json.load(sys.stdin)
    json.dump(look_up(question["uids"], question["groups"]), sys.stdout)
