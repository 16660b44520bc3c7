"""``fairgpu shadow``: any Slurm, any user, no site file."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.rebalancer.shadow import compute_shadow
from tests.slurm_plugin.cli.recorded import busy_slurm, record, run
from tests.slurm_plugin.rebalancer.world import make_slurm

if TYPE_CHECKING:
    from pathlib import Path


def test_the_fair_order_stands_beside_slurms(tmp_path: Path) -> None:
    done = run("shadow", "--snapshot", record(tmp_path))
    rows = [line.split() for line in done.stdout.splitlines()]
    # risk holds 2 of 16 GPUs at weight 1/3: tag 3/8, so its job comes last though its priority is highest.
    assert ["1", "7", "nobody", "0.0000", "4", "risk", "2000"] in rows
    assert ["3", "4", "risk", "0.3750", "3", "rec", "1000"] in rows


def test_what_idles_while_others_wait_is_counted_per_tres(tmp_path: Path) -> None:
    done = run("shadow", "--snapshot", record(tmp_path))
    assert ["gres/gpu", "16", "2", "14", "3", "3"] in [line.split() for line in done.stdout.splitlines()]


def test_weights_are_exact_and_the_rest_get_the_smallest(tmp_path: Path) -> None:
    done = run("shadow", "--json", "--weights", "risk=.6,rec=1/5", "--snapshot", record(tmp_path))
    weights = {one["agent"]: one["weight"] for one in json.loads(done.stdout)["accounts"]}
    assert weights == {"risk": "3/5", "rec": "1/5", "nobody": "1/5"}


@pytest.mark.parametrize("text", ["risk", "risk=", "=1", "risk=-1", "risk=1e999999", "risk=1/0", "risk=x"])
def test_a_weight_that_is_none_is_a_usage_error(tmp_path: Path, text: str) -> None:
    done = run("shadow", "--weights", text, "--snapshot", record(tmp_path))
    assert done.exit_code == 2
    assert "is not ACCOUNT=WEIGHT" in done.stderr


def test_live_it_needs_no_site_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.cli.shadow.make_client", lambda _: busy_slurm())
    body = json.loads(run("shadow", "--json", "-n", "1").stdout)
    assert [one["job_id"] for one in body["fair_order"]] == ["7"]
    assert [one["job_id"] for one in body["slurm_order"]] == ["4"]


def test_what_was_not_understood_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace(busy_slurm().observe(), problems=(("job state FOO", 2),))
    slurm = busy_slurm()
    monkeypatch.setattr(slurm, "observe", lambda: seen)
    monkeypatch.setattr("slurm_plugin.cli.shadow.make_client", lambda _: slurm)
    assert "not understood, 2 time(s): job state FOO" in run("shadow").stderr


def test_an_empty_cluster_has_an_empty_order() -> None:
    shadow = compute_shadow(make_slurm().observe(), {})
    assert (shadow.fair_order, shadow.accounts) == ((), ())
    assert shadow.idle[0].idle == 128


def test_a_named_account_without_jobs_is_shown() -> None:
    shadow = compute_shadow(make_slurm().observe(), {"risk": Fraction(1)})
    assert [one.agent for one in shadow.accounts] == ["risk"]
