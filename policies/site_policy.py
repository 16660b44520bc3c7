"""The admin's agreement as the core sees it: frozen, checked by the shell's site-file reader beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from policies.records import AccountName, AgentName, PartitionName, Tres


class Mode(StrEnum):
    """How far FairGPU goes: record only, also tell the user, or change."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


class TagSource(StrEnum):
    """Where a job's agent tag is read from."""

    COMMENT = "comment"
    WCKEY = "wckey"
    ACCOUNT = "account"


class JobOrder(StrEnum):
    """How an agent's coordinator orders its own jobs."""

    FIFO = "fifo"
    DEADLINE = "deadline"


class FactorMode(StrEnum):
    """How the site factor stands to the site's other priority factors (``fairgpu doctor`` shows the sizes)."""

    BLEND = "blend"
    DOMINANT = "dominant"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaTargets:
    """What an agent is promised; ``None`` means no promise on that indicator. Seconds and fractions (0-1)."""

    queue_wait_s: float | None = None
    p99_latency_s: float | None = None
    error_rate_frac: float | None = None


class QuotaKind(StrEnum):
    """Where an agent's nominal quota comes from."""

    AUTO = "auto"
    EXPLICIT = "explicit"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """An agent's nominal quota (Kueue's word): apportioned by base weight, given in numbers, or none at all.

    ``amounts`` is set for ``EXPLICIT`` only; a TRES that it does not name is not limited. ``NONE`` is pure DRF
    ordering: the agent keeps its QOS, borrows nothing and nothing is reclaimed for it.
    """

    kind: QuotaKind = QuotaKind.AUTO
    amounts: Tres = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPolicy:
    """The three bands (DESIGN section 3): guaranteed, borrowed, opportunistic.

    Attributes
    ----------
    borrow_frac : Fraction
        Cap of an agent's borrow band as a part of its nominal quota, per TRES, rounded down.
    opportunistic : bool
        Whether work beyond the cap may use what is idle.
    grace_s : int
        GraceTime of the borrow band, seconds. Above 0 several claims at once get in each other's way.
    window_s, max_reclaims
        A job that was reclaimed ``max_reclaims`` times within ``window_s`` borrows no more until it has run.
    starve_after_s : float
        After this wait an agent's largest blocked guaranteed job gets the band for itself (quota reservation).
    max_borrow_nodes : int
        MaxTRESPerJob of the borrow band in nodes.
    template_qos : str
        QOS whose other limits and flags ours start from.
    managed_qos : tuple of str
        A job submitted to one of these may be moved into our bands; any other explicit QOS is foreign.
    set_default_qos : bool
        Whether ``apply`` makes the guaranteed QOS the default of the agents' associations.
    """

    borrow_frac: Fraction = Fraction(1, 5)
    opportunistic: bool = True
    grace_s: int = 0
    window_s: float = 3600.0
    max_reclaims: int = 3
    starve_after_s: float = 600.0
    max_borrow_nodes: int = 1
    template_qos: str = "normal"
    managed_qos: tuple[str, ...] = ("normal",)
    set_default_qos: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """One agent: its accounts, who may use its tag, its base weight and its SLA.

    Attributes
    ----------
    accounts : tuple of AccountName
        Jobs of these accounts belong to the agent without a tag; their users may also write the tag.
    users, groups : tuple of str
        Unix users and groups who may use the tag from any managed account.
    base_weight : Fraction
        Exact, >= 0 (``0.6`` is ``Fraction(3, 5)``).
    borrowing_limit : Tres or None
        Cap of the borrow band; ``None`` means ``borrow_frac`` of the nominal quota, an amount of 0 none.
    """

    name: AgentName
    accounts: tuple[AccountName, ...]
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    base_weight: Fraction
    order: JobOrder = JobOrder.FIFO
    sla: SlaTargets = SlaTargets()
    quota: Quota = Quota()
    borrowing_limit: Tres | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaTuning:
    """How the SLA state bends the base weight.

    Attributes
    ----------
    bound : Fraction
        b > = 1: the factor stays in [1/b, b]. 1 switches the bending off.
    smoothing_s : float
        Time constant of the exponential average over cycles, seconds.
    hysteresis_frac : float
        The factor moves only when the smoothed value differs from it by more than this fraction.
    max_age_s : float
        An indicator sample older than this is unknown, not zero.
    """

    bound: Fraction = Fraction(2)
    smoothing_s: float = 60.0
    hysteresis_frac: float = 0.1
    max_age_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """The whole agreement.

    Attributes
    ----------
    agents : tuple of AgentPolicy
        Sorted by name.
    partitions : tuple of PartitionName
        Managed partitions; a job is managed only if all its partitions are.
    policy : str
        Registered name of the scheduling policy (``wdrf``, ``constant``).
    factor_scale : int
        Site factor of a job with share tag 0; our factors lie in [1, factor_scale], 0 means "not ours".
    factor_mode : FactorMode
        See :class:`FactorMode`; read by doctor, which compares ``factor_scale`` with the site's weights.
    bands : BandPolicy or None
        ``None`` is ordering only: no QOS of ours exists or is touched.
    """

    cluster: str
    mode: Mode = Mode.OBSERVE
    policy: str = "wdrf"
    partitions: tuple[PartitionName, ...]
    agents: tuple[AgentPolicy, ...]
    tag_source: TagSource = TagSource.COMMENT
    factor_scale: int = 40_000
    factor_mode: FactorMode = FactorMode.BLEND
    sla: SlaTuning = SlaTuning()
    bands: BandPolicy | None = None
