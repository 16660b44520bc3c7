"""Scenarios from peers' bug reports (tests/data/scenarios.json): classes reclaim, loop, borrow and gang.

Each one has a test here, or a line in ``ELSEWHERE`` or ``JUDGED``. Runs are the core against the model of Slurm.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from policies.quota.nominal import compute_nominals
from policies.site_policy import BandPolicy
from tests.harness.play import Play
from tests.policies.quota.band_cases import QUOTAS, moves, plan_of, running, waiting
from tests.policies.quota.test_victims import ONE, chosen
from tests.strategies import make_node, make_quota, make_site, make_tres

CLASSES: Final = ("reclaim", "loop", "borrow", "gang")
ENTRIES: Final = json.loads((Path(__file__).parents[2] / "data" / "scenarios.json").read_text(encoding="utf-8"))

ELSEWHERE: Final = {
    "Q23": "test_victims.py: one was enough",
    "V04": "test_victims.py: as many as it needs",
    "V05": "test_victims.py: a victim that does not help is spared",
    "V09": "test_victims.py: no more than it needs",
    "Y04": "test_victims.py: no more than it needs",
}
JUDGED: Final = {
    "K04": "we re-place nobody: a victim is requeued. That an agent at or below nominal pays for nobody is shown in "
    "test_steering.py; the ratio of GPUs moved to GPUs asked for bounds our own moves, which come later",
    "K19": "quotas are not scaled down when nodes fail: both agents are below nominal then, nothing is taken back and "
    "the share tags (2 to 1) decide who starts first; nodes that stay away leave the apportionment",
    "O02": "we move no running job; Slurm starts a requeued one where it fits",
    "O07": "later: scaling of services",
    "Q02": "nothing is taken back for fair shares alone: only guaranteed work preempts, opportunistic work waits",
    "Q14": "a job cannot straddle two bands: with 9 of 10 used a job of 2 does not fit the quota and waits or borrows",
}
TESTED: Final = {
    "K01", "K15", "Q03", "Q04", "Q06", "Q07", "Q08", "Q10", "Q17", "Q18", "V01", "V02", "V06", "V08", "V14", "V16",
    "V17", "V18", "V19", "V21", "V26", "V27", "Y01", "Y03", "Y05",
}  # fmt: skip


def test_every_scenario_of_these_classes_is_tested_or_judged() -> None:
    wanted = {entry["id"] for entry in ENTRIES["scenarios"] if entry["cls"] in CLASSES}
    assert wanted == TESTED | set(JUDGED) | set(ELSEWHERE)
    assert len(TESTED) + len(JUDGED) + len(ELSEWHERE) == len(wanted)


def test_k01_reclaim_brings_the_quota_and_no_more() -> None:
    # quotas 1 and 1 of 8: bob takes one GPU back; what lies above both quotas comes when alice's jobs end
    play = Play(quotas={"alice": 1, "bob": 1}, gpus=8).submit("alice", *[1] * 8).run(5)
    play.submit("bob", *[1] * 8).run()
    assert (play.use(), play.taken) == ({"alice": 7, "bob": 1}, {"alice": 1})


def test_k15_left_over_unit_goes_by_webster_and_both_small_jobs_pay() -> None:
    # 8 GPUs by 4 : 2 are 5.33 : 2.67 -> 5 and 3
    play = Play(quotas={"q0": None, "q1": None}, gpus=8, weights={"q0": 4, "q1": 2}).submit("q0", 5, 1, 1).run(5)
    play.submit("q1", 3).run()
    assert (play.use(), play.taken) == ({"q0": 5, "q1": 3}, {"q0": 2})


def test_q03_two_agents_without_any_quota_do_not_take_from_each_other() -> None:
    play = Play(quotas={"a": 0, "b": 0}, gpus=8, weights={"a": 0, "b": 0}).submit("a", *[1] * 8).run(5)
    play.submit("b", *[1] * 4).run()
    assert (play.use(), play.taken) == ({"a": 8, "b": 0}, {})


def test_q04_weight_zero_keeps_its_quota_and_takes_it_back() -> None:
    play = Play(quotas={"a": 1, "b": 1}, gpus=2, weights={"a": 0}).submit("b", 1, 1).run(5)
    assert play.use() == {"a": 0, "b": 2}
    play.submit("a", 1).run()
    assert (play.use(), play.taken) == ({"a": 1, "b": 1}, {"b": 1})


def test_q06_victims_are_lawful_in_the_final_state() -> None:
    # a 3, b 5, c 1 of nominal 3: c's claim of 1 may only come from b
    play = (
        Play(quotas={"a": 3, "b": 3, "c": 3}, gpus=9).submit("a", 1, 1, 1).submit("b", *[1] * 5).submit("c", 1).run(5)
    )
    play.submit("c", 1).run()
    assert (play.use(), play.taken) == ({"a": 3, "b": 4, "c": 2}, {"b": 1})


def test_q07_own_loans_pay_as_well() -> None:
    jobs = [running("1", band="_borrow"), *(running(str(n), "b", "_borrow") for n in (2, 3, 4))]
    assert chosen(waiting("90", gpus=2), jobs, ONE, b=(6, 5), a=3) == ["1", "2"]


def test_q08_a_cheap_type_does_not_cost_the_quota_of_a_dear_one() -> None:
    qos = (*make_quota("a", 0, limits=(("gres/gpu:h100", 5),)), *QUOTAS[3:])
    nodes = [make_node(tres=make_tres(cpu=640, mem=640_000, gpu=65, h100=15, a10=50))]
    held = [running(str(n), tres=make_tres(cpu=1, gpu=1, h100=1)) for n in range(1, 5)]
    cheap = running("5", tres=make_tres(cpu=1, gpu=30, a10=30))
    asks = waiting("10", tres=make_tres(cpu=1, gpu=1, h100=1), requested_types=("gres/gpu:h100",))
    assert moves(plan_of([*held, cheap, asks], qos, nodes=nodes)) == {}
    assert moves(plan_of([*held, running("6", tres=make_tres(gpu=1, h100=1)), asks], qos, nodes=nodes)) == {
        "10": "a_borrow"
    }


def test_q10_two_claims_at_once_never_use_more_than_there_is() -> None:
    play = Play(quotas={"a": 2, "b": 2, "c": 2}, gpus=6).submit("a", 3, 3).run(5)
    play.submit("b", 2).submit("c", 2).run()
    assert (play.use(), play.taken) == ({"a": 0, "b": 2, "c": 2}, {"a": 2})


def test_q17_a_team_takes_half_of_the_pool_back_from_best_effort() -> None:
    play = Play(quotas={"best": 0, "team": 50}, gpus=10, n_nodes=10).submit("best", *[5] * 20).run(5)
    play.submit("team", *[5] * 10).run()
    assert (play.use(), play.taken) == ({"best": 50, "team": 50}, {"best": 10})


def test_q18_borrowing_limit_unset_zero_and_fraction() -> None:
    site = make_site({"a": 1, "b": 1}, bands=BandPolicy())
    caps = {}
    for name, limit in (("unset", None), ("zero", (("gres/gpu", 0),)), ("cpu only", (("cpu", 9),))):
        agents = tuple(replace(agent, borrowing_limit=limit) for agent in site.agents)
        quotas = compute_nominals(replace(site, agents=agents), [make_node()])
        caps[name] = dict(quotas[0].borrow_cap)
    assert caps["unset"]["gres/gpu"] == 0  # floor(0.2 x 4)
    assert caps["unset"]["cpu"] == 6  # floor(0.2 x 32)
    assert caps["zero"] == {"gres/gpu": 0}
    assert "gres/gpu" not in caps["cpu only"]  # not named: unbounded


def test_v01_a_large_job_over_quota_pays_once() -> None:
    play = Play(quotas={"q1": 3, "q2": 5}, gpus=8).submit("q1", 4).submit("q2", 1).run(5)
    play.submit("q2", 4).run(2)
    assert (play.use(), play.taken) == ({"q1": 0, "q2": 5}, {"q1": 1})
    assert play.run().taken == {"q1": 1}


def test_v02_gangs_on_both_sides_settle() -> None:
    play = Play(quotas={"qa": 5, "qb": 5}, gpus=11).submit("qa", *[2] * 5).submit("qb", *[2] * 5).run()
    assert all(4 <= used <= 6 for used in play.use().values())
    assert sum(play.taken.values()) <= 2


def test_v06_what_a_quota_does_not_name_is_no_limit() -> None:
    job = waiting("10", tres=make_tres(cpu=60, mem=60_000, gpu=1))
    assert moves(plan_of([running("1"), job])) == {}


def test_v08_the_last_loan_is_taken_too() -> None:
    play = Play(quotas={"low": 0, "q1": 4}, gpus=4).submit("low", *[1] * 4).run(5).submit("q1", *[1] * 4).run()
    assert play.use() == {"low": 0, "q1": 4}


def test_v14_one_claim_one_victim() -> None:
    play = Play(quotas={"t1": None, "t2": None}, gpus=9).submit("t1", *[1] * 9).run(5).submit("t2", 1).run()
    assert (play.use(), play.taken) == ({"t1": 8, "t2": 1}, {"t1": 1})


def test_v16_whole_jobs_balance() -> None:
    play = Play(quotas={"q1": None, "q2": None}, gpus=19).submit("q1", *[4] * 4).run(5).submit("q2", *[4] * 4).run()
    assert play.use() == {"q1": 8, "q2": 8}


def test_v17_two_gangs_do_not_preempt_each_other() -> None:
    play = Play(quotas={"a": 3, "b": 3}, gpus=6).submit("a", 4).submit("b", 4).run()
    assert (sorted(play.use().values()), play.taken) == ([0, 4], {})


def test_v18_one_victim_is_enough() -> None:
    play = Play(quotas={"t1": None, "t2": None}, gpus=9, weights={"t2": 3}).submit("t1", *[1] * 8).run(5)
    play.submit("t2", 1, 1).run()
    assert (play.use(), play.taken) == ({"t1": 7, "t2": 2}, {"t1": 1})


def test_v19_one_whole_job_and_no_part_of_others() -> None:
    play = Play(quotas={"a": 10, "b": 0}, gpus=100).submit("b", *[10] * 10).run(5).submit("a", 10).run()
    assert (play.use(), play.taken) == ({"a": 10, "b": 90}, {"b": 1})


def test_v21_a_gang_over_quota_is_taken_as_a_whole() -> None:
    play = Play(quotas={"a": 10, "b": 10}, gpus=20).submit("a", 12).submit("b", 8).run(5).submit("b", 2).run()
    assert (play.use(), play.taken) == ({"a": 0, "b": 10}, {"a": 1})


def test_v26_lopsided_weights_are_stable() -> None:
    play = Play(quotas={"default": None, "q1": None}, gpus=4, n_nodes=2, weights={"q1": 100_000})
    play.submit("default", *[1] * 7).run(5).submit("q1", *[1] * 7).run()
    assert play.use() == {"default": 1, "q1": 7}
    assert play.taken == {"default": 6}


def test_v27_the_tutorial_reclaims() -> None:
    play = Play(quotas={"q1": 16, "q2": 24}, gpus=4, n_nodes=10).submit("q1", *[1] * 40).run(5)
    play.submit("q2", *[1] * 24).run()
    assert play.use() == {"q1": 16, "q2": 24}


def test_y01_without_a_quota_nothing_is_taken() -> None:
    play = Play(quotas={"a": 0, "b": 4}, gpus=4).submit("b", *[1] * 4).run(5).submit("a", 1).run()
    assert (play.use(), play.taken) == ({"a": 0, "b": 4}, {})


def test_y03_an_agent_under_its_quota_is_safe() -> None:
    # b owes nothing: 4 of 5 in use, all borrowed by label
    jobs = [running(str(n), "b", "_borrow") for n in range(1, 5)]
    assert chosen(waiting("90"), jobs, ONE, b=(4, 5)) is None


def test_y05_siblings_settle_after_one_reclaim() -> None:
    play = Play(quotas={"a": 5, "b": 5}, gpus=10).submit("a", 3, 3, 3).run(5).submit("b", 3, 3, 3).run()
    assert (play.use(), sum(play.taken.values())) == ({"a": 6, "b": 3}, 1)
