from __future__ import annotations

import pytest

from slurm_plugin.bands.precheck import band_order_fix
from slurm_plugin.bands.priorities import BandOrder, guaranteed_priority
from slurm_plugin.priority_factors import factor_maxima


@pytest.mark.parametrize(
    ("site_maximum", "want"), [(0, 100), (10, 100), (18, 100), (19, 18), (100, 99), (50_000, 49_999)]
)
def test_guaranteed_stays_below_the_sites_maximum_where_that_leaves_room(site_maximum: int, want: int) -> None:
    assert guaranteed_priority(site_maximum) == want


def order(others: int, weight: int = 10_000, highest: int = 100) -> BandOrder:
    return BandOrder(guaranteed=100, borrow=9, highest=highest, weight=weight, others=others)


def test_the_rule_holds_up_to_the_last_point() -> None:
    # 10000 x (100 - 9) / 100 = 9100
    assert order(9_099).holds
    assert not order(9_100).holds


@pytest.mark.parametrize("others", [1, 909, 9_100, 123_457])
def test_the_needed_weight_is_the_smallest_that_works(others: int) -> None:
    needed = order(others).needed_weight
    assert order(others, weight=needed).holds
    assert not order(others, weight=needed - 1).holds


def test_bands_without_a_gap_have_no_weight_that_helps() -> None:
    flat = BandOrder(guaranteed=9, borrow=9, highest=9, weight=10_000, others=1)
    assert not flat.holds
    assert flat.needed_weight == 0


def test_the_fix_offers_a_smaller_scale_only_where_one_fits() -> None:
    assert band_order_fix(order(10_100), 8_000) == (
        "slurm.conf: PriorityWeightQOS=11100, or site file: site_factor: {scale: 6999}"
    )
    assert band_order_fix(order(100_100), 1_000) == "slurm.conf: PriorityWeightQOS=110002"


def test_every_weight_is_a_maximum_and_units_are_cut() -> None:
    config = {"PriorityWeightAge": "1000", "PriorityWeightQOS": "7 ", "PriorityWeightTRES": "CPU=10,GRES/gpu=2000.5"}
    maxima = dict(factor_maxima(config))
    assert (maxima["age"], maxima["qos"], maxima["fair-share"]) == (1000, 7, 0)
    assert (maxima["tres CPU"], maxima["tres GRES/gpu"]) == (10, 2000)
