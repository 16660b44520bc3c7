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


def own_prefix(cluster: str) -> str:
    """What every QOS of ours on this cluster begins with.

    Examples
    --------
    >>> own_prefix("Prod")
    'fg_prod_'
    """
    return f"{PREFIX}{cluster}_".lower()


def loan_band(name: str) -> Band | None:
    """Which borrowed band a QOS of ours is by its name; ``None`` for a guaranteed one.

    Examples
    --------
    >>> loan_band("fg_prod_risk_opp"), loan_band("fg_prod_risk")
    (<Band.OPPORTUNISTIC: 'opportunistic'>, None)
    """
    return next((band for band, suffix in _SUFFIX.items() if suffix and name.endswith(suffix)), None)


def band_qos(cluster: str, agent: AgentName, band: Band) -> str:
    """Name of the QOS, lower case as sacctmgr stores it.

    Examples
    --------
    >>> band_qos("Prod", "risk", Band.BORROW)
    'fg_prod_risk_borrow'
    """
    return f"{own_prefix(cluster)}{agent}{_SUFFIX[band]}".lower()
