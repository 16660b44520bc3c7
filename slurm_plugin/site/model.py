"""Every setting of the site file, defined once: loader, check, JSON Schema and reference page follow from it.

Field names carry the unit for Python (``interval_s``); the alias is the key in the file (``interval``).
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from policies.site_policy import FactorMode, JobOrder, Mode, Quota, TagSource
from slurm_plugin.site.scalars import (
    AbsolutePath,
    AccountText,
    AgentText,
    ListenAddress,
    Number,
    QosName,
    QuotaAmounts,
    Seconds,
    SlurmName,
    SocketPath,
    TresAmounts,
    UnitFraction,
    WholeSeconds,
)


class Settings(BaseModel):
    """Base of all sections: strict, frozen, unknown keys are errors."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class SlaTargetSettings(Settings):
    """What one agent is promised. An indicator without a target does not bend the weight."""

    queue_wait_s: Seconds | None = Field(
        default=None,
        alias="queue_wait",
        gt=0,
        le=2_592_000,
        description="Longest wait of its oldest startable job, measured from squeue.",
    )
    p99_latency_s: Seconds | None = Field(
        default=None,
        alias="p99_latency",
        gt=0,
        le=86_400,
        description="99th percentile of the service's answer time, read from sla.indicators.",
    )
    error_rate_frac: UnitFraction | None = Field(
        default=None,
        alias="error_rate",
        gt=0,
        description="Share of failed requests (0.01 is one in a hundred), read from sla.indicators.",
    )


class AgentSettings(Settings):
    """One agent. Its name starts with a lower-case letter: a-z, 0-9, _ and -."""

    accounts: tuple[AccountText, ...] = Field(
        min_length=1,
        description="Slurm accounts whose jobs belong to the agent without a tag; an account has one agent.",
    )
    users: tuple[SlurmName, ...] = Field(
        default=(), description="Unix users who may write the agent's tag from any managed account."
    )
    groups: tuple[SlurmName, ...] = Field(
        default=(),
        description="Unix groups whose members may write the agent's tag from any managed account.",
    )
    base_weight: Number = Field(
        description="Share by agreement, relative to the other agents' weights; read exactly, 0 comes last."
    )
    order: Annotated[JobOrder, Field(strict=False)] = Field(
        default=JobOrder.FIFO,
        description="Order of the agent's own jobs: as submitted, or earliest deadline first.",
    )
    sla: SlaTargetSettings = Field(default=SlaTargetSettings(), description="What the agent is promised.")
    quota: QuotaAmounts = Field(
        default=Quota(),
        description="Nominal quota: auto splits the nodes by base weight, none leaves the agent without bands.",
    )
    borrowing_limit: TresAmounts | None = Field(
        default=None, description="Cap of the borrow band; none: borrow_frac of the nominal quota."
    )


class BandSettings(Settings):
    """Quotas and the three bands. Without this section FairGPU orders jobs and touches no QOS."""

    borrow_frac: Number = Field(
        default=Fraction(1, 5),
        le=10,
        description="Cap of the borrow band as a part of the nominal quota, per TRES, rounded down.",
    )
    opportunistic: bool = Field(
        default=True, description="Whether work beyond the cap may use what is idle; it goes first."
    )
    grace_s: WholeSeconds = Field(
        default=0.0,
        alias="grace",
        le=86_400,
        description="GraceTime of the borrow band, before the KillWait that every victim has; it delays claims.",
    )
    window_s: Seconds = Field(
        default=3_600.0, alias="window", gt=0, le=2_592_000, description="Time in which reclaims of a job are counted."
    )
    max_reclaims: int = Field(
        default=3, ge=1, le=1_000, description="After so many reclaims a job borrows no more until it has run."
    )
    starve_after_s: Seconds = Field(
        default=600.0,
        alias="starve_after",
        gt=0,
        le=2_592_000,
        description="After this wait an agent's blocked large job gets its guaranteed band for itself.",
    )
    max_borrow_nodes: int = Field(
        default=1, ge=1, le=65_533, description="Most nodes of a job in the borrow band (MaxTRESPerJob)."
    )
    template_qos: QosName = Field(
        default="normal", description="QOS whose limits per job, user and account and whose flags ours start from."
    )
    managed_qos: tuple[QosName, ...] = Field(
        default=("normal",),
        description="Jobs in one of these may be moved into our bands; any other explicit QOS is foreign.",
    )
    set_default_qos: bool = Field(
        default=True, description="Whether apply makes the guaranteed QOS the default of the agents' associations."
    )


