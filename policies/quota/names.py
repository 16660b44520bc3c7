"""Names of our QOSes: the cluster's name is in them, since slurmdbd is shared by clusters."""

from __future__ import annotations

import re
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


BORROWED: Final = (Band.BORROW, Band.OPPORTUNISTIC)
"""Bands whose jobs can be taken back."""

_LOWER: Final = {Band.GUARANTEED: BORROWED, Band.BORROW: (Band.OPPORTUNISTIC,), Band.OPPORTUNISTIC: ()}
_AGENT: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
"""An agent's name, as the site file has them."""

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


def may_be_preempted_by(cluster: str, band: Band, name: str) -> bool:
    """Whether a QOS may stand in the Preempt list of a band: by its name a lower band of ours on this cluster.

    Its agent need not be in the site file: a retired one may still have running jobs. No other name is ours to list.

    Examples
    --------
    >>> may_be_preempted_by("Prod", Band.BORROW, "fg_prod_gone_opp")
    True
    >>> may_be_preempted_by("Prod", Band.BORROW, "fg_prod_gone_borrow")
    False
    >>> may_be_preempted_by("Prod", Band.BORROW, "scav")
    False
    """
    agent = name.removeprefix(own_prefix(cluster))
    lower = [_SUFFIX[one] for one in _LOWER[band] if agent.endswith(_SUFFIX[one])]
    return agent != name and any(_AGENT.fullmatch(agent.removesuffix(suffix)) for suffix in lower)


def is_borrowed_qos(name: str) -> bool:
    """Whether a QOS is by its name the borrow or opportunistic band of an agent, on any cluster and in no site file.

    Examples
    --------
    >>> is_borrowed_qos("fg_prod_risk_opp"), is_borrowed_qos("fg_prod_risk"), is_borrowed_qos("scav_borrow")
    (True, False, False)
    """
    return name.startswith(PREFIX) and loan_band(name) is not None
