"""Read the site file, report every problem at once, and hand the agreement to the core as frozen records."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from policies.records import AccountName, AgentName, PartitionName
from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy, SlaTargets, SlaTuning
from slurm_plugin.errors import ConfigError
from slurm_plugin.site.cross_checks import cross_check
from slurm_plugin.site.model import (
    AgentSettings,
    BandSettings,
    HookSettings,
    PathSettings,
    RebalancerSettings,
    SiteSettings,
)
from slurm_plugin.site.problems import format_path, from_validation
from slurm_plugin.site.yaml_tree import Problem, Tree, YamlError, read_tree

DEFAULT_PATH: Final = Path("/etc/fairgpu/site.yaml")
PATH_VARIABLE: Final = "FAIRGPU_SITE"
MAX_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """A site file that passed every check.

    Attributes
    ----------
    path : Path
        Where it was read from.
    policy : SitePolicy
        What the core needs.
    sla_indicators : Path or None
        File with SLA indicators in Prometheus text format.
    settings : SiteSettings
        Everything as written, defaults filled in.
    """

    path: Path
    policy: SitePolicy
    rebalancer: RebalancerSettings
    hook: HookSettings
    sla_indicators: Path | None
    paths: PathSettings
    settings: SiteSettings


def find_site_path(path: Path | None = None) -> Path:
    """Return ``path``, else what ``FAIRGPU_SITE`` names, else ``/etc/fairgpu/site.yaml``."""
    return path or Path(os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)


def load_site(path: Path | None = None) -> SiteFile:
    """Return the checked site file.

    Parameters
    ----------
    path : Path, optional
        The file; see :func:`find_site_path` for the default.

    Raises
    ------
    ConfigError
        It cannot be read or has problems; ``problems`` lists all of them with line and path.
    """
    found = find_site_path(path)
    return parse_site(_read_text(found), path=found)


def parse_site(text: str, *, path: Path = DEFAULT_PATH) -> SiteFile:
    """Return the checked site file of a text; ``path`` is used in messages only.

    Raises
    ------
    ConfigError
        As :func:`load_site`.
    """
    try:
        tree = read_tree(text)
    except YamlError as err:
        raise ConfigError(f"{path} is not readable", (str(err),)) from err
    if not isinstance(tree.value, dict):
        raise ConfigError(
            f"{path} is not readable", ("line 1: the file must be a mapping that starts with 'cluster:'",)
        )
    return _build(tree, path)


def _build(tree: Tree, path: Path) -> SiteFile:
    problems = [*tree.problems, *cross_check(tree)]
    try:
        settings = SiteSettings.model_validate(tree.value, by_alias=True, by_name=False)
    except ValidationError as err:
        problems += from_validation(err, tree, SiteSettings)
        raise _config_error(problems, path) from err
    if problems:
        raise _config_error(problems, path)
    return site_from_settings(settings, path=path)


def _config_error(problems: list[Problem], path: Path) -> ConfigError:
    ordered = sorted(set(problems), key=lambda one: (one.line, [str(part) for part in one.path], one.text))
    lines = tuple(f"line {one.line}: {_named(one)}" for one in ordered)
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError(f"{path} has {count}", lines)


def _named(problem: Problem) -> str:
    where = format_path(problem.path)
    return f"{where}: {problem.text}" if where else problem.text


def site_from_settings(settings: SiteSettings, *, path: Path = DEFAULT_PATH) -> SiteFile:
    """Return the site file that these settings stand for."""
    policy = SitePolicy(
        cluster=settings.cluster,
        mode=settings.mode,
        policy=settings.policy,
        partitions=tuple(PartitionName(name) for name in sorted(settings.partitions)),
        agents=tuple(_agent(name, settings.agents[name]) for name in sorted(settings.agents)),
        tag_source=settings.tag_source,
        factor_scale=settings.site_factor.scale,
        factor_mode=settings.site_factor.mode,
        sla=SlaTuning(
            bound=settings.sla.bound,
            smoothing_s=settings.sla.smoothing_s,
            hysteresis_frac=settings.sla.hysteresis_frac,
            max_age_s=settings.sla.max_age_s,
        ),
        bands=None if settings.bands is None else _bands(settings.bands),
    )
    return SiteFile(
        path=path,
        policy=policy,
        rebalancer=settings.rebalancer,
        hook=settings.hook,
        sla_indicators=settings.sla.indicators,
        paths=settings.paths,
        settings=settings,
    )


def _agent(name: str, agent: AgentSettings) -> AgentPolicy:
    return AgentPolicy(
        name=AgentName(name),
        accounts=tuple(AccountName(account) for account in agent.accounts),
        users=agent.users,
        groups=agent.groups,
        base_weight=agent.base_weight,
        order=agent.order,
        sla=SlaTargets(
            queue_wait_s=agent.sla.queue_wait_s,
            p99_latency_s=agent.sla.p99_latency_s,
            error_rate_frac=agent.sla.error_rate_frac,
        ),
        quota=agent.quota,
        borrowing_limit=agent.borrowing_limit,
    )


def _bands(bands: BandSettings) -> BandPolicy:
    return BandPolicy(
        borrow_frac=bands.borrow_frac,
        opportunistic=bands.opportunistic,
        grace_s=int(bands.grace_s),
        window_s=bands.window_s,
        max_reclaims=bands.max_reclaims,
        starve_after_s=bands.starve_after_s,
        max_borrow_nodes=bands.max_borrow_nodes,
        template_qos=bands.template_qos,
        managed_qos=bands.managed_qos,
        set_default_qos=bands.set_default_qos,
    )


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is not a regular file")
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError as err:
        raise ConfigError(
            f"there is no site file {path}; start from examples/ecommerce.yaml, "
            f"or name another with --site or {PATH_VARIABLE}"
        ) from err
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}") from err
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        raise ConfigError(f"{path} is not readable", (f"line {line}: not UTF-8 text",)) from err
