"""Who exists inside a cluster: Unix users and groups, and the accounts and agents they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mini_slurm.place import MiniError, read_text

if TYPE_CHECKING:
    from pathlib import Path

SERVICE_USER: Final = "fairgpu"
FIRST_UID: Final = 47000


class Person(NamedTuple):
    """A user inside the namespace and its accounts, the default one first."""

    name: str
    accounts: tuple[str, ...]


PEOPLE: Final = (
    Person(SERVICE_USER, ("ops",)),
    Person("alice", ("risk", "guest")),
    Person("bob", ("rec", "guest")),
    Person("carol", ("vision", "guest")),
    Person("dave", ("guest",)),
    Person("mallory", ("guest",)),
)
EXTRA_GROUPS: Final[dict[str, tuple[str, ...]]] = {"mlteam": ("bob", "dave")}
ACCOUNTS: Final = ("risk", "rec", "vision", "guest", "ops")


class Identity(NamedTuple):
    """What a process needs to become a user."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def uid_of(name: str) -> int:
    """Return the uid (and gid of the primary group) of one of `PEOPLE`."""
    return FIRST_UID + [person.name for person in PEOPLE].index(name)


def passwd_text(host: str, root: Path) -> str:
    """Return the namespace's passwd: the host's lines (Slurm's own users) and our people."""
    ids = {p.name: uid_of(p.name) for p in PEOPLE}
    ours = [f"{name}:x:{uid}:{uid}::{root}/home/{name}:/bin/sh" for name, uid in ids.items()]
    return _merge(host, ours)


def group_text(host: str) -> str:
    """Return the namespace's group file: the host's lines, our primary groups, the extra groups."""
    ours = [f"{p.name}:x:{uid_of(p.name)}:" for p in PEOPLE]
    first_free = FIRST_UID + len(PEOPLE)
    ours += [f"{name}:x:{first_free + i}:{','.join(who)}" for i, (name, who) in enumerate(EXTRA_GROUPS.items())]
    return _merge(host, ours)


def _merge(host: str, ours: list[str]) -> str:
    names = {line.split(":")[0] for line in ours}
    ids = {line.split(":")[2] for line in ours}
    kept = [line for line in host.splitlines() if line.count(":") > 2 and not _clashes(line, names, ids)]
    return "\n".join([*kept, *ours]) + "\n"


def _clashes(line: str, names: set[str], ids: set[str]) -> bool:
    fields = line.split(":")
    return fields[0] in names or fields[2] in ids


def identity(root: Path, name: str) -> Identity:
    """Return who `name` is inside the cluster at `root`, from its own passwd and group files."""
    for line in read_text(root / "etc/passwd").splitlines():
        fields = line.split(":")
        if fields[0] == name:
            gid = int(fields[3])
            home = str(root / "home/root") if name == "root" else fields[5]
            return Identity(name, int(fields[2]), gid, _groups(root, name, gid), home, fields[6])
    msg = f"no user {name!r} in this cluster; there are root, {', '.join(p.name for p in PEOPLE)}"
    raise MiniError(msg)


def _groups(root: Path, name: str, gid: int) -> tuple[int, ...]:
    groups = {gid}
    for line in read_text(root / "etc/group").splitlines():
        fields = line.split(":")
        if name in fields[3].split(","):
            groups.add(int(fields[2]))
    return tuple(sorted(groups))
