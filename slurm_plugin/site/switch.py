"""The kill switch: while ``<state_dir>/off`` exists, FairGPU changes nothing.

Asking costs one ``lstat``; turning off writes a file beside it and renames, so that nobody sees half of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.site.load import SiteFile

SWITCH_NAME: Final = "off"

OffStamp = tuple[int, int]
"""Time and inode of a switch file."""

_UNSEEN: Final[OffStamp] = (0, 0)
_MAX_REASON_BYTES: Final = 4_096
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def switch_path(site: SiteFile) -> Path:
    """Return the path of the switch file."""
    return site.paths.state_dir / SWITCH_NAME


def is_off(site: SiteFile) -> bool:
    """Return whether FairGPU is switched off.

    A state directory that is missing (not mounted?) or cannot be looked into counts as off: the switch may be there.
    """
    return off_stamp(site) is not None


def off_stamp(site: SiteFile) -> OffStamp | None:
    """Return what tells one ``fairgpu off`` from the next, ``None`` if FairGPU is on; see :func:`is_off`."""
    try:
        found = os.lstat(switch_path(site))
    except FileNotFoundError:
        return None if site.paths.state_dir.is_dir() else _UNSEEN
    except OSError:
        return _UNSEEN
    return found.st_mtime_ns, found.st_ino


def off_reason(site: SiteFile) -> str | None:
    """Return the reason given to ``fairgpu off``, ``""`` if none can be read, ``None`` if FairGPU is on."""
    if not is_off(site):
        return None
    try:
        descriptor = os.open(switch_path(site), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - opened above without following a link
        return file.read(_MAX_REASON_BYTES).decode("utf-8", "replace").strip()


def turn_off(site: SiteFile, reason: str = "") -> None:
    """Create the switch, or replace its reason; readable by all, so that every process of ours sees it.

    On a full disk the switch works without its reason: an empty file needs no block.

    Raises
    ------
    ConfigError
        This user may not write to the state directory; the message says who may.
    """
    text = reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES] + b"\n"
    target = switch_path(site)
    try:
        try:
            _replace(target, text)
        except OSError as err:
            if err.errno not in _NO_SPACE:
                raise
            _create_empty(target)
    except OSError as err:
        raise _refused(site, "off", err) from err


def _replace(target: Path, text: bytes) -> None:
    temporary = target.with_name(f".{SWITCH_NAME}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - opened above, exclusively
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)  # noqa: PTH105 - replaces a link, never what it points to
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _create_empty(target: Path) -> None:
    """Create the switch without content; one that is there already, whatever it is, does its work."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))


def turn_on(site: SiteFile) -> bool:
    """Remove the switch; return whether it was there.

    Raises
    ------
    ConfigError
        As :func:`turn_off`.
    """
    try:
        switch_path(site).unlink()
    except FileNotFoundError:
        return False
    except OSError as err:
        raise _refused(site, "on", err) from err
    return True


def _refused(site: SiteFile, verb: str, err: OSError) -> ConfigError:
    directory = site.paths.state_dir
    try:
        owner = directory.owner()
    except (OSError, KeyError):
        return ConfigError(
            f"cannot switch {verb}: {directory}: {err.strerror}; create it for the user that runs the "
            f"rebalancer: install -d -o fairgpu -m 0755 {directory}"
        )
    return ConfigError(
        f"cannot switch {verb}: {directory} belongs to {owner} ({err.strerror}); run: sudo -u {owner} fairgpu {verb}"
    )
