"""Compile the shim in ``plugin/`` on this machine, against the public headers of the Slurm that is installed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.errors import FairGpuError
from slurm_plugin.hook.plugin_file import PLUGIN_NAME, SETTINGS_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES: Final = Path(__file__).parent / "plugin"
FLAGS: Final = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"),
    *("-fvisibility=hidden", "-fstack-protector-strong"),
)
HEADERS: Final = ("slurm/slurm.h", "slurm/slurm_errno.h", "slurm/slurm_version.h", "slurm/slurmdb.h", "slurm/spank.h")
NEWEST_RELEASE: Final = "26.05"
"""The newest release on which the plugin was tried; its sources use nothing that changed since 22.05."""

_VERSION: Final = re.compile(r"^#define SLURM_VERSION_NUMBER 0x([0-9a-fA-F]{6})\s*$", re.MULTILINE)
_MISSING: Final = re.compile(r"fatal error: '?([\w./]+)'?(?::| file) ")
_TIMEOUT_S: Final = 300.0
_SHOWN_LINES: Final = 12


class BuildError(FairGpuError):
    """The plugin could not be built or installed; the message names the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What compiles the plugin.

    Attributes
    ----------
    compiler : str
        Path of a C compiler.
    include : Path or None
        Directory that holds ``slurm/slurm.h``; ``None`` for the compiler's own search.
    version : str
        Of the headers, ``22.05.8``.
    """

    compiler: str
    include: Path | None
    version: str

    def command(self, target: Path, sources: Sequence[Path], *, flags: Sequence[str] = ()) -> list[str]:
        """Return the command that compiles ``sources`` into the plugin ``target``; ``flags`` come last."""
        name = f'-DFAIRGPU_BUILT_FOR="{self.version}"'
        files = [os.fspath(path) for path in sources]
        return [self.compiler, *FLAGS, *_include(self.include), name, *flags, *files, "-o", os.fspath(target)]


def find_toolchain(include: Path | None, *, compiler: str = "cc") -> Toolchain:
    """Return the compiler and what the headers say about themselves.

    Parameters
    ----------
    include : Path or None
        Directory that holds ``slurm/slurm.h``.
    compiler : str
        Name or path of the C compiler.

    Raises
    ------
    BuildError
        The compiler or a header is missing; names the package.
    """
    path = shutil.which(compiler)
    if path is None:
        raise BuildError(f"no C compiler {compiler!r}: apt-get install gcc libc6-dev (dnf install gcc)")
    text = "".join(f"#include <{name}>\n" for name in HEADERS)
    argv = [path, "-E", "-dM", "-D_GNU_SOURCE", "-include", "pthread.h", *_include(include), "-x", "c", "-"]
    done = _run(argv, stdin=text)
    if done.returncode:
        raise BuildError(_explain_headers(done.stderr))
    match = _VERSION.search(done.stdout)
    if match is None:
        raise BuildError("slurm/slurm_version.h names no version; give the right directory with --slurm-include")
    number = int(match[1], 16)
    return Toolchain(compiler=path, include=include, version=f"{number >> 16}.{number >> 8 & 255:02}.{number & 255}")


def _include(include: Path | None) -> list[str]:
    return [] if include is None else ["-isystem", os.fspath(include)]


def _explain_headers(stderr: str) -> str:
    match = _MISSING.search(stderr)
    if match is None:
        return f"the compiler does not work:\n{_tail(stderr)}"
    if match[1].startswith("slurm/"):
        return (
            f"{match[1]} is missing: apt-get install libslurm-dev (dnf install slurm-devel), of the release that "
            "runs here, or say where it is with --slurm-include DIR (the directory above slurm/)"
        )
    return f"{match[1]} is missing: apt-get install libc6-dev (dnf install glibc-devel)"


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])


def _run(argv: Sequence[str], *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, env=env, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise BuildError(f"{argv[0]}: {err}") from err


def build_plugin(toolchain: Toolchain, folder: Path, settings: str) -> Path:
    """Compile the plugin, put it and its settings into ``folder``, and return its path.

    The files are replaced as a whole: a running slurmctld keeps what it has loaded, until it is restarted.

    Raises
    ------
    BuildError
        It does not compile, or ``folder`` cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fairgpu-", dir=folder) as made:
            plugin, text = Path(made) / PLUGIN_NAME, Path(made) / SETTINGS_NAME
            done = _run(toolchain.command(plugin, sorted(SOURCES.glob("*.c"))))
            if done.returncode:
                raise BuildError(f"the plugin does not compile:\n{_tail(done.stderr)}")
            text.write_text(settings, encoding="utf-8")
            plugin.chmod(0o755)
            text.chmod(0o644)
            text.replace(folder / SETTINGS_NAME)
            plugin.replace(folder / PLUGIN_NAME)
    except OSError as err:
        raise BuildError(f"cannot write into {folder}: {err.strerror or err} (run it as root?)") from err
    return folder / PLUGIN_NAME
