"""Draw act two: who holds which GPU in which band, and each agent's use against its quota and cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from borrowing_verdict import gpus
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from picture import COLOURS, IDLE, merge_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cluster import Sample
    from matplotlib.axes import Axes

    from policies.quota.nominal import AgentQuota

    Looks = Mapping[str, "Look"]

_BANDS: Final = (("guaranteed", 1.0, ""), ("borrowed", 0.7, "////"), ("opportunistic", 0.35, "...."))
"""Name, strength of the agent's colour, hatch."""
_INK: Final = "#222222"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A stretch of time worth a word, in monotonic seconds."""

    from_s: float
    to_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How the GPUs of a QOS are drawn."""

    colour: tuple[float, float, float]
    hatch: str


def draw_bands(
    path: Path,
    *,
    samples: Sequence[Sample],
    rows: Sequence[tuple[str, int]],
    marks: Sequence[Mark],
    quotas: Mapping[str, AgentQuota],
) -> None:
    """Write a PNG.

    Parameters
    ----------
    samples : ascending in time.
    rows : (node, index) of the GPU of each row.
    marks : in the time of the samples.
    quotas : by agent.
    """
    start_s = samples[0].at_s
    times_s = [sample.at_s - start_s for sample in samples]
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(11, 8), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    looks = _looks(quotas)
    for number, gpu in enumerate(rows):
        held = [sample.qos_by_gpu.get(gpu, "") for sample in samples]
        for from_s, to_s, qos in merge_runs(times_s, held):
            _bar(upper, (from_s, to_s), number, looks.get(qos))
    upper.set_ylim(len(rows), -4.9)
    upper.set_yticks(range(0, len(rows) + 1, 8))
    upper.set_xlim(times_s[0], times_s[-1])
    upper.set_ylabel("GPU")
    upper.set_title("Quotas, borrowing and reclaim (4 nodes of 8 GPUs), real slurmctld")
    _draw_marks(upper, lower, [(mark.from_s - start_s, mark.to_s - start_s, mark.text) for mark in marks])
    _draw_use(lower, times_s, samples, quotas)
    upper.legend(
        handles=_legend(quotas), loc="upper center", bbox_to_anchor=(0.5, -0.015), ncols=6, fontsize=9, frameon=False
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _looks(quotas: Mapping[str, AgentQuota]) -> Looks:
    looks = {}
    for agent, quota in quotas.items():
        names = (quota.guaranteed_qos, quota.borrow_qos, quota.opportunistic_qos)
        for name, (_, strength, hatch) in zip(names, _BANDS, strict=True):
            looks[str(name)] = Look(colour=_paler(COLOURS[agent], strength), hatch=hatch)
    return looks


def _paler(colour: str, strength: float) -> tuple[float, float, float]:
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def _bar(axes: Axes, span_s: tuple[float, float], row: int, look: Look | None) -> None:
    place = [(span_s[0], span_s[1] - span_s[0])], (row + 0.08, 0.84)
    if look is None:
        axes.broken_barh(*place, facecolors=IDLE)
    else:
        axes.broken_barh(*place, facecolors=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0)


def _draw_marks(upper: Axes, lower: Axes, marks: Sequence[tuple[float, float, str]]) -> None:
    for number, (from_s, to_s, text) in enumerate(marks):
        for axes in (upper, lower):
            axes.axvspan(from_s, to_s, facecolor=_INK, alpha=0.06, zorder=0)
            for at_s, style in ((from_s, "-"), (to_s, "--")):
                axes.axvline(at_s, color=_INK, linewidth=1, linestyle=style)
        upper.annotate("", (to_s, -0.6), (from_s, -0.6), arrowprops={"arrowstyle": "->", "color": _INK})
        height = -1.1 - 1.9 * (number % 2)  # neighbours must not write over each other
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        upper.text(from_s, height, text, ha="left", va="bottom", fontsize=9, bbox=box, zorder=5)


def _draw_use(
    axes: Axes, times_s: Sequence[float], samples: Sequence[Sample], quotas: Mapping[str, AgentQuota]
) -> None:
    for agent, quota in quotas.items():
        names = [str(name) for name in (quota.guaranteed_qos, quota.borrow_qos, quota.opportunistic_qos)]
        use = [sum(sample.gpus_by_qos[name] for name in names) for sample in samples]
        nominal, cap = gpus(quota)
        axes.step(times_s, use, where="post", color=COLOURS[agent], linewidth=2)
        axes.axhline(nominal, color=COLOURS[agent], linewidth=1, linestyle="--")
        axes.text(times_s[-1], nominal, f" {agent}: quota {nominal}", va="center", fontsize=8, color=COLOURS[agent])
        if cap and max(use) > nominal:
            axes.axhline(nominal + cap, color=COLOURS[agent], linewidth=1, linestyle=":")
            text = f" + cap {cap}"
            axes.text(times_s[-1], nominal + cap, text, va="center", fontsize=8, color=COLOURS[agent])
    axes.set_ylabel("GPUs in use")
    axes.set_xlabel("seconds")
    axes.set_ylim(0, 34)
    axes.grid(alpha=0.3)


def _legend(quotas: Mapping[str, AgentQuota]) -> list[Patch]:
    agents = [Patch(facecolor=COLOURS[agent], label=agent) for agent in quotas]
    bands = [
        Patch(facecolor=_paler("#555555", strength), hatch=hatch, edgecolor="white", linewidth=0, label=name)
        for name, strength, hatch in _BANDS
    ]
    return agents + bands
