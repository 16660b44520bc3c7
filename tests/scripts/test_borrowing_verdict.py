"""Act two's judge must be able to say no, and its expectations come from the core."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "demo_run"))

from borrowing_verdict import (
    all_completed,
    expected_flood,
    is_within_limits,
    predict,
    read_accounting,
    read_bound,
    restarts_agree,
)
from borrowing_workload import FLOOD, WEIGHTS
from cluster import Sample
from workload import CAPACITY, TRES

from policies.quota.nominal import AgentQuota, compute_nominals
from policies.site_policy import BandPolicy
from tests.policies.quota.band_cases import running, waiting
from tests.strategies import make_node, make_observation, make_quota, make_site

CONFIG = """\
KillWait                = 2 sec
MessageTimeout          = 10 sec
SchedulerParameters     = sched_interval=2,batch_sched_delay=1,bf_interval=3,bf_continue
"""
NODES = [make_node(f"node0{n}") for n in (1, 2, 3, 4)]
SITE = make_site({agent: Fraction(str(weight)) for agent, weight in WEIGHTS.items()}, bands=BandPolicy())
QUOTAS: dict[str, AgentQuota] = {str(quota.agent): quota for quota in compute_nominals(SITE, NODES)}
LOANS = ("fg_c_risk_borrow", "fg_c_risk_opp")
SEEN = make_observation(
    [
        *(running(str(n), "risk", nodes=f"node0{1 + n // 8}") for n in range(19)),
        *(running(str(n), "risk", "_borrow", nodes="node03") for n in (19, 20, 21)),
        *(running(str(n), "risk", "_opp", nodes=f"node0{1 + n // 8}") for n in range(22, 32)),
    ],
    nodes=NODES,
    qos=tuple(
        sorted(
            (
                *make_quota("risk", 19, borrow=3),
                *make_quota("rec", 8, preempt=LOANS),
                *make_quota("vision", 5, preempt=LOANS),
            ),
            key=lambda record: record.name,
        )
    ),
)
"""The flood as Slurm packs it: quota on node01 to node03, the cap on node03, the rest on node03 and node04."""


def _sample(**gpus_by_qos: int) -> Sample:
    held = [name for name, n_gpus in gpus_by_qos.items() for _ in range(n_gpus)]
    return Sample(at_s=0.0, owner_by_gpu={}, running={}, qos_by_gpu={("n", i): name for i, name in enumerate(held)})


def test_the_bound_is_the_sum_of_slurms_settings() -> None:
    bound = read_bound(CONFIG, grace_s=3)
    assert bound.victims_gone_s == 3 + 2 + 2 * (2 + 3)
    assert bound.promised_s == bound.victims_gone_s + 10
    assert "GraceTime 3 + KillWait 2 + 2 passes of 5 = 15 s; + MessageTimeout 10 = 25 s" in bound.describe()


def test_a_setting_that_slurm_does_not_show_is_an_error() -> None:
    with pytest.raises(ValueError, match="bf_interval"):
        read_bound(CONFIG.replace("bf_interval=3,", ""), grace_s=3)


def test_the_flood_fills_the_cluster_with_quota_cap_and_the_rest() -> None:
    # Webster on 32 GPUs with .25, .6, .15: 8, 19, 5; the cap is floor(19 / 5) = 3
    want = {"fg_c_risk": 19, "fg_c_risk_borrow": 3, "fg_c_risk_opp": 10}
    assert expected_flood(QUOTAS["risk"]) == want
    assert sum(n_jobs for n_jobs, _ in FLOOD) > sum(want.values()) == CAPACITY[TRES.index("gres/gpu")]


@pytest.mark.parametrize(
    ("in_use", "is_lawful"),
    [
        ({"fg_c_risk": 19, "fg_c_risk_borrow": 3, "fg_c_risk_opp": 10}, True),
        ({"fg_c_risk": 20}, False),
        ({"fg_c_risk_borrow": 4}, False),
        ({"fg_c_vision": 6}, False),
        ({"fg_c_risk_opp": 32}, True),
    ],
)
def test_no_band_exceeds_its_limit(in_use: dict[str, int], *, is_lawful: bool) -> None:
    assert is_within_limits([_sample(), _sample(**in_use)], QUOTAS.values()) is is_lawful


def test_a_claim_for_a_node_takes_only_what_runs_there() -> None:
    # 22 and 23 are older and as cheap, but they are on node03 and give rec no node of 8
    claims = [waiting("40", "rec", gpus=8), waiting("41", "vision", gpus=5)]
    taken = predict(SEEN, SITE, claims)
    assert taken["fg_c_rec"] == {str(n): "fg_c_risk_opp" for n in range(24, 32)}
    assert taken["fg_c_vision"] == dict.fromkeys(("19", "20", "21"), "fg_c_risk_borrow") | dict.fromkeys(
        ("22", "23"), "fg_c_risk_opp"
    )


def test_without_preempt_lists_nothing_is_taken() -> None:
    seen = make_observation(SEEN.jobs, nodes=NODES, qos=(*make_quota("rec", 8), *make_quota("risk", 19, borrow=3)))
    assert predict(seen, SITE, [waiting("40", "rec", gpus=8)]) == {"fg_c_rec": {}}


def test_every_job_must_be_known_and_completed_at_last() -> None:
    states = read_accounting("1|PREEMPTED\n1|COMPLETED\n2|COMPLETED\n3|CANCELLED by 0\n")
    assert states == {"1": ("PREEMPTED", "COMPLETED"), "2": ("COMPLETED",), "3": ("CANCELLED",)}
    assert all_completed(states, ["1", "2"])
    assert not all_completed(states, ["1", "2", "3"])
    assert not all_completed(states, ["1", "4"])


@pytest.mark.parametrize(
    ("states", "agrees"),
    [
        ({"1": ("PREEMPTED", "COMPLETED"), "2": ("COMPLETED",)}, True),
        ({"1": ("COMPLETED",), "2": ("COMPLETED",)}, False),
        ({"1": ("PREEMPTED", "PREEMPTED", "COMPLETED")}, False),
        ({"1": ("NODE_FAIL", "COMPLETED")}, False),
    ],
)
def test_sacct_must_show_each_restart(states: dict[str, tuple[str, ...]], *, agrees: bool) -> None:
    assert restarts_agree(states, {"1": 1}) is agrees
