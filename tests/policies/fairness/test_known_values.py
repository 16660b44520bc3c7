"""Golden numbers of the DRF paper and its weighted form (tests/data/known_values.json)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.fairness.progressive_filling import progressive_filling
from policies.fairness.whole_jobs import FillStatus, fill_whole_jobs
from tests.policies.fairness.contrast import asset_fairness, ceei_of_two

KNOWN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "known_values.json").read_text(encoding="utf-8")
)
PAPER = {case["n"]: case for case in KNOWN["nsdi11"]}
WEIGHTED = {case["n"]: case for case in KNOWN["weighted_drf"]}
A, B, CAP = (1, 4), (3, 1), (9, 18)
EQUAL = [Fraction(1), Fraction(1)]
WEIGHTS = [Fraction(6, 10), Fraction(3, 10)]


def divisible(demand: list[tuple[int, ...]], capacity: tuple[int, ...], weights: list[Fraction]) -> Any:
    return progressive_filling(
        np.array(demand, dtype=float), np.array(capacity, dtype=float), np.array([float(w) for w in weights])
    )


def fractions(case: dict[str, Any], names: str = "AB") -> list[float]:
    return [float(Fraction(str(case["tasks"][name]))) for name in names]


def test_paper_example_divisible() -> None:
    case = PAPER["DRF divisible"]
    filling = divisible([A, B], CAP, EQUAL)
    assert filling.tasks == pytest.approx(fractions(case))
    assert filling.weighted_share == pytest.approx([case["dominant"]] * 2)
    # The paper's own example: both dominant shares 2/3; CPU is used up (3 + 6 = 9), memory is not (12 + 2 = 14).
    assert filling.used == pytest.approx([9, 14])
    assert (filling.status, filling.iterations) == (FillStatus.BLOCKED, 1)


def test_paper_example_whole_tasks_b_first_on_ties() -> None:
    case = PAPER["DRF integer, B first on ties"]
    filling = fill_whole_jobs([[B] * 9, [A] * 9], CAP, weights=EQUAL)
    assert ["BA"[agent] for agent, _ in filling.order] == case["order"]
    assert [CAP[r] - filling.residual[r] for r in range(2)] == case["used"]
    assert filling.n_started == (case["tasks"]["B"], case["tasks"]["A"])


def test_weights_two_to_one_divisible() -> None:
    case = WEIGHTED["weights .6/.3 (=2:1), divisible"]
    filling = divisible([A, B], CAP, WEIGHTS)
    assert filling.tasks == pytest.approx(fractions(case))
    assert filling.used == pytest.approx([float(Fraction(str(used))) for used in case["used"]])
    dominant = filling.weighted_share * np.array([0.6, 0.3])
    assert dominant == pytest.approx(case["dominant"])


@pytest.mark.parametrize(
    ("first", "name"), [("A", "same, whole tasks, tie to A"), ("B", "same, whole tasks, tie to B")]
)
def test_exact_tie_is_settled_by_the_tie_rule(first: str, name: str) -> None:
    # Both stand at weighted share exactly 1/3 in units of the weights' ratio when the last task is given.
    case = WEIGHTED[name]
    jobs, weights = [[A] * 9, [B] * 9], WEIGHTS
    if first == "B":
        jobs, weights = jobs[::-1], weights[::-1]
    filling = fill_whole_jobs(jobs, CAP, weights=weights)
    started = dict(zip("AB" if first == "A" else "BA", filling.n_started, strict=True))
    assert started == case["tasks"]
    assert [CAP[r] - filling.residual[r] for r in range(2)] == case["used"]


def test_three_agents_on_gpu_cpu_and_memory() -> None:
    case = WEIGHTED["three agents, GPU/CPU/mem"]
    names = ("risk", "rec", "pre")
    demand = [tuple(case["demand"][name]) for name in names]
    weights = [Fraction(str(case["w"][name])) for name in names]
    filling = divisible(demand, tuple(case["cap"]), weights)
    assert filling.tasks == pytest.approx([float(Fraction(str(case["tasks"][name]))) for name in names])
    assert filling.used == pytest.approx(case["used"])
    whole = fill_whole_jobs([[task] * 40 for task in demand], case["cap"], weights=weights)
    assert dict(zip(names, whole.n_started, strict=True)) == case["whole"]


def test_contrast_asset_fairness_and_ceei() -> None:
    assert asset_fairness(CAP, (A, B)) == tuple(Fraction(str(PAPER["asset fairness"]["tasks"][n])) for n in "AB")
    assert ceei_of_two(CAP, (A, B)) == tuple(Fraction(PAPER["CEEI"]["tasks"][n]) for n in "AB")
    lying = PAPER["CEEI when B claims <3,2>"]["tasks"]
    assert ceei_of_two(CAP, (A, (3, 2))) == tuple(Fraction(str(lying[n])) for n in "AB")


def test_over_asking_pays_under_ceei_and_not_under_drf() -> None:
    assert ceei_of_two(CAP, (A, (3, 2)))[1] > ceei_of_two(CAP, (A, B))[1]
    assert divisible([A, (3, 2)], CAP, EQUAL).tasks[1] <= divisible([A, B], CAP, EQUAL).tasks[1]


def test_asset_fairness_breaks_the_sharing_incentive_and_drf_keeps_it() -> None:
    case = PAPER["asset fairness breaks sharing incentive"]
    demand = (tuple(case["demand"]["A"]), tuple(case["demand"]["B"]))
    assert asset_fairness(tuple(case["cap"]), demand) == (case["tasks"]["A"], case["tasks"]["B"])
    # Half of <30,30> alone would give B 15 tasks.
    assert asset_fairness(tuple(case["cap"]), demand)[1] < 15
    assert divisible(list(demand), tuple(case["cap"]), EQUAL).tasks[1] >= 15 * (1 - 1e-12)
