"""Names of our QOSes: the cluster's name is in them, since slurmdbd is shared by clusters."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policies.records import AgentName

PREFIX: Final = "fg_"
"""Every QOS of ours begins with it; nothing else is touched."""


class Band(StrEnum):
    """The three bands of an agent."""

    GUARANTEED = "guaranteed"
    BORROW = "borrow"
    OPPORTUNISTIC = "opportunistic"


_SUFFIX: Final = {Band.GUARANTEED: "", Band.BORROW: "_borrow", Band.OPPORTUNISTIC: "_opp"}


def band_qos(cluster: str, agent: AgentName, band: Band) -> str:
    """Name of the QOS, lower case as sacctmgr stores it.

    Examples
    --------
    >>> band_qos("Prod", "risk", Band.BORROW)
    'fg_prod_risk_borrow'
    """
    return f"{PREFIX}{cluster}_{agent}{_SUFFIX[band]}".lower()
