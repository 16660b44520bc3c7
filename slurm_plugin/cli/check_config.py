"""``fairgpu check-config``: whether the site file is right, and what it says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._options import json_option, site_option
from slurm_plugin.cli._output import echo_json, print_table, talk
from slurm_plugin.errors import ConfigError
from slurm_plugin.site import SiteFile, find_site_path, load_site
from slurm_plugin.site.durations import format_duration
from slurm_plugin.site.reference import export_schema, render_reference

if TYPE_CHECKING:
    from policies.site_policy import AgentPolicy

_EXIT_CONFIG = 2


@click.command("check-config")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@site_option
@json_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the site file, for editors.")
@click.option("--reference", is_flag=True, help="Print the reference page of the site file.")
def check_config_command(
    file: Path | None, site_path: Path | None, as_json: bool, schema: bool, reference: bool
) -> None:
    """Check the site file and report every problem at once.

    \b
    Examples:
      fairgpu check-config
      fairgpu check-config examples/ecommerce.yaml

    Exit codes: 0 right, 2 wrong.
    """
    if schema:
        echo_json(export_schema())
    elif reference:
        click.echo(render_reference(), nl=False)
    else:
        _check(file or site_path, as_json=as_json)


def _check(path: Path | None, *, as_json: bool) -> None:
    try:
        site = load_site(path)
    except ConfigError as err:
        if not as_json:
            raise
        problems = err.problems or (str(err),)
        echo_json({"ok": False, "path": find_site_path(path), "problems": problems, "settings": None})
        sys.exit(_EXIT_CONFIG)
    if as_json:
        echo_json({"ok": True, "path": site.path, "problems": [], "settings": site.settings})
        return
    _print_summary(site)


def _print_summary(site: SiteFile) -> None:
    policy = site.policy
    title = f"{site.path}: cluster {policy.cluster}, mode {policy.mode.value}, policy {policy.policy}"
    total = sum(agent.base_weight for agent in policy.agents)
    columns = ("agent", "base weight", "share", "order", "accounts", "tag also for", "sla")
    rows = [
        (
            agent.name,
            str(agent.base_weight),
            str(agent.base_weight / total),
            agent.order.value,
            " ".join(agent.accounts),
            " ".join((*agent.users, *(f"@{group}" for group in agent.groups))) or None,
            _promises(agent) or None,
        )
        for agent in policy.agents
    ]
    print_table(title, columns, rows)
    talk("The site file is right. Next: fairgpu doctor")


def _promises(agent: AgentPolicy) -> str:
    sla = agent.sla
    found = []
    if sla.queue_wait_s is not None:
        found.append(f"queue_wait={format_duration(sla.queue_wait_s)}")
    if sla.p99_latency_s is not None:
        found.append(f"p99_latency={format_duration(sla.p99_latency_s)}")
    if sla.error_rate_frac is not None:
        found.append(f"error_rate={sla.error_rate_frac:g}")
    return " ".join(found)
