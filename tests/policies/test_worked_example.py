"""The worked example of docs/explanation/fairness.md, repeated by ``explain_job`` digit for digit."""

from __future__ import annotations

from pathlib import Path

from policies.explanation import explain_job
from tests.strategies import NOW, make_job, make_node, make_observation, make_site, make_tres

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "fairness.md"
GB = 1024


def table_of_the_page() -> list[tuple[str, ...]]:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows[2:]]


def table_of_the_core() -> list[tuple[str, ...]]:
    node = make_node(tres=make_tres(cpu=9, mem=18 * GB))
    a, b = make_tres(cpu=1, mem=4 * GB), make_tres(cpu=3, mem=1 * GB)
    jobs = [make_job(str(101 + n), "A", tres=a, submit_s=int(NOW) - 50) for n in range(4)]
    jobs += [make_job(str(201 + n), "B", tres=b, submit_s=int(NOW) - 90) for n in range(3)]
    rows = []
    for job in jobs:
        explanation = explain_job(make_observation(jobs, [node]), make_site({"A": 1, "B": 1}), (), job.job_id, now=NOW)
        place = explanation.place
        assert place is not None
        cpu, mem = place.axes[0], place.axes[1]
        rows.append(
            (
                str(place.position),
                str(job.job_id),
                str(explanation.submission.agent),
                f"{cpu.held + cpu.queued_before}/{cpu.capacity}",
                f"{(mem.held + mem.queued_before) // GB}/{mem.capacity // GB}",
                str(place.dominant_share),
                str(place.tag),
                str(place.site_factor),
            )
        )
    return sorted(rows)


def test_page_and_explanation_agree_digit_for_digit() -> None:
    assert table_of_the_core() == table_of_the_page()
