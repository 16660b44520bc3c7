"""SLA indicators from a text file in Prometheus' exposition format.

A service's exporter (or a cron job) writes the file and renames it into place::

    fairgpu_agent_p99_latency_seconds{agent="risk"} 0.18
    fairgpu_agent_error_rate{agent="risk"} 0.0004 1764511200000

The third word is optional: milliseconds since the epoch; without it a sample is as old as the file. Other
metrics in the file are passed over. The file is untrusted: what cannot be used is counted, and never stops
a cycle.

References
----------
Prometheus text exposition format 0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from policies.records import AgentName, IndicatorSample

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client.samples import Sample

INDICATOR_NAMES: Final = {
    "fairgpu_agent_p99_latency_seconds": "p99_latency_s",
    "fairgpu_agent_error_rate": "error_rate_frac",
}
"""Metric in the file -> name of the indicator in the core."""

MAX_BYTES: Final = 1 << 20
MAX_AHEAD_S: Final = 60.0
"""A time stamp may be this far in the future (clocks differ); one further ahead would never grow old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorReading:
    """What a file said.

    Attributes
    ----------
    samples : tuple of IndicatorSample
        Sorted by agent and name, one each.
    problems : tuple of (str, int)
        What could not be used, with counts.
    """

    samples: tuple[IndicatorSample, ...] = ()
    problems: tuple[tuple[str, int], ...] = ()


def read_indicators(path: Path, *, now_s: float) -> IndicatorReading:
    """Read a file into samples with their age stamps; an unreadable file is a problem, not an error.

    Parameters
    ----------
    path : Path
        A regular file of at most 1 MiB.
    now_s : float
        Seconds since the epoch.
    """
    try:
        text, modified_s = _read_file(path)
    except OSError as err:
        return IndicatorReading(problems=((f"{path}: {err.strerror or err}", 1),))
    return parse_indicators(text, modified_s=modified_s, now_s=now_s)


def parse_indicators(text: str, *, modified_s: float, now_s: float) -> IndicatorReading:
    """Read a text in exposition format into samples.

    Parameters
    ----------
    modified_s : float
        Age stamp of samples that carry none, seconds since the epoch.
    """
    problems: Counter[str] = Counter()
    found: dict[tuple[AgentName, str], IndicatorSample] = {}
    for line in text.split("\n"):
        sample = _parse_line(line, problems)
        if sample is None:
            continue
        indicator = _indicator(sample, modified_s, problems)
        if indicator is None:
            continue
        if indicator.at_s > now_s + MAX_AHEAD_S:
            problems["indicator with a time stamp in the future"] += 1
            continue
        key = (indicator.agent, indicator.name)
        if key in found:
            problems["indicator given twice, the newer one counts"] += 1
        if key not in found or indicator.at_s >= found[key].at_s:
            found[key] = indicator
    return IndicatorReading(
        samples=tuple(found[key] for key in sorted(found)), problems=tuple(sorted(problems.items()))
    )


def _parse_line(line: str, problems: Counter[str]) -> Sample | None:
    """Read one line if it is one of our metrics; each by itself, so that a bad one harms no other."""
    if not line.startswith(tuple(INDICATOR_NAMES)):
        return None
    try:
        samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, KeyError, IndexError):
        samples = []
    if len(samples) != 1:
        problems["indicator line not understood"] += 1
        return None
    return samples[0] if samples[0].name in INDICATOR_NAMES else None


def _indicator(sample: Sample, modified_s: float, problems: Counter[str]) -> IndicatorSample | None:
    agent = sample.labels.get("agent", "")
    if not agent:
        problems["indicator without an agent label"] += 1
        return None
    value = float(sample.value)
    if not math.isfinite(value) or value < 0:
        problems["indicator that is negative or no number"] += 1
        return None
    at_s = modified_s if sample.timestamp is None else float(sample.timestamp)
    return IndicatorSample(agent=AgentName(agent), name=INDICATOR_NAMES[sample.name], value=value, at_s=at_s)


def _read_file(path: Path) -> tuple[str, float]:
    """Text and modification time; never waits on a FIFO or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise OSError(0, "larger than 1 MiB")
    return raw.decode("utf-8", errors="backslashreplace"), status.st_mtime