class SiteFactorSettings(Settings):
    """The number that FairGPU writes to a pending job's SiteFactor."""

    scale: int = Field(
        default=40_000,
        ge=100,
        le=1_000_000_000,
        description="Site factor of a job whose agent holds nothing; ours lie in 1..scale, 0 means not ours.",
    )
    mode: Annotated[FactorMode, Field(strict=False)] = Field(
        default=FactorMode.BLEND,
        description="blend: beside the other priority factors; dominant: scale exceeds them all (doctor).",
    )


class SlaSettings(Settings):
    """How the SLA state bends the base weights."""

    bound: Number = Field(
        default=Fraction(2),
        ge=1,
        le=100,
        description="The factor stays in 1/bound..bound; 1 switches the bending off.",
    )
    smoothing_s: Seconds = Field(
        default=60.0,
        alias="smoothing",
        ge=0,
        le=86_400,
        description="Time constant of the average over cycles.",
    )
    hysteresis_frac: UnitFraction = Field(
        default=0.1,
        alias="hysteresis",
        description="The factor moves only when it would change by more than this fraction.",
    )
    max_age_s: Seconds = Field(
        default=60.0,
        alias="max_age",
        gt=0,
        le=86_400,
        description="An indicator older than this is unknown, not zero.",
    )
    indicators: AbsolutePath | None = Field(
        default=None,
        description="Text file in Prometheus format with each agent's p99 latency and error rate.",
    )


class RebalancerSettings(Settings):
    """The daemon that observes, decides and writes site factors."""

    interval_s: Seconds = Field(default=5.0, alias="interval", ge=0.2, le=600, description="Time between two cycles.")
    updates_per_second: int = Field(
        default=100,
        ge=1,
        le=2_000,
        description="Most job updates per second; each takes slurmctld 0.2-0.4 ms.",
    )
    metrics_listen: ListenAddress | None = Field(
        default=None, description="Address of the Prometheus endpoint /metrics; none: no endpoint."
    )


class HookSettings(Settings):
    """The server that answers slurmctld's submit hook."""

    socket: SocketPath = Field(
        default=Path("/run/fairgpu/hook.sock"),
        description="Unix socket between the shim and the server.",
    )
    deadline_s: Seconds = Field(
        default=0.02,
        alias="deadline",
        ge=0.001,
        le=0.2,
        description="Longest time that slurmctld waits for an answer; then the job is accepted unchanged.",
    )
    breaker_failures: int = Field(
        default=3,
        ge=1,
        le=1_000,
        description="Failures in a row after which the shim stops asking for a while.",
    )
    breaker_pause_s: Seconds = Field(
        default=10.0, alias="breaker_pause", ge=0.1, le=600, description="How long the shim then stops asking."
    )
    peers: tuple[SlurmName, ...] = Field(
        default=("root", "slurm"),
        min_length=1,
        description="Unix users who may talk to the socket: root and SlurmUser.",
    )


class PathSettings(Settings):
    """Where FairGPU keeps its files."""

    state_dir: AbsolutePath = Field(
        default=Path("/var/lib/fairgpu"),
        description="Kept over a reboot: kill switch, history, lease. Not on NFS.",
    )
    run_dir: AbsolutePath = Field(
        default=Path("/run/fairgpu"),
        description="Lost at a reboot: standings for the hook.",
    )


class SiteSettings(Settings):
    """The whole site file."""

    cluster: SlurmName = Field(description="ClusterName of slurm.conf; another cluster is refused.")
    mode: Annotated[Mode, Field(strict=False)] = Field(
        default=Mode.OBSERVE,
        description="observe: record only; advise: also tell the user at submission; enforce: change.",
    )
    policy: str = Field(default="wdrf", description="Scheduling policy: wdrf, or constant (for comparisons).")
    partitions: tuple[SlurmName, ...] = Field(
        min_length=1, description="Managed partitions; a job is managed only if all its partitions are."
    )
    tag_source: Annotated[TagSource, Field(strict=False)] = Field(
        default=TagSource.COMMENT,
        description="Where a job's agent tag is read from; account: tags are not read.",
    )
    agents: dict[AgentText, AgentSettings] = Field(min_length=1, description="The agents, by name.")
    bands: BandSettings | None = Field(default=None, description="Quotas and bands; left out: ordering only.")
    site_factor: SiteFactorSettings = Field(default=SiteFactorSettings(), description="The site factor.")
    sla: SlaSettings = Field(default=SlaSettings(), description="How the SLA state bends the weights.")
    rebalancer: RebalancerSettings = Field(default=RebalancerSettings(), description="The rebalancer.")
    hook: HookSettings = Field(default=HookSettings(), description="The submit hook.")
    paths: PathSettings = Field(default=PathSettings(), description="Files.")
