"""The Unix socket's file: who may connect, and what to do with one that was left behind.

Connecting needs write permission on the socket file, so it is never open to all: it belongs to the server's user
with mode 0600 and an access list (acl(5)) that lets SlurmUser in. A server that runs as root gives the file to
SlurmUser instead; without access lists a common group must do (0660). The peer's credentials are checked on every
connection besides.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import AlreadyRunningError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKLOG: Final = 512
_PROBE_S: Final = 1.0
_ACL_NAME: Final = "system.posix_acl_access"
_ACL_VERSION: Final = 2
_ACL_OWNER, _ACL_USER, _ACL_GROUP, _ACL_MASK, _ACL_OTHER = 1, 2, 4, 16, 32
_ACL_NO_ID: Final = 0xFFFFFFFF
_ACL_RW: Final = 6


@dataclass(slots=True)
class Listener:
    """A listening socket with its file and the lock that keeps a second server away."""

    path: Path
    socket: socket.socket
    lock_fd: int
    inode: int

    def close(self) -> None:
        """Stop listening and remove the file, unless it is somebody else's by now."""
        self.socket.close()
        try:
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            pass
        os.close(self.lock_fd)


def resolve_peers(names: Iterable[str]) -> frozenset[int]:
    """Uids of the users who may talk to the socket.

    Raises
    ------
    ConfigError
        None of them exists; a single unknown name is left out (a node without SlurmUser's account).
    """
    uids = set()
    for name in names:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    if not uids:
        raise ConfigError("none of the users in hook.peers exists on this host")
    return frozenset(uids)


def open_listener(path: Path, peers: frozenset[int], *, what: str = "hook.socket") -> Listener:
    """Listen on ``path``.

    Parameters
    ----------
    what : str
        Whose socket it is, for error messages.

    Raises
    ------
    AlreadyRunningError
        A server lives: it holds the lock or answers on the socket.
    ConfigError
        The directory or the file that is there cannot be used; the message says what to do.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check_directory(path.parent, what)
        lock_fd = _lock(path, what)
    except OSError as err:
        raise ConfigError(f"{what}: {path.parent}: {err.strerror}{_next_step(path.parent, err)}") from err
    try:
        _remove_stale(path, what)
        return _bind(path, peers, lock_fd)
    except OSError as err:
        os.close(lock_fd)
        raise ConfigError(f"{what}: {path}: {err.strerror or err}") from err
    except BaseException:
        os.close(lock_fd)
        raise


def _check_directory(directory: Path, what: str) -> None:
    # Whoever may write here could put a socket of their own in our place.
    status = directory.stat()
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{what}: {directory} is writable by everybody; run: chmod o-w {directory}")
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"{what}: {directory} belongs to uid {status.st_uid}, not to root or to us. {_chown(directory)}"
        )


def _next_step(directory: Path, err: OSError) -> str:
    """Return what to do: most often it was started as root once, and what that left belongs to root."""
    if not isinstance(err, PermissionError):
        return ""
    if not directory.is_dir():
        return f"; run as root: install -d -o {_own_name()} -m 0755 {directory}"
    return f"; was it started as another user before? {_chown(directory)}"


def _chown(directory: Path) -> str:
    return f"Run as root: chown -R {_own_name()} {directory}"


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _lock(path: Path, what: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock_fd = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(lock_fd)
        raise AlreadyRunningError(f"another server holds {path}.lock ({what})") from err
    return lock_fd


def _remove_stale(path: Path, what: str) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{what}: {path} exists and is no socket; remove it or name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError as err:  # a full backlog: alive, but frozen
            raise AlreadyRunningError(f"a frozen server still listens on {path}: {err}") from err
        else:
            raise AlreadyRunningError(f"another server answers on {path}")


def _bind(path: Path, peers: frozenset[int], lock_fd: int) -> Listener:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    former = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(former)
    opened = Listener(path, listener, lock_fd, path.lstat().st_ino)
    try:
        _share(path, peers)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        path.unlink()
        raise
    return opened


def _share(path: Path, peers: frozenset[int]) -> None:
    others = sorted(peers - {0, os.geteuid()})
    if not others:
        return
    if os.geteuid() == 0 and len(others) == 1:
        os.chown(path, others[0], -1, follow_symlinks=False)
        return
    try:
        os.setxattr(path, _ACL_NAME, _acl_of(others), follow_symlinks=False)
    except OSError:  # this file system keeps no access lists
        _share_by_group(path, others)


def _acl_of(uids: list[int]) -> bytes:
    # The kernel's format of POSIX.1e access lists (acl(5)): owner and these users rw, nobody else.
    users = [(_ACL_USER, _ACL_RW, uid) for uid in uids]
    entries = [(_ACL_OWNER, _ACL_RW, _ACL_NO_ID), *users, (_ACL_GROUP, 0, _ACL_NO_ID)]
    entries += [(_ACL_MASK, _ACL_RW, _ACL_NO_ID), (_ACL_OTHER, 0, _ACL_NO_ID)]
    return struct.pack("<I", _ACL_VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _share_by_group(path: Path, others: list[int]) -> None:
    groups = _shared_groups(others)
    if not groups:
        raise ConfigError(
            f"hook.socket: uids {others} cannot reach a socket of uid {os.geteuid()} on this file system; put it "
            "on one with access lists (tmpfs), run the server as root or SlurmUser, or give both a common group"
        )
    os.chown(path, -1, groups[0], follow_symlinks=False)
    path.chmod(0o660)


def _shared_groups(uids: list[int]) -> list[int]:
    entries = [pwd.getpwuid(uid) for uid in uids]
    memberships = [set(os.getgrouplist(entry.pw_name, entry.pw_gid)) for entry in entries]
    ours = {os.getegid(), *os.getgroups()} if os.geteuid() else set.union(*memberships)
    return sorted(ours.intersection(*memberships))
