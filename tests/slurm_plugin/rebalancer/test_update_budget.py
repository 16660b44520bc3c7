"""What we ask of slurmctld and what it says that it spent, on the recordings of four releases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.client.text_answers import parse_diag
from slurm_plugin.rebalancer.update_budget import UpdateBudget, read_budget, read_load
from tests.slurm_plugin.client.recordings import FIXTURES
from tests.slurm_plugin.rebalancer.world import World, make_job

if TYPE_CHECKING:
    from pathlib import Path

# release: RPCs of root and their total time in microseconds, as recorded
RECORDED = {"22.05.8": (81, 27_807), "24.11.5": (84, 20_097), "26.05.5": (84, 13_875)}


@pytest.mark.parametrize(("release", "want"), RECORDED.items())
def test_a_users_rpcs_are_read_from_sdiag(release: str, want: tuple[int, int]) -> None:
    diag = parse_diag((FIXTURES / f"cli-{release}" / "sdiag.txt").read_text(encoding="utf-8"))
    load = read_load(diag, "root")
    assert (load.n_rpcs, round(load.total_s * 1e6)) == want
    assert load.mean_s == pytest.approx(want[1] / want[0] / 1e6)
    assert load.since_s is not None


def test_a_user_that_sdiag_does_not_list_has_sent_nothing() -> None:
    load = read_load({}, "fairgpu")
    assert (load.n_rpcs, load.total_s, load.mean_s, load.since_s) == (0, 0.0, 0.0, None)


def test_a_cycle_leaves_its_use_in_the_standings(tmp_path: Path) -> None:
    world = World(tmp_path, *(make_job(number) for number in range(3)), rate=10)
    world.cycle()
    budget = read_budget(tmp_path)
    assert budget == UpdateBudget(per_second=10, per_cycle=50, sent=3, deferred=0)
    assert budget is not None
    assert budget.left == 47
    world.cycle()
    assert read_budget(tmp_path) == UpdateBudget(per_second=10, per_cycle=50, sent=0, deferred=0)


@pytest.mark.parametrize("content", ["", "{}", '{"updates": {"sent": 1}}', '{"updates": 7}', json.dumps([1])])
def test_no_or_older_standings_tell_no_budget(tmp_path: Path, content: str) -> None:
    (tmp_path / "standings.json").write_text(content)
    assert read_budget(tmp_path) is None
    assert read_budget(tmp_path / "none") is None
