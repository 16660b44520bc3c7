"""What is lent is counted once: the lenders' parts sum to what others use above their quotas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.site_policy import BandPolicy
from tests.policies.quota.band_cases import plan_of, running
from tests.strategies import make_node, make_quota, make_site, make_tres

NAMES = "abcd"
SITE = make_site(dict.fromkeys(NAMES, 1), bands=BandPolicy())
NODES = [make_node(tres=make_tres(cpu=999, mem=999_000, gpu=200))]


def lent_and_over(quotas: list[int], used: list[int]) -> tuple[list[int], list[int]]:
    qos = [record for name, gpus in zip(NAMES, quotas, strict=True) for record in make_quota(name, gpus)]
    jobs = [running(str(n), NAMES[n], "_opp", gpus) for n, gpus in enumerate(used) if gpus]
    bands = [standing.bands for standing in plan_of(jobs, qos, site=SITE, nodes=NODES).standings]
    rows = [(dict(own.lent), dict(own.over)) for own in bands if own is not None]
    return [lent.get("gres/gpu", 0) for lent, _ in rows], [over.get("gres/gpu", 0) for _, over in rows]


def test_two_lenders_share_what_a_third_borrows() -> None:
    # the case of a report: idle 8 and 4, 5 used above a quota
    assert lent_and_over([6, 8, 4, 0], [11, 0, 0, 0]) == ([0, 3, 2, 0], [5, 0, 0, 0])


@given(*[st.lists(st.integers(0, 30), min_size=4, max_size=4) for _ in range(2)])
def test_parts_sum_to_what_others_use_and_nobody_lends_more_than_is_idle(quotas: list[int], used: list[int]) -> None:
    lent, over = lent_and_over(quotas, used)
    idle = [max(0, quota - held) for quota, held in zip(quotas, used, strict=True)]
    assert sum(lent) == min(sum(over), sum(idle))
    assert all(part <= own for part, own in zip(lent, idle, strict=True))
