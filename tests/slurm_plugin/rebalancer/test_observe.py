"""Observe joins Slurm's answer, the indicator file and the users' groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_plugin.rebalancer.observe import GROUPS_MAX_AGE_S, GroupCache, observe
from tests.slurm_plugin.rebalancer.world import START_S, make_job, make_site, make_slurm

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from slurm_plugin.site import SiteFile


class _NameService:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, users: Iterable[str]) -> dict[str, tuple[str, ...]]:
        self.asked.extend(users)
        return {user: ("staff",) for user in users if user != "ghost"}


def _site_with_groups(tmp_path: Path) -> SiteFile:
    site = make_site(tmp_path)
    agents = tuple(replace(agent, groups=("staff",)) for agent in site.policy.agents)
    return replace(site, policy=replace(site.policy, agents=agents))


def test_indicators_come_with_their_problems(tmp_path: Path) -> None:
    path = tmp_path / "indicators.prom"
    path.write_text('fairgpu_agent_error_rate{agent="risk"} 0.5 1700000000000\nfairgpu_agent_error_rate oops\n')
    site = replace(make_site(tmp_path), sla_indicators=path)
    seen = observe(make_slurm(), site, GroupCache())
    assert [(sample.agent, sample.value) for sample in seen.indicators] == [("risk", 0.5)]
    assert seen.problems == (("indicator line not understood", 1),)


def test_groups_are_asked_only_where_an_agent_lists_one(tmp_path: Path) -> None:
    service = _NameService()
    slurm = make_slurm(make_job(1), make_job(2, "ghost", user="ghost"))
    assert observe(slurm, make_site(tmp_path), GroupCache(look_up=service)).groups_by_user == ()
    seen = observe(slurm, _site_with_groups(tmp_path), GroupCache(look_up=service))
    assert seen.groups_by_user == (("risk-user", ("staff",)),)


def test_groups_are_believed_for_a_while() -> None:
    service = _NameService()
    cache = GroupCache(look_up=service)
    for age_s in (0.0, 5.0, GROUPS_MAX_AGE_S + 1):
        assert cache.groups_of(["alice", "ghost"], now_s=START_S + age_s) == (("alice", ("staff",)),)
    assert service.asked == ["alice", "ghost"] * 2
