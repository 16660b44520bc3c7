"""Who loses a running job to a claim: Slurm's choice predicted, and the lawful one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from policies.census import compute_state
from policies.quota.free_room import FreeRoom
from policies.quota.victims import Account, choose_victims, list_loans, predict_victims
from policies.records import AgentName, JobRecord
from tests.policies.quota.band_cases import SITE, running, waiting
from tests.strategies import make_node, make_observation, make_quota, make_tres

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.quota.victims import Loan

ALL = ("fg_c_a_borrow", "fg_c_a_opp", "fg_c_b_borrow", "fg_c_b_opp")


def _node(name: str, gpus: int = 4) -> Any:
    return make_node(name, tres=make_tres(cpu=64, mem=64_000, gpu=gpus))


def loans_of(jobs: Sequence[JobRecord], nodes: Any, **ranks: int) -> tuple[tuple[Loan, ...], FreeRoom]:
    qos = [*make_quota("a", 4, rank=ranks.get("a", 9)), *make_quota("b", 4, rank=ranks.get("b", 9))]
    state = compute_state(make_observation(jobs, nodes, qos=tuple(qos)), SITE)
    assert state.bands is not None
    room = FreeRoom(state.bands.nodes, [job for _, job in state.bands.running])
    return list_loans(state, state.bands, ALL), room


def predicted(claim: JobRecord, jobs: Sequence[JobRecord], nodes: Any, **ranks: int) -> list[str] | None:
    loans, room = loans_of(jobs, nodes, **ranks)
    found = predict_victims(claim, loans, room)
    return None if found is None else sorted(str(loan.job.job_id) for loan in found)


def chosen(claim: JobRecord, jobs: Sequence[JobRecord], nodes: Any, *, b: tuple[int, int], **ranks: int) -> Any:
    """Lawful victims of a claim by a; ``b`` is (used, nominal) GPUs of agent b."""
    loans, room = loans_of(jobs, nodes, **ranks)
    accounts = {
        AgentName("a"): Account(used=(("gres/gpu", 9),), nominal=(("gres/gpu", 4),)),
        AgentName("b"): Account(used=(("gres/gpu", b[0]),), nominal=(("gres/gpu", b[1]),)),
    }
    found = choose_victims(claim, loans, room, accounts=accounts, agent=AgentName("a"))
    return None if found is None else sorted(str(loan.job.job_id) for loan in found)


ONE = [_node("n1")]
CASES: dict[str, tuple[JobRecord, list[JobRecord], Any, dict[str, int], list[str] | None]] = {
    # name: claim, running, nodes, ranks, victims
    "fits without": (waiting("90", gpus=2), [running("1", band="_opp", gpus=2)], ONE, {}, []),
    "not even with all of them": (waiting("90", gpus=4), [running("1"), running("2", band="_opp")], ONE, {}, None),
    "opportunistic before borrowed": (
        waiting("90"),
        [running("1", band="_borrow", gpus=2), running("2", band="_opp", gpus=2)],
        ONE,
        {},
        ["2"],
    ),
    "lowest rank first": (
        waiting("90"),
        [running("1", band="_borrow", gpus=2), running("2", "b", "_borrow", gpus=2)],
        ONE,
        {"a": 5, "b": 3},
        ["2"],
    ),
    "oldest of equals": (
        waiting("90"),
        [running("10", band="_borrow", gpus=2), running("9", band="_borrow", gpus=2)],
        ONE,
        {},
        ["9"],
    ),
    "fewer nodes before older (facts/bands.md 10)": (
        waiting("90"),
        [
            running("1", "b", "_borrow", gpus=6, n_nodes=2, nodes="n[1-2]"),
            running("2", band="_borrow", nodes="n1"),
            running("3", nodes="n2"),
        ],
        [_node("n1"), _node("n2")],
        {},
        ["2"],
    ),
    "as many as it needs (V04, V08)": (
        waiting("90", gpus=4),
        [running(str(n), "b", "_borrow") for n in range(1, 5)],
        ONE,
        {},
        ["1", "2", "3", "4"],
    ),
    "no more than it needs (V09, V18, Y04)": (
        waiting("90", gpus=2),
        [running(str(n), "b", "_borrow") for n in range(1, 5)],
        ONE,
        {},
        ["1", "2"],
    ),
    "one was enough (Q23)": (
        waiting("90", gpus=2),
        [running("1", band="_borrow", gpus=2), running("2", "b", "_borrow", gpus=2)],
        ONE,
        {"a": 3},
        ["1"],
    ),
    "second round spares those elsewhere": (
        waiting("90", gpus=4),
        [
            running("1", "b", "_borrow", nodes="n1"),
            running("2", "b", nodes="n1", gpus=3),
            running("3", "b", "_borrow", nodes="n2", gpus=4),
        ],
        [_node("n1"), _node("n2")],
        {},
        ["3"],
    ),
    "later rounds put those on the claim's nodes before those elsewhere": (
        # taken 1 to 4: node 1; so 4, 2, 3 go before 1, which is on node 2
        waiting("90", gpus=3),
        [
            running("1", "b", "_opp", nodes="n2"),
            *(running(str(n), "b", "_borrow", nodes="n1") for n in (2, 3, 4)),
            running("5", "b", nodes="n1"),
            running("6", "b", nodes="n2", gpus=3),
        ],
        [_node("n1"), _node("n2")],
        {},
        ["2", "3", "4"],
    ),
    "own and others' loans on one node (facts/bands.md 2)": (
        waiting("90", gpus=2),
        [
            running("1", "b", nodes="n1", gpus=2),
            running("2", band="_borrow", nodes="n1"),
            running("3", "b", "_borrow", nodes="n1"),
        ],
        ONE,
        {},
        ["2", "3"],
    ),
    "a whole job on several nodes": (
        waiting("90", gpus=4),
        [running("1", "b", "_borrow", gpus=8, n_nodes=2, nodes="n[1-2]")],
        [_node("n1"), _node("n2")],
        {},
        ["1"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_slurms_choice(name: str) -> None:
    claim, jobs, nodes, ranks, want = CASES[name]
    assert predicted(claim, jobs, nodes, **ranks) == want


def test_nobody_at_or_below_nominal_pays() -> None:
    # b may lose 1 GPU (5 of 4), no more: the claim of 2 takes one of b's and one of a's own
    jobs = [
        running("1", "b", "_borrow"),
        running("2", "b", "_borrow"),
        running("3", band="_borrow"),
        running("4", band="_borrow"),
    ]
    assert predicted(waiting("90", gpus=2), jobs, ONE, b=2) == ["1", "2"]
    assert chosen(waiting("90", gpus=2), jobs, ONE, b=(5, 4)) == ["1", "3"]
    assert chosen(waiting("90", gpus=2), jobs, ONE, b=(4, 4)) == ["3", "4"]
    assert chosen(waiting("90", gpus=3), jobs, ONE, b=(4, 4)) is None
    assert chosen(waiting("90", gpus=0), jobs, ONE, b=(4, 4)) == []


def test_a_victim_that_does_not_help_is_spared() -> None:
    # V05: GPUs are scarce and job 1 only holds CPUs, on the claimant's node, and comes first in Slurm's order
    jobs = [running("1", "b", "_opp", gpus=0), running("2", "b", "_borrow", gpus=4)]
    assert chosen(waiting("90", gpus=4), jobs, ONE, b=(9, 4)) == ["2"]
    # Slurm's third round takes 3 and 2 and then nothing more; with a fourth loan it meets job 1 before it is done
    three = [running("1", "b", "_opp", gpus=0), *(running(str(n), "b", "_borrow", gpus=2) for n in (2, 3))]
    assert predicted(waiting("90", gpus=4), three, ONE) == ["2", "3"]
    four = [running("1", "b", "_opp", gpus=0), *(running(str(n), "b", "_borrow", gpus=n // 2) for n in (2, 3, 4))]
    assert predicted(waiting("90", gpus=4), four, ONE) == ["1", "2", "3", "4"]
    assert chosen(waiting("90", gpus=4), four, ONE, b=(9, 4)) == ["2", "3", "4"]


def test_prediction_does_not_change_what_is_free() -> None:
    loans, room = loans_of([running("1", band="_opp", gpus=4)], ONE)
    assert predict_victims(waiting("90"), loans, room)
    assert room.idle_gpus() == 0
    assert room.where(waiting("90")) is None
