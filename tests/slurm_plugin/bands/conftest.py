from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from policies.quota.nominal import compute_nominals
from policies.records import NodeName, NodeRecord, Observation, PartitionName
from slurm_plugin.bands.accounting import read_accounting
from slurm_plugin.bands.apply import Hands, apply_changes
from slurm_plugin.bands.desired import Desired, compute_desired
from slurm_plugin.bands.diff import Difference, compute_difference
from slurm_plugin.bands.journal import open_journal
from slurm_plugin.site import parse_site
from tests.slurm_plugin.bands.fake_sacctmgr import FakeSacctmgr, shop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from policies.site_policy import SitePolicy
    from slurm_plugin.client.command import Runner

SITE = """\
cluster: shop
partitions: [gpu]
agents:
  rec: {accounts: [rec], base_weight: 0.3}
  risk: {accounts: [risk], users: [erin], base_weight: 0.6}
bands: {}
"""
NODES = tuple(
    NodeRecord(
        name=NodeName(f"n{number}"),
        partitions=(PartitionName("gpu"),),
        state="idle",
        is_schedulable=True,
        tres=(("cpu", 12), ("gres/gpu", 12), ("mem", 1200)),
    )
    for number in range(2)
)


def policy(text: str = SITE) -> SitePolicy:
    return parse_site(text).policy


def observation(**changes: Any) -> Observation:
    seen = Observation(at_s=1_000.0, cluster="shop", jobs=(), nodes=NODES)
    return dataclasses.replace(seen, **changes)


def desired_of(
    site: SitePolicy,
    fake: Runner,
    groups: dict[str, tuple[str, ...]] | None = None,
    *,
    created: Collection[str] = (),
) -> Desired:
    return compute_desired(
        site, compute_nominals(site, NODES), read_accounting(fake, "shop"), groups or {}, created=created
    )


def difference_of(site: SitePolicy, fake: Runner, state_dir: Path, *, is_steered: bool = False) -> Difference:
    with open_journal(state_dir, cluster="shop") as journal:
        accounting = read_accounting(fake, "shop")
        return compute_difference(
            desired_of(site, fake, created=journal.created), accounting, journal, is_steered=is_steered
        )


def apply_once(site: SitePolicy, fake: Runner, state_dir: Path) -> list[str]:
    """What one ``fairgpu apply`` does; the lines that it says."""
    said: list[str] = []
    with open_journal(state_dir, cluster="shop") as journal:
        accounting = read_accounting(fake, "shop")
        difference = compute_difference(desired_of(site, fake, created=journal.created), accounting, journal)
        hands = Hands(runner=fake, journal=journal, cluster="shop", say=said.append)
        apply_changes(difference.changes, accounting, hands)
    return said


@pytest.fixture
def fake() -> FakeSacctmgr:
    return shop()


@pytest.fixture
def applied(fake: FakeSacctmgr, tmp_path: Path) -> FakeSacctmgr:
    apply_once(policy(), fake, tmp_path)
    return fake


@pytest.fixture
def fields(applied: FakeSacctmgr) -> Callable[[str], dict[str, str]]:
    return lambda name: applied.qos[name]
