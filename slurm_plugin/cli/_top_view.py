"""The page of ``fairgpu top``: one row per agent with a bar of its use by band, then reclaims, findings and health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from slurm_plugin.cli._band_table import BandUse, band_cells, band_use
from slurm_plugin.cli._health import describe_health
from slurm_plugin.cli._numbers import amount, duration
from slurm_plugin.cli._output import clean
from slurm_plugin.cli._status_rows import agent_cells, describe_budget, describe_disruption, mode_line, sla_readings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.fairness.sla_weight import IndicatorReading
    from policies.plan import AgentStanding
    from slurm_plugin.cli._top_feed import Picture
    from slurm_plugin.cli._watch import Seen

_MIN_BAR: Final = 6
_MAX_BAR: Final = 48
_LONGEST_AGENT: Final = 12
_N_FINDINGS: Final = 6
_SLOW_S: Final = 3.0
"""A look that takes longer is told before it fails: Slurm's commands wait ten seconds and more."""

_BAR_LEGEND: Final = "bar: # in the quota, . free of it, + borrowed, o opportunistic, = in no band"


def render(picture: Picture, *, now_s: float, width: int, keys: str = "", waiting_s: float = 0.0) -> Group:
    """Return the page.

    Parameters
    ----------
    now_s : float
        Seconds since the epoch; ages are counted from it.
    width : int
        Columns of the screen.
    keys : str
        What the keys do, for the head of the page.
    waiting_s : float
        How long the look that runs has taken, 0 for none.
    """
    seen = picture.seen
    parts: list[Text | Table] = [_head(picture, now_s, keys)]
    if picture.error is not None or waiting_s > _SLOW_S:
        parts.append(_banner(picture, now_s, waiting_s))
    if seen is None:
        if picture.error is None:
            parts.append(Text("Looking at the cluster ..."))
        return Group(*parts)
    parts += [Text(), _agents(seen, width), Text(_BAR_LEGEND, style="dim"), Text()]
    parts += [_line(text, width) for text in (*_reclaims(seen), *describe_disruption(seen), *_findings(seen))]
    if seen.health is not None:
        aged = seen.health.aged(max(0.0, now_s - seen.snapshot.now_s))
        parts += [_line(text, width) for text in describe_health(aged)]
    parts.append(Text(clean(describe_budget(seen.budget, seen.load))))
    return Group(*parts)


def _head(picture: Picture, now_s: float, keys: str) -> Text:
    seen = picture.seen
    if seen is None:
        return Text(f"fairgpu top  {keys}", style="bold")
    cluster = seen.snapshot.site_policy.cluster
    age = duration(max(0.0, now_s - seen.snapshot.now_s))
    text = f"fairgpu top  {cluster}: {mode_line(seen.snapshot, seen.health)}"
    told = Text(clean(text), style="bold")
    return told.append(f"\ndata {age} old, every {picture.interval_s:g} s{keys and ', '}{keys}", style="not bold")


def _banner(picture: Picture, now_s: float, waiting_s: float) -> Text:
    if picture.error is None:
        return Text(f"SLURM IS SLOW, no answer for {duration(waiting_s)} so far.", style="bold reverse yellow")
    since = duration(max(0.0, now_s - (picture.failed_since_s or now_s)))
    left_s = picture.next_s - now_s
    step = f"Next try in {duration(left_s)}." if left_s > 0 and not waiting_s else "Trying now."
    first_line = str(picture.error).splitlines()[0] if str(picture.error) else "no reason given"
    return Text(f"SLURM DOES NOT ANSWER, for {since}: {clean(first_line)}. {step}", style="bold reverse red")


