"""Two claims at once: which victim was taken for which."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policies.records import JobId
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.reclaims import find_reclaims
from tests.slurm_plugin.rebalancer.band_world import REC, BandWorld
from tests.slurm_plugin.rebalancer.test_bands import gpus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def claims_of(
    path: Path, victims: Mapping[int, str], claims: Mapping[int, tuple[int, str]], *, size: int = 1
) -> dict[str, str | None]:
    """Victim -> claim.

    Parameters
    ----------
    victims
        Job -> node.
    claims
        Job -> (GPUs, node where it starts; empty if it waits); the first one has the highest priority.
    """
    world = BandWorld(path)
    for number, node in victims.items():
        world.slurm.add_job(replace(gpus(number, "rec", size), qos=f"{REC}_borrow"))
        world.slurm.start_job(JobId(str(number)), nodes=node)
    for place, (number, (n_gpus, _)) in enumerate(claims.items()):
        world.slurm.add_job(gpus(number, "risk", n_gpus, priority=9_000 - place))
    before = world.slurm.observe()
    for number in victims:
        world.slurm.requeue_job(JobId(str(number)))
    for number, (_, node) in claims.items():
        if node:
            world.slurm.start_job(JobId(str(number)), nodes=node)
    found = find_reclaims(before, world.slurm.observe(), OwnQos.from_policy(world.site.policy))
    return {str(one.job.job_id): one.claimant_job for one in found}


def test_victims_go_to_the_claim_that_started_on_their_node(tmp_path: Path) -> None:
    found = claims_of(tmp_path, {1: "node01", 2: "node02"}, {50: (1, "node02"), 51: (1, "node01")})
    assert found == {"1": "51", "2": "50"}


def test_two_claims_of_one_gpu_on_one_node_share_the_victims(tmp_path: Path) -> None:
    assert claims_of(tmp_path, {1: "node01", 2: "node01"}, {50: (1, "node01"), 51: (1, "node01")}) == {
        "1": "50",
        "2": "51",
    }


def test_claims_of_three_and_one_are_filled_in_order(tmp_path: Path) -> None:
    victims = dict.fromkeys((1, 2, 3, 4), "node01")
    found = claims_of(tmp_path, victims, {50: (3, "node01"), 51: (1, "node01")})
    assert found == {"1": "50", "2": "50", "3": "50", "4": "51"}


def test_waiting_claims_are_filled_in_order_too(tmp_path: Path) -> None:
    victims = dict.fromkeys((1, 2, 3, 4), "node01")
    assert claims_of(tmp_path, victims, {50: (3, ""), 51: (1, "")}) == {"1": "50", "2": "50", "3": "50", "4": "51"}


def test_a_claim_that_started_and_is_covered_leaves_the_rest_to_one_that_waits(tmp_path: Path) -> None:
    found = claims_of(tmp_path, {1: "node01", 2: "node01"}, {50: (1, "node01"), 51: (1, "")})
    assert found == {"1": "50", "2": "51"}


def test_a_claim_on_two_nodes_does_not_take_the_only_victim_of_another(tmp_path: Path) -> None:
    found = claims_of(tmp_path, {1: "node02", 2: "node01"}, {50: (1, "node[01-02]"), 51: (1, "node02")})
    assert found == {"1": "51", "2": "50"}


def test_more_than_was_asked_for_stays_with_the_claim(tmp_path: Path) -> None:
    assert claims_of(tmp_path, {1: "node01", 2: "node01"}, {50: (1, "node01")}) == {"1": "50", "2": "50"}


def test_one_large_victim_covers_a_claim(tmp_path: Path) -> None:
    found = claims_of(tmp_path, {1: "node01", 2: "node01"}, {50: (2, "node01"), 51: (1, "node01")}, size=2)
    assert found == {"1": "50", "2": "51"}


def test_a_victim_for_whom_nobody_is_seen_has_no_claim(tmp_path: Path) -> None:
    assert claims_of(tmp_path, {1: "node01"}, {}) == {"1": None}
