"""The demo's judge must be able to say no."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "demo_run"))

from cluster import Sample, _indices
from verdict import differs, expected_drf, expected_fifo, expected_proportional, judge


def _sample(**running: int) -> Sample:
    jobs = {name: tuple(f"{name}{i}" for i in range(n)) for name, n in running.items()}
    return Sample(at_s=0.0, owner_by_gpu={}, running=jobs)


def test_exact_weighted_drf_gives_24_6_2() -> None:
    # level 1.25: risk 0.6 * 1.25 / (1/32) = 24, rec 0.3 * 1.25 / (1/16) = 6, vision 0.1 * 1.25 / (1/16) = 2;
    # 32 GPUs used
    assert expected_drf() == {"rec": 6, "risk": 24, "vision": 2}


def test_empty_gpus_are_shared_out_to_nobody() -> None:
    # 16 GPUs: level 0.625 would be 12, 3, 1
    assert expected_drf(16) == {"rec": 3, "risk": 12, "vision": 1}


def test_fifo_serves_the_flood_alone() -> None:
    # 16 vision jobs of 8 CPUs take all 128 CPUs
    assert expected_fifo() == {"vision": 16, "rec": 0, "risk": 0}


def test_the_three_splits_differ_by_more_than_one_job() -> None:
    assert differs(expected_drf(), expected_fifo())
    assert differs(expected_drf(), expected_proportional())


@pytest.mark.parametrize(
    ("running", "is_fair"),
    [
        ({"rec": 6, "risk": 24, "vision": 2}, True),
        ({"rec": 7, "risk": 23, "vision": 2}, True),
        ({"rec": 8, "risk": 22, "vision": 2}, False),
        ({"vision": 16}, False),
    ],
)
def test_fair_means_within_one_job_of_every_agent(running: dict[str, int], *, is_fair: bool) -> None:
    assert judge([_sample(**running)]).is_fair is is_fair


def test_gpu_indices_are_unfolded() -> None:
    assert _indices("0,2-4,7") == [0, 2, 3, 4, 7]
