"""What a shim is told by the site file and by Slurm; the Lua and the compiled shim use the same names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_plugin.site.model import HookSettings

_UID: Final = re.compile(r"\((\d+)\)")


def shim_options(hook: HookSettings) -> dict[str, str]:
    """Return each option of a shim with the site file's value, as text."""
    return {
        "socket": str(hook.socket),
        "deadline_ms": f"{hook.deadline_s * 1000:g}",
        "failures": str(hook.breaker_failures),
        "pause_s": f"{hook.breaker_pause_s:g}",
    }


def trusted_uids(config: Mapping[str, str], service_uid: int | None) -> tuple[int, ...]:
    """Return the uids whose job updates are our own or Slurm's: they pass without being asked about.

    Parameters
    ----------
    config : mapping of str to str
        Slurm's configuration by key, for ``SlurmUser``; may be empty.
    service_uid : int or None
        Of the user who runs the rebalancer, if known.
    """
    match = _UID.search(config.get("SlurmUser", ""))
    found = {int(match[1])} if match else set()
    if service_uid is not None:
        found.add(service_uid)
    return tuple(sorted(found - {0}))
