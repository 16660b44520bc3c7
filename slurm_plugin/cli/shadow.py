"""``fairgpu shadow``: what fairness would say about any Slurm, for any user, without a site file."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import click

from slurm_plugin.cli._fresh import make_client, snapshot_option
from slurm_plugin.cli._numbers import amount, decimal, duration
from slurm_plugin.cli._options import json_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_table, talk
from slurm_plugin.rebalancer.shadow import Shadow, compute_shadow
from slurm_plugin.snapshot import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from policies.records import Observation
    from slurm_plugin.rebalancer.shadow import ShadowJob

_MAX_WEIGHT_LENGTH: Final = 40


def _read_weights(ctx: click.Context, param: click.Parameter, text: str) -> dict[str, Fraction]:
    """Parse ``risk=.6,rec=.3`` into exact weights; a wrong part is a usage error that quotes it."""
    weights: dict[str, Fraction] = {}
    for part in filter(None, text.split(",")):
        name, equals, number = part.partition("=")
        weight = _parse_weight(number)
        if not name.strip() or not equals or weight is None:
            raise click.BadParameter(f"{part!r} is not ACCOUNT=WEIGHT with a weight like .6, 3 or 1/3", ctx, param)
        weights[name.strip()] = weight
    return weights


def _parse_weight(text: str) -> Fraction | None:
    # An exponent could make a number that fills the memory.
    if len(text) > _MAX_WEIGHT_LENGTH or not set(text) <= set("0123456789./ "):
        return None
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return None


@click.command("shadow")
@json_option
@slurm_bin_dir_option
@snapshot_option
@click.option(
    "--weights", callback=_read_weights, default="", metavar="ACCOUNT=WEIGHT,...", help="Default: all accounts equal."
)
@click.option("-n", "--jobs", "n_jobs", type=click.IntRange(1, 1000), default=10, help="Jobs to show (default 10).")
def shadow_command(
    as_json: bool,
    slurm_bin_dir: Path | None,
    snapshot_path: Path | None,
    weights: dict[str, Fraction],
    n_jobs: int,
) -> None:
    """Show who would be first under Dominant Resource Fairness, and what idles while others wait.

    For any user on any Slurm: it only reads (squeue, sinfo, sprio, scontrol show config) and needs no site file.
    Accounts stand for agents; one that --weights does not name gets the smallest named weight. Where the site
    hides other users' jobs (PrivateData), only your own are counted.

    \b
    Examples:
      fairgpu shadow
      fairgpu shadow --weights risk=.6,rec=.3

    Exit codes: 0 done, 2 usage, 3 Slurm unreachable.
    """
    if snapshot_path is not None:
        observation = read_snapshot(snapshot_path).observation
    else:
        observation = make_client(slurm_bin_dir).observe()
    shadow = compute_shadow(observation, weights)
    if as_json:
        echo_json(
            {
                "accounts": shadow.accounts,
                "fair_order": shadow.fair_order[:n_jobs],
                "slurm_order": shadow.slurm_order[:n_jobs],
                "idle": [{**_idle_json(one)} for one in shadow.idle],
                "problems": observation.problems,
            }
        )
    else:
        _print_shadow(shadow, observation, n_jobs)


def _idle_json(one: object) -> dict[str, object]:
    names = ("tres", "capacity", "held", "idle", "n_waiting", "wanted")
    return {name: getattr(one, name) for name in names}


def _print_shadow(shadow: Shadow, observation: Observation, n_jobs: int) -> None:
    columns = ("account", "weight", "share", "of", "share/weight", "running", "pending", "startable", "oldest wait")
    rows = [
        (
            standing.agent,
            decimal(standing.weight),
            decimal(standing.dominant_share),
            standing.dominant_tres or None,
            decimal(standing.weighted_share),
            standing.n_running,
            standing.n_pending,
            standing.n_startable,
            duration(standing.oldest_wait_s) if standing.n_startable else None,
        )
        for standing in shadow.accounts
    ]
    print_table(f"Cluster {observation.cluster}: shares of the accounts", columns, rows)
    _print_orders(shadow, n_jobs)
    _print_idle(shadow)
    for problem, count in observation.problems:
        talk(f"not understood, {count} time(s): {problem}")


def _print_orders(shadow: Shadow, n_jobs: int) -> None:
    columns = ("place", "fair: job", "account", "tag", "Slurm now: job", "account ", "priority")
    pairs = itertools.zip_longest(shadow.fair_order[:n_jobs], shadow.slurm_order[:n_jobs])
    rows = [(place, *_fair(fair), *_slurm(slurm)) for place, (fair, slurm) in enumerate(pairs, start=1)]
    print_table("Who would be first, beside Slurm's present order", columns, rows)


def _fair(job: ShadowJob) -> tuple[object, ...]:
    return job.job_id, job.account, decimal(job.tag)


def _slurm(job: ShadowJob) -> tuple[object, ...]:
    return job.job_id, job.account, job.priority


def _print_idle(shadow: Shadow) -> None:
    rows = [
        (
            one.tres,
            amount(one.tres, one.capacity),
            amount(one.tres, one.held),
            amount(one.tres, one.idle),
            one.n_waiting,
            amount(one.tres, one.wanted),
        )
        for one in shadow.idle
    ]
    columns = ("tres", "capacity", "held", "idle", "jobs that wait for some", "wanted")
    print_table("What idles while others wait", columns, rows)