def _agents(seen: Seen, width: int) -> Table:
    plan = seen.snapshot.plan
    readings = sla_readings(seen.snapshot)
    uses = [band_use(standing, plan.tres) for standing in plan.standings]
    rows = [_row(standing, use, readings[standing.agent]) for standing, use in zip(plan.standings, uses, strict=True)]
    names, n_bar = _fit(rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    shown_tres = {use.tres for use in uses}
    heading = shown_tres.pop() if len(shown_tres) == 1 else "use by band"
    for name in names:
        is_text = name in {"agent", "SLA"}
        table.add_column(Text(name), justify="left" if is_text else "right", no_wrap=True)
        if name == _BAR_AFTER and n_bar:
            table.add_column(Text(heading[:n_bar]), width=n_bar, no_wrap=True)
    full = max((max(use.quota or 0, use.total) for use in uses), default=0)
    for row, use in zip(rows, uses, strict=True):
        cells = [Text(row[name]) for name in names]
        if n_bar:
            cells.insert(names.index(_BAR_AFTER) + 1, bar(use, full=full, width=n_bar))
        table.add_row(*cells)
    return table


def _fit(rows: Sequence[Mapping[str, str]], width: int) -> tuple[list[str], int]:
    """Return the columns for which there is room, and the bar's: it shrinks first and goes first, no cell is cut."""
    names = list(_COLUMNS)
    needs = {name: max(len(name), *(len(row[name]) for row in rows), 0) + 1 for name in names}
    for drop in _DROPPED:
        if sum(needs[name] for name in names) <= width:
            break
        names.remove(drop)
    n_left = width - sum(needs[name] for name in names)
    return names, min(_MAX_BAR, n_left) if n_left >= _MIN_BAR and len(names) == len(_COLUMNS) else 0


_COLUMNS: Final = ("agent", "weight", "quota", "use", "borr.", "opp.", "lent", "share", "pend.", "SLA")
_DROPPED: Final = ("SLA", "share", "weight", "pend.", "lent", "opp.", "borr.", "quota")
"""Columns that go one after the other on a narrow screen, once the bar is gone."""

_BAR_AFTER: Final = "use"
"""The bar stands behind the number of what is in use."""


def _row(standing: AgentStanding, use: BandUse, readings: Sequence[IndicatorReading]) -> dict[str, str]:
    cells = agent_cells(standing, readings)
    bands = {} if standing.bands is None else band_cells(standing, standing.bands)
    quota = "-" if use.quota is None else amount(use.tres, use.quota)
    name = clean(standing.agent)
    return {
        "agent": name if len(name) <= _LONGEST_AGENT else f"{name[: _LONGEST_AGENT - 1]}~",
        "weight": str(cells["weight"]),
        "quota": quota,
        "use": amount(use.tres, use.total),
        "borr.": str(bands.get("borrowed", "-")),
        "opp.": str(bands.get("opport.", "-")),
        "lent": str(bands.get("lent", "-")),
        "share": str(cells["share"]),
        "pend.": str(cells["pending"]),
        "SLA": str(cells["SLA"]),
    }


def bar(use: BandUse, *, full: int, width: int) -> Text:
    """Return a bar of an agent's use: its quota (used, then free), then what it borrows.

    Parameters
    ----------
    full : int
        The amount that ``width`` columns stand for. What is not zero has one column at least, as far as there is room.
    """
    free = max(0, (use.quota or 0) - use.guaranteed)
    parts = (
        ("#", use.guaranteed, "green"),
        (".", free, "dim"),
        ("+", use.borrowed, "yellow"),
        ("o", use.opportunistic, "magenta"),
        ("=", use.outside, "cyan"),
    )
    drawn = Text()
    for sign, held, style in parts:
        n_columns = max(1, round(held * width / full)) if held and full else 0
        drawn.append(sign * min(n_columns, width - len(drawn)), style=style)
    return drawn


def _reclaims(seen: Seen) -> list[str]:
    return [f"Reclaimed {_describe_reclaim(row)}" for row in seen.reclaims]


def _describe_reclaim(row: Mapping[str, Any]) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(row["at_s"]))
    whom = "an owed place" if row["claimant"] is None else f"job {row['claimant_job']} of {row['claimant']}"
    return f"{clock} job {row['job_id']} of {row['agent']} ({row['band']}, ran {duration(row['ran_s'])}) for {whom}"


def _findings(seen: Seen) -> list[str]:
    findings = seen.snapshot.plan.findings
    shown = [f"Finding   {one.kind} {one.subject}: {one.text}" for one in findings[:_N_FINDINGS]]
    n_more = len(findings) - len(shown)
    return [*shown, f"Finding   {n_more} more, see fairgpu status"] if n_more else shown


def _line(text: str, width: int) -> Text:
    line = Text(clean(text), no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
