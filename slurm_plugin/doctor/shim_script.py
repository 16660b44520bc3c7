"""The lines that load the Lua shim: what they should say by the site file, and what a script does say."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.plugin_file import DEFAULTS
from slurm_plugin.hook.shim_settings import shim_options, trusted_uids

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts

SHIM_DEFAULTS: Final = DEFAULTS | {"socket": f'"{DEFAULTS["socket"]}"'}
"""What ``fairgpu.lua`` takes for an option that the script leaves out (compared with the file in a test)."""

_OPTION: Final = re.compile(r"\b(?P<name>socket|deadline_ms|failures|pause_s)\s*=\s*(?P<value>\"[^\"]*\"|[\d.]+)")
_RETURN: Final = re.compile(r"return\b[^{(]*$")
_BLOCK_END: Final = re.compile(r"\s*(end|else|elseif|until)\b")


def shim_lines(facts: Facts) -> str:
    """Return the lines for the end of ``job_submit.lua``, with the values of the site file."""
    options = ", ".join(f"{name} = {value}" for name, value in _wanted(facts).items())
    uids = ", ".join(str(uid) for uid in trusted_uids(facts.config, facts.host.service_uid))
    return (
        "job_submit.lua, after both functions and before a final 'return slurm.SUCCESS':\n"
        '  local ok, fairgpu = pcall(require, "fairgpu")\n'
        f"  if ok then ok, fairgpu = pcall(fairgpu.wrap, {{{options}, uids = {{{uids}}}}}) end\n"
        '  if not ok then slurm.log_error("%s", "fairgpu: not loaded: " .. tostring(fairgpu)) end'
    )


def differing_options(code: str, facts: Facts) -> tuple[str, ...]:
    """Return ``name: script's value, not the site file's`` for each option that differs."""
    ours = code.partition("fairgpu")[2]
    given = {one["name"]: one["value"] for one in _OPTION.finditer(ours)}
    found = {**SHIM_DEFAULTS, **given}
    return tuple(f"{name} {found[name]}, not {value}" for name, value in _wanted(facts).items() if found[name] != value)


def without_comments(script: str) -> str:
    """Return a Lua script without its ``--`` line comments (block comments stay)."""
    return "\n".join(line.partition("--")[0] for line in script.splitlines())


def has_code_after_return(code: str) -> bool:
    """Return whether something follows a ``return`` at the left margin that does not end a block there.

    Lua takes ``return`` only as the last statement; most sites' scripts end with one, and lines appended behind it
    break them. ``code`` has no comments.
    """
    lines = [line for line in code.splitlines() if line.strip()]
    return any(_RETURN.match(line) and not _BLOCK_END.match(after) for line, after in itertools.pairwise(lines))


def _wanted(facts: Facts) -> dict[str, str]:
    options = shim_options(facts.site.hook)
    return options | {"socket": f'"{options["socket"]}"'}
