"""The compiled shim on disk: where Slurm looks for it, for which Slurm it was built, what its settings say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.shim_settings import shim_options

if TYPE_CHECKING:
    from slurm_plugin.site.model import HookSettings

PLUGIN_NAME: Final = "job_submit_fairgpu.so"
SETTINGS_NAME: Final = "job_submit_fairgpu.conf"
"""Beside the plugin; read by slurmctld at the first submission after it has changed."""

_BUILT_FOR: Final = re.compile(rb"fairgpu-built-for:(\d+\.\d+\.\d+)\0")
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFile:
    """A compiled shim.

    Attributes
    ----------
    built_for : str
        Version of the headers, ``22.05.8``; empty if the file does not say.
    settings : str or None
        Text of its settings; ``None`` without a readable file: the defaults hold.
    """

    path: Path
    built_for: str
    settings: str | None


def find_plugin(plugin_dir: str) -> PluginFile | None:
    """Return the compiled shim that Slurm would load, ``None`` if there is none here.

    Parameters
    ----------
    plugin_dir : str
        Slurm's ``PluginDir``: directories joined by colons, the first that has the file counts.
    """
    for folder in filter(None, plugin_dir.split(":")):
        path = Path(folder) / PLUGIN_NAME
        if path.is_file():
            return _look(path)
    return None


def _look(path: Path) -> PluginFile:
    try:
        match = _BUILT_FOR.search(path.read_bytes())
    except OSError:
        match = None
    try:
        settings = path.with_name(SETTINGS_NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        settings = None
    return PluginFile(path=path, built_for=match[1].decode("ascii") if match else "", settings=settings)


def release_of(version: str) -> str:
    """Return year and month of a version, empty if there are none.

    Examples
    --------
    >>> release_of("22.05.8-4")
    '22.05'
    """
    match = _RELEASE.match(version)
    return f"{int(match[1])}.{int(match[2]):02}" if match else ""


def render_settings(hook: HookSettings, uids: tuple[int, ...]) -> str:
    """Return the text of the settings file by the site file."""
    options = shim_options(hook) | {"uids": ", ".join(map(str, uids))}
    lines = (f"{name} = {value}" for name, value in options.items() if value)
    return "# Written by 'fairgpu hook build' from the site file.\n" + "\n".join(lines) + "\n"


def differing_settings(text: str | None, hook: HookSettings) -> tuple[str, ...]:
    """Return ``name: file's value, not the site file's`` for each setting that differs."""
    pairs = (line.partition("#")[0].partition("=") for line in (text or "").splitlines())
    found = DEFAULTS | {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
    wanted = shim_options(hook)
    return tuple(f"{name} {found[name]}, not {value}" for name, value in wanted.items() if found[name] != value)


DEFAULTS: Final = {"socket": "/run/fairgpu/hook.sock", "deadline_ms": "20", "failures": "3", "pause_s": "10"}
"""What both shims take for an option that is left out (compared with their sources in tests)."""
