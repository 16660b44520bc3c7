"""The metrics: bounded labels, one definition, a page that follows the code."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from policies.records import JobId
from slurm_plugin.metrics import METRICS, RebalancerMetrics, metrics_page
from slurm_plugin.rebalancer.schema import history_page
from tests.slurm_plugin.rebalancer.world import World, make_job

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_a_cycle_shows_who_holds_what(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1), make_job(2), make_job(3, "rec"))
    world.slurm.start_job(JobId("1"))
    world.cycle()
    get = world.rebalancer.metrics.registry.get_sample_value
    assert get("fairgpu_agent_allocated", {"agent": "risk", "tres": "gres/gpu"}) == 1
    assert get("fairgpu_capacity", {"tres": "gres/gpu"}) == 16
    assert get("fairgpu_agent_weighted_share", {"agent": "risk"}) == pytest.approx(1 / 16 / 0.6)
    assert get("fairgpu_agent_jobs", {"agent": "risk", "state": "startable"}) == 1
    assert get("fairgpu_decisions_total", {"outcome": "written"}) == 2
    assert get("fairgpu_cycles_total", {"outcome": "ok"}) == 1
    assert get("fairgpu_last_cycle_timestamp_seconds") == world.now_s


def test_an_agent_that_left_the_site_file_disappears(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    result = world.cycle()
    metrics = RebalancerMetrics()
    metrics.show_cycle(result.observation, result.plan)
    metrics.show_cycle(result.observation, replace(result.plan, standings=()))
    assert b'agent="risk"' not in generate_latest(metrics.registry)


def test_no_label_names_a_job_or_a_user() -> None:
    assert {label for spec in METRICS for label in spec.labels} <= {
        "agent",
        "band",
        "tres",
        "state",
        "outcome",
        "verb",
        "kind",
        "file",
    }


def test_names_have_one_prefix_and_base_units() -> None:
    for spec in METRICS:
        assert spec.name.startswith("fairgpu_")
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert not spec.name.endswith(("_ms", "_pct", "_mb"))


def test_every_defined_metric_is_exposed() -> None:
    text = generate_latest(RebalancerMetrics().registry).decode()
    for spec in METRICS:
        assert f"# HELP {spec.name}" in text or f"# HELP {spec.name.removesuffix('_total')}" in text


def test_the_endpoint_answers_on_the_loopback() -> None:
    metrics = RebalancerMetrics()
    port = metrics.serve("127.0.0.1:0")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"fairgpu_enabled 1.0" in answer.read()
    metrics.close()


@pytest.mark.parametrize(("name", "page"), [("metrics.md", metrics_page()), ("history.md", history_page())])
def test_the_reference_page_is_the_one_that_the_code_makes(name: str, page: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == page
