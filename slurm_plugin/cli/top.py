"""``fairgpu top``: the cluster's agents live, on a screen or line by line."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

import click
from rich.live import Live

from slurm_plugin.cli._fresh import make_client
from slurm_plugin.cli._keys import single_keys
from slurm_plugin.cli._options import site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json_line, make_console
from slurm_plugin.cli._top_feed import Feed, Picture, look_once
from slurm_plugin.cli._top_view import render
from slurm_plugin.cli._watch import Watch
from slurm_plugin.cli.status import status_record
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TICK_S: Final = 0.25
"""How often the screen is drawn and keys are heard; Slurm is asked once per interval only."""

_PLAIN_WIDTH: Final = 100
_QUIT: Final = frozenset("qQ")


@click.command("top")
@site_option
@slurm_bin_dir_option
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(1, 3600),
    default=2.0,
    metavar="SECONDS",
    help="Time between two looks at Slurm (default 2).",
)
@click.option("--once", is_flag=True, help="Print one page and leave.")
@click.option("--count", type=click.IntRange(1), default=None, metavar="N", help="Print N pages and leave.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line and look.")
def top_command(
    site_path: Path | None,
    slurm_bin_dir: Path | None,
    interval_s: float,
    *,
    once: bool,
    count: int | None,
    as_json: bool,
) -> None:
    """Watch who has what and who is owed what; 'q' leaves.

    Each refresh is one observation of Slurm, as with 'status'. While slurmctld does not answer, the last data stay,
    a banner says since when, and the pauses between two tries grow up to a minute. With --once, --count or --json, and
    where stdout is no terminal, pages are printed one after the other. docs/reference/status.md explains every column.

    \b
    Examples:
      fairgpu top
      fairgpu top --interval 10
      fairgpu top --json --count 3 | jq .sla_state

    Exit codes: 0 done, 2 site file, 3 Slurm never answered (with --once or --count).
    """
    watch = Watch(site=load_site(site_path), client=make_client(slurm_bin_dir))
    console = make_console()
    n_pages = 1 if once else count
    if n_pages is not None or as_json or not console.is_terminal or console.is_dumb_terminal:
        _run_pages(watch, interval_s, n_pages, _echo_record if as_json else _print_page)
    else:
        _run_screen(watch, interval_s)


def _run_screen(watch: Watch, interval_s: float) -> None:
    console = make_console()
    feed = Feed(look=watch.look, picture=Picture(interval_s=interval_s))
    try:
        with single_keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                feed.tick()
                page = render(
                    feed.picture,
                    now_s=time.time(),
                    width=console.width,
                    keys="q quits",
                    waiting_s=feed.waiting_s(),
                )
                live.update(page, refresh=True)
                if not _QUIT.isdisjoint(keys(TICK_S)):
                    return
    except KeyboardInterrupt:
        return


def _run_pages(watch: Watch, interval_s: float, n_pages: int | None, show: Callable[[Picture], None]) -> None:
    picture = Picture(interval_s=interval_s)
    for _ in itertools.repeat(None) if n_pages is None else range(n_pages):
        _pause(picture.next_s - time.time())
        picture = look_once(picture, watch.look)
        show(picture)
    if picture.seen is None and picture.error is not None:
        raise picture.error


def _pause(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


def _print_page(picture: Picture) -> None:
    console = make_console()
    width = console.width if console.is_terminal else _PLAIN_WIDTH
    console.print(render(picture, now_s=time.time(), width=width))
    console.print()


def _echo_record(picture: Picture) -> None:
    if picture.error is not None or picture.seen is None:
        next_try_s = picture.next_s
        echo_json_line({"error": str(picture.error), "failed_since_s": picture.failed_since_s, "next_s": next_try_s})
    else:
        echo_json_line(status_record(picture.seen))
