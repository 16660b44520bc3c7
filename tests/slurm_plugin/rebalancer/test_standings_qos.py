"""The hook hears which agents' guaranteed QOSes slurmctld shows."""

from __future__ import annotations

from slurm_plugin.hook.standings import StandingsBook, parse_standings
from slurm_plugin.rebalancer.standings import standings_bytes
from slurm_plugin.rebalancer.update_budget import UpdateBudget
from tests.policies.quota.band_cases import QUOTAS, SITE, plan_of

BUDGET = UpdateBudget(per_second=1, per_cycle=1, sent=0, deferred=0)


def test_the_standings_name_the_qoses_that_exist() -> None:
    plan = plan_of([], [qos for qos in QUOTAS if "_b" not in qos.name.removesuffix("_borrow")])
    standings = parse_standings(standings_bytes(plan, SITE, interval_s=5.0, budget=BUDGET))
    assert standings.qos == {"a": "fg_c_a"}
    book = StandingsBook()
    book.offer(standings)
    assert book.has_qos("a", "fg_c_a", plan.at_s)
