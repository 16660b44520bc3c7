"""Whether the QOS helper answers, for the people who look: ``fairgpu status`` and ``fairgpu doctor``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.qos_helper.client import HelperUnavailableError, SocketQosHelper, helper_socket

if TYPE_CHECKING:
    from slurm_plugin.site import SiteFile

WITHOUT: Final = (
    "ranks and Preempt lists stay as they are, and no job moves into a borrow band that its agent's own list lacks"
)
_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperProbe:
    """What a ping said.

    Attributes
    ----------
    error : str
        Why there is no answer; empty if it answered.
    is_closed : bool
        There is a socket that this user may not ask: whether anybody answers there is not known.
    """

    error: str = ""
    is_closed: bool = False


def probe_helper(site: SiteFile) -> HelperProbe:
    """Ask the helper whether it lives."""
    path = helper_socket(site)
    try:
        SocketQosHelper(path=path, timeout_s=_TIMEOUT_S).ping()
    except HelperUnavailableError as err:
        is_closed = os.access(path, os.F_OK) and not os.access(path, os.W_OK)
        return HelperProbe(error=str(err), is_closed=is_closed)
    return HelperProbe()


def how_to_start(slurm_user: str = "slurm") -> str:
    """Return the commands that start the helper."""
    return f"systemctl start fairgpu-qos-helper, or: sudo -u {slurm_user or 'slurm'} fairgpu qos-helper"
