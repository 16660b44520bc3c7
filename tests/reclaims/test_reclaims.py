"""The comparison of predicted and real victims, without a Slurm: predictions, reasons and random scenes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from policies.records import JobId, JobState
from tests.policies.quota.band_cases import SITE, running, waiting
from tests.reclaims.explain import UNEXPLAINED, Seen, explain
from tests.reclaims.queue import QUOTA, restarted
from tests.reclaims.scenes import DEMAND, make_claims, make_scene
from tests.reclaims.watch import predict
from tests.strategies import make_node, make_observation, make_quota, make_tres

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import JobRecord, Observation

LOANS = ("fg_c_b_borrow", "fg_c_b_opp")
NODE = make_node("n1", tres=make_tres(cpu=64, mem=64_000, gpu=4))
TWO = (NODE, make_node("n2", tres=make_tres(cpu=64, mem=64_000, gpu=4)))


def seen_by(jobs: Sequence[JobRecord], *, rank: int = 9) -> Observation:
    """Two full nodes of 4 GPUs at most; a may take the loans of b."""
    qos = [*make_quota("a", 4, preempt=LOANS), *make_quota("b", 4, rank=rank)]
    nodes = TWO if any(job.nodes == "n2" for job in jobs) else (NODE,)
    return make_observation(jobs, nodes, qos=tuple(sorted(qos, key=lambda record: record.name)))


def reason(before: Observation, claims: tuple[str, ...], real: set[str], after: Observation | None = None) -> str:
    predicted = predict(before, SITE, claims)
    assert predicted is not None
    assert predicted != real
    seen = Seen(before=before, after=after or before, claims=claims, predicted=predicted, real=frozenset(real))
    return explain(seen, SITE)


def loans(*sizes: int, band: str = "_borrow") -> list[JobRecord]:
    return [running(str(number), "b", band, gpus=gpus) for number, gpus in enumerate(sizes, 1)]


def test_claims_in_turn_take_different_jobs() -> None:
    seen = seen_by([*loans(1, 1, 2), waiting("90"), waiting("91", gpus=2)])
    assert predict(seen, SITE, ("90",)) == frozenset("1")
    assert predict(seen, SITE, ("90", "91")) == frozenset("13")
    assert predict(seen, SITE, ("91", "90", "91")) is None


def test_a_claim_uses_what_the_one_before_left() -> None:
    assert predict(seen_by([*loans(4), waiting("90", gpus=3), waiting("91")]), SITE, ("90", "91")) == frozenset("1")


def test_the_other_order_is_recognised() -> None:
    # the claim of 1 GPU first takes 1, then 3 is enough for the other; the other way round 1 and 2, then 3
    before = seen_by([*loans(1, 1, 2), waiting("90"), waiting("91", gpus=2)])
    assert "other order" in reason(before, ("90", "91"), {"1", "2", "3"})


def test_nodes_kept_by_backfill_are_recognised() -> None:
    jobs = [*loans(1, 1, 1, 1), *(running(str(n), "b", "_borrow", nodes="n2") for n in (5, 6, 7, 8))]
    before = seen_by([*jobs, waiting("90"), waiting("91")])
    assert "backfill kept the first claim's nodes" in reason(before, ("90", "91"), {"1", "5"})


def test_changed_ranks_are_recognised() -> None:
    jobs = [running("1", "b", "_borrow", gpus=2), running("2", "b", "_opp", gpus=2), waiting("90")]
    after = seen_by(jobs, rank=0)
    assert "ranks or Preempt lists were changed" in reason(seen_by(jobs), ("90",), {"1"}, after)


def test_what_else_started_or_ended_is_named() -> None:
    before = seen_by([*loans(2, 2), waiting("90")])
    gone = replace(before, jobs=tuple(job for job in before.jobs if job.job_id != "1"))
    assert reason(before, ("90",), set(), gone) == "job 1 ended in between by itself"
    late = replace(before, jobs=(*before.jobs, running("7", "b"), running("8", "b")))
    assert reason(before, ("90",), {"2"}, late).startswith("jobs 7, 8 started in between")
    assert reason(before, ("90",), {"1", "2"}).startswith("jobs 1, 2 had started again")


def test_equal_jobs_are_told_from_wrong_ones() -> None:
    before = seen_by([*loans(1, 1), *(running(str(n), "b", "_opp") for n in (3, 4)), waiting("90")])
    pending = [replace(job, state=JobState.PENDING) if job.job_id in {"1", "4"} else job for job in before.jobs]
    after = replace(before, jobs=tuple(pending))
    assert "equal the predicted ones" in reason(before, ("90",), {"4"}, _without(after, "1", keep=before))
    assert reason(before, ("90",), {"1"}, _without(after, "4", keep=before)) == UNEXPLAINED


def _without(after: Observation, job_id: str, *, keep: Observation) -> Observation:
    """Return ``after`` with one job as it was before."""
    old = {job.job_id: job for job in keep.jobs}
    return replace(after, jobs=tuple(old[JobId(job_id)] if job.job_id == job_id else job for job in after.jobs))


def test_restarts_are_counted_from_the_look_before() -> None:
    assert restarted({"1": 0, "2": 1, "3": 2}, {"1": 1, "2": 1, "4": 0, "5": 1}) == {"1", "5"}


def test_scenes_ask_for_more_than_there_is_and_claims_fit_the_quota() -> None:
    rng = Random(5)  # noqa: S311 - a repeatable mix, no secret
    for number in range(40):
        scene = make_scene(rng, number)
        assert not {agent for agent, _ in scene.jobs} & set(scene.lenders)
        assert len(scene.jobs) >= DEMAND / 4
        for agent in scene.lenders:
            claims = [claim for claim in make_claims(rng, scene.lenders) if claim.agent == agent]
            assert sum(claim.gpus * claim.n_nodes for claim in claims) <= QUOTA[agent]


def test_the_same_seed_plays_the_same_scene() -> None:
    made = [make_scene(Random(3), 1) for _ in range(2)]  # noqa: S311 - a repeatable mix, no secret
    assert made[0] == made[1]
