"""``python -m tests.reclaims``: predicted against real victims on a mini-Slurm, as root.

Exit codes: 0 at least 95 % agree and each other one is explained, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

from tests.e2e.mini_cluster import MiniCluster, start_qos_helper, start_rebalancer
from tests.reclaims.play import Play
from tests.reclaims.queue import submit, write_site
from tests.reclaims.scenes import make_claims, make_scene
from tests.reclaims.watch import Watcher

if TYPE_CHECKING:
    from tests.reclaims.scenes import Scene

CLAIMS_PER_SCENE: Final = 8
WANTED_FRAC: Final = 0.95


def main() -> int:
    """Play, print a line per reclaim and the verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.reclaims", description=__doc__)
    parser.add_argument("--n", type=int, default=60, help="reclaims to count (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--json", action="store_true", help="the result on stdout as JSON, the lines on stderr")
    options = parser.parse_args()
    cluster = MiniCluster.up(f"reclaims{os.getpid()}", "--hook")
    try:
        write_site(cluster)
        play = Play(Watcher.of(cluster), tell=_err if options.json else _out)
        began_s = time.monotonic()
        play_scenes(play, n_wanted=options.n, rng=Random(options.seed))  # noqa: S311 - a repeatable mix, no secret
        return _verdict(play, options, took_s=time.monotonic() - began_s)
    finally:
        if not options.keep:
            cluster.down()


def play_scenes(play: Play, *, n_wanted: int, rng: Random) -> None:
    """Play scene after scene, with helper and rebalancer, until enough reclaims are counted."""
    cluster = play.watcher.cluster
    daemons = [start_qos_helper(cluster), start_rebalancer(cluster)]
    try:
        number = 0
        while play.n_reclaims < n_wanted:
            play_scene(play, make_scene(rng, number), n_wanted=n_wanted, rng=rng)
            number += 1
    finally:
        for daemon in reversed(daemons):
            daemon.ensure_ended()


def play_scene(play: Play, scene: Scene, *, n_wanted: int, rng: Random) -> None:
    """Fill the cluster with a scene's jobs and make claims; the queue is empty afterwards."""
    for agent, options in scene.jobs:
        submit(play.watcher.cluster, agent, 1, *options, seconds=3600)
    play.watcher.look_when_settled()
    for _ in range(CLAIMS_PER_SCENE):
        if play.n_reclaims < n_wanted:
            play.reclaim(make_claims(rng, scene.lenders))
    play.watcher.cluster.clear_jobs()


def _verdict(play: Play, options: argparse.Namespace, *, took_s: float) -> int:
    n, same = play.n_reclaims, play.n_same
    summary = f"{same} of {n} reclaims as predicted ({same / n:.1%}), {play.n_unexplained} unexplained, {took_s:.0f} s"
    if options.json:
        reasons = Counter(one.reason for one in play.done if one.reason)
        found = {
            "seed": options.seed,
            "reclaims": n,
            "victims": sum(len(one.real) for one in play.done),
            "same": same,
            "reasons": dict(sorted(reasons.items())),
            "took_s": round(took_s),
        }
        _out(json.dumps(found, indent=2))
    else:
        _out(summary)
    return int(same < WANTED_FRAC * n or play.n_unexplained > 0)


def _out(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _err(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
