"""Draw the run: GPU rows over time, colour = agent, with the running weighted shares below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

COLOURS: Final = {"risk": "#d1495b", "rec": "#2e6f95", "vision": "#edae49"}
IDLE: Final = "#eeeeee"


def draw_timeline(
    path: Path,
    *,
    times_s: Sequence[float],
    owner_by_gpu: Sequence[Sequence[str]],
    share_by_agent: Mapping[str, Sequence[float]],
    titles: Mapping[str, str],
) -> None:
    """Write a PNG.

    Parameters
    ----------
    times_s : (n,) seconds since the first submission, ascending.
    owner_by_gpu : (n_gpus, n) agent names, empty where idle.
    share_by_agent : (n,) running dominant share (0-1) of each agent.
    titles : legend text of each agent.
    """
    figure, (rows, shares) = plt.subplots(
        2, 1, figsize=(11, 7), sharex=True, height_ratios=(3, 1.4), layout="constrained"
    )
    _draw_rows(rows, times_s, owner_by_gpu)
    for agent, title in titles.items():
        shares.step(times_s, share_by_agent[agent], where="post", color=COLOURS[agent], label=title, linewidth=2)
    rows.set_title("Who holds which GPU (4 nodes of 8), real slurmctld")
    rows.set_ylabel("GPU")
    shares.set_ylabel("dominant share")
    shares.set_xlabel("seconds since the first submission")
    shares.set_ylim(0, 1.3)
    shares.set_yticks((0, 0.25, 0.5, 0.75, 1))
    shares.grid(alpha=0.3)
    shares.legend(loc="upper right", ncols=len(titles), fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_rows(axes: Axes, times_s: Sequence[float], owner_by_gpu: Sequence[Sequence[str]]) -> None:
    for row, owners in enumerate(owner_by_gpu):
        for start, end, owner in merge_runs(times_s, owners):
            axes.broken_barh([(start, end - start)], (row + 0.08, 0.84), facecolors=COLOURS.get(owner, IDLE))
    axes.set_ylim(len(owner_by_gpu), 0)
    axes.set_yticks(range(0, len(owner_by_gpu) + 1, 8))
    axes.set_xlim(times_s[0], times_s[-1])


def merge_runs(times_s: Sequence[float], owners: Sequence[str]) -> list[tuple[float, float, str]]:
    """Merge neighbouring samples of the same owner into (start, end, owner)."""
    merged: list[tuple[float, float, str]] = []
    for start, end, owner in zip(times_s, times_s[1:], owners, strict=False):
        if merged and merged[-1][2] == owner:
            merged[-1] = (merged[-1][0], end, owner)
        else:
            merged.append((start, end, owner))
    return merged
