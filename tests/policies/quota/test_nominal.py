from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quota.apportionment import apportion
from policies.quota.nominal import compute_nominals, excess_quotas
from policies.records import AccountName, AgentName, NodeName, NodeRecord, PartitionName, Tres
from policies.site_policy import AgentPolicy, BandPolicy, Quota, QuotaKind, SitePolicy

AUTO = Quota()
BANDS = BandPolicy()
GPU = PartitionName("gpu")
WEIGHTS = st.lists(st.fractions(min_value=0, max_value=20, max_denominator=50), min_size=1, max_size=8)


def _node(number: int, *, partition: PartitionName = GPU, gpus: int = 4) -> NodeRecord:
    tres = (("cpu", 64), ("gres/gpu", gpus), ("gres/gpu:a100", gpus), ("mem", 1000))
    return NodeRecord(
        name=NodeName(f"n{number}"), partitions=(partition,), state="down", is_schedulable=False, tres=tres
    )


def _agent(name: str, weight: str, quota: Quota = AUTO, borrowing_limit: Tres | None = None) -> AgentPolicy:
    return AgentPolicy(
        name=AgentName(name),
        accounts=(AccountName(name),),
        base_weight=Fraction(weight),
        quota=quota,
        borrowing_limit=borrowing_limit,
    )


def _site(*agents: AgentPolicy, bands: BandPolicy | None = BANDS) -> SitePolicy:
    return SitePolicy(cluster="Prod", partitions=(GPU,), agents=agents, bands=bands)


@pytest.mark.parametrize(
    ("amount", "weights", "want"),
    [
        (10, (6, 6, 2), (5, 4, 1)),  # the tenth unit: 6/9 = 6/9 = 2/3, the first in line gets it
        (11, (6, 6, 2), (5, 5, 1)),
        (12, (6, 6, 2), (5, 5, 2)),
        (16, (Fraction(3, 5), Fraction(3, 10), Fraction(1, 10)), (9, 5, 2)),  # floats: 10/5/1
        (3, (1, 1), (2, 1)),  # ties by place
        (1, (1, 1), (1, 0)),  # both halves are rounded up, the later one gives back its only unit
        (5, (0, 1), (0, 5)),
        (5, (0, 0), (0, 0)),
        (10**12, (1, 1, 1), (333_333_333_334, 333_333_333_333, 333_333_333_333)),
    ],
)
def test_webster(amount: int, weights: tuple[Fraction | int, ...], want: tuple[int, ...]) -> None:
    assert apportion(amount, [Fraction(weight) for weight in weights]) == want


@given(st.integers(0, 60), WEIGHTS)
def test_apportionment_is_websters_by_its_definition(amount: int, weights: list[Fraction]) -> None:
    # one unit after the other to the largest weight / (2 * units + 1), earlier place first
    units = [0] * len(weights)
    for _ in range(amount if any(weights) else 0):
        best = max(range(len(weights)), key=lambda place: (weights[place] / (2 * units[place] + 1), -place))
        units[best] += 1
    assert apportion(amount, weights) == tuple(units)


@given(st.integers(0, 500), WEIGHTS)
def test_one_unit_more_takes_from_nobody(amount: int, weights: list[Fraction]) -> None:
    before, after = apportion(amount, weights), apportion(amount + 1, weights)
    assert all(a <= b for a, b in zip(before, after, strict=True))


def test_auto_quotas_split_every_axis_and_caps_are_rounded_down() -> None:
    site = _site(_agent("vision", "0.1"), _agent("risk", "0.6"), _agent("rec", "0.3"))
    nodes = [*(_node(n) for n in range(4)), _node(9, partition=PartitionName("other"))]
    rec, risk, vision = compute_nominals(site, nodes)
    # 16 GPUs: 5/9/2; 256 CPUs: 76.8/153.6/25.6 -> 77/153/26 (0.6/307 is the smallest priority); 4000 MiB: exact
    assert rec.nominal == (("cpu", 77), ("gres/gpu", 5), ("mem", 1200))
    assert risk.nominal == (("cpu", 153), ("gres/gpu", 9), ("mem", 2400))
    assert vision.nominal == (("cpu", 26), ("gres/gpu", 2), ("mem", 400))
    assert risk.borrow_cap == (("cpu", 30), ("gres/gpu", 1), ("mem", 480))
    assert (risk.guaranteed_qos, risk.borrow_qos, risk.opportunistic_qos) == (
        "fg_prod_risk",
        "fg_prod_risk_borrow",
        "fg_prod_risk_opp",
    )


def test_explicit_quotas_come_first_and_none_keeps_its_part_unowed() -> None:
    explicit = Quota(kind=QuotaKind.EXPLICIT, amounts=(("gres/gpu:a100", 8), ("gres/gpu", 8)))
    site = _site(
        _agent("auto", "1"),
        _agent("given", "5", explicit, borrowing_limit=(("gres/gpu", 0),)),
        _agent("none", "3", Quota(kind=QuotaKind.NONE)),
    )
    auto, given_, none = compute_nominals(site, [_node(n) for n in range(4)])
    assert dict(auto.nominal or ())["gres/gpu"] == 2  # a quarter of the 8 that are left
    assert given_.nominal == (("gres/gpu", 8), ("gres/gpu:a100", 8))
    assert given_.borrow_cap == (("gres/gpu", 0),)
    assert none.nominal is None
    assert none.guaranteed_qos is None


def test_explicit_quotas_beyond_the_cluster_leave_nothing_to_split() -> None:
    explicit = Quota(kind=QuotaKind.EXPLICIT, amounts=(("gres/gpu", 80),))
    site = _site(_agent("a", "1"), _agent("b", "1", explicit), bands=BandPolicy(opportunistic=False))
    first, second = compute_nominals(site, [_node(1)])
    assert dict(first.nominal or ())["gres/gpu"] == 0
    assert second.opportunistic_qos is None


def test_no_bands_no_quotas() -> None:
    assert compute_nominals(replace(_site(_agent("a", "1")), bands=None), [_node(1)]) == ()


def test_explicit_quotas_above_the_configured_capacity_are_found() -> None:
    def explicit(**amounts: int) -> Quota:
        return Quota(kind=QuotaKind.EXPLICIT, amounts=tuple((f"gres/{name}", n) for name, n in amounts.items()))

    big = Quota(kind=QuotaKind.EXPLICIT, amounts=(("gres/gpu", 5), ("gres/gpu:h100", 1), ("license/x", 9)))
    site = _site(_agent("b", "1", big), _agent("a", "1", explicit(gpu=4)), _agent("c", "1"))
    total, typed = excess_quotas(site, [_node(1), _node(2)])
    assert (total.tres, total.promised, total.configured, total.agents, total.is_split) == (
        "gres/gpu",
        9,
        8,
        ("a", "b"),
        True,
    )
    assert (typed.tres, typed.promised, typed.configured, typed.is_split) == ("gres/gpu:h100", 1, 0, False)
    assert [one.tres for one in excess_quotas(site, [_node(1), _node(2), _node(3)])] == ["gres/gpu:h100"]
