"""Run one of Slurm's commands: argument lists only, a clean environment, a timeout, errors by remedy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmUnavailable

_KEPT_SLURM_VARIABLES: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_DEBUG_FLAGS"})
_DROPPED_PREFIXES: Final = ("SLURM_", "SQUEUE_", "SINFO_", "SPRIO_", "SCONTROL_", "SDIAG_", "SACCT_")
_SET: Final = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times as seconds since the epoch, task lists of arrays not cut short."""

UNAVAILABLE_TEXTS: Final = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Unexpected message received",
    "Connection refused",
    "Connection timed out",
    "Slurm backup controller in standby mode",
    "Protocol authentication error",
    "Munge encode failed",
    "Unable to process configuration file",
    "Unable to establish configuration source",
    "Unable to connect to database",
    "Problem talking to the database",
)
"""Slurm's words for "not now"."""

DENIED_TEXTS: Final = ("Access/permission denied", "Invalid user id")
"""Slurm's words for "not you"."""

_SHOWN_ERROR_CHARS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command to run.

    Attributes
    ----------
    argv : tuple of str
        Slurm's name for the program and its arguments.
    is_merged : bool
        Whether messages appear between the lines of output, in the order in which they were written.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    timeout_s: float
    is_merged: bool = False


class CommandResult(NamedTuple):
    """Exit status and what was printed; bytes that are no UTF-8 appear as escapes."""

    returncode: int
    stdout: str
    stderr: str


Runner = Callable[[Command], CommandResult]
"""Runs a command; raises ``SlurmUnavailable`` when it did not end in time or could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRunner:
    """Runs commands as processes of this host.

    Attributes
    ----------
    bin_dir : Path or None
        Where Slurm's programs are; ``None`` searches ``PATH``.
    prefix : tuple of str
        Put before every command, to reach a cluster in a namespace or on another host.
    """

    bin_dir: Path | None = None
    prefix: tuple[str, ...] = ()

    def __call__(self, command: Command) -> CommandResult:
        """Outcome of the command, whatever its exit status.

        Raises
        ------
        SlurmUnavailable
            If it does not end within its timeout (it is killed) or cannot be started.
        """
        program, *arguments = command.argv
        path = program if self.bin_dir is None else str(self.bin_dir / program)
        argv = [*self._prefix(), path, *arguments]
        try:
            done = subprocess.run(
                argv,
                input=command.stdin.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if command.is_merged else subprocess.PIPE,
                env=clean_environment(os.environ),
                timeout=command.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise SlurmUnavailable(f"{program} did not end within {command.timeout_s:g} s") from err
        except OSError as err:
            raise SlurmUnavailable(f"{program} cannot be run: {err.strerror}") from err
        return CommandResult(done.returncode, _decode(done.stdout), _decode(done.stderr or b""))

    def _prefix(self) -> list[str]:
        if not self.prefix:
            return []
        return [*self.prefix, "env", *(f"{name}={value}" for name, value in _SET.items())]


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment without the variables that would change what Slurm's commands print or ask."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT_SLURM_VARIABLES or not name.startswith(_DROPPED_PREFIXES)
    }
    return kept | _SET


def check(result: CommandResult, argv: tuple[str, ...]) -> str:
    """Give back what was printed.

    Raises
    ------
    SlurmUnavailable, SlurmAuthError, SlurmError
        If the command failed, by what its message says.
    """
    if result.returncode == 0:
        return result.stdout
    raise error_for(result.stderr or result.stdout, argv[0])


def error_for(message: str, program: str) -> SlurmError:
    """Error that fits Slurm's message."""
    text = f"{program}: {message.strip()[-_SHOWN_ERROR_CHARS:] or 'failed without a message'}"
    if is_unavailable(message):
        return SlurmUnavailable(text)
    if any(word in message for word in DENIED_TEXTS):
        return SlurmAuthError(text)
    return SlurmError(text)


def is_unavailable(message: str) -> bool:
    """Whether Slurm's message says that trying later may help."""
    return any(word in message for word in UNAVAILABLE_TEXTS)


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", errors="backslashreplace")
