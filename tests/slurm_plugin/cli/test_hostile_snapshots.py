"""A snapshot from a stranger: whatever one value in it is, a verb answers or names what is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import PolicyError
from slurm_plugin.errors import FairGpuError
from slurm_plugin.snapshot import snapshot_bytes
from tests.slurm_plugin.cli.recorded import make_snapshot, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Where = tuple[str | int, ...]

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 7, 2**31, 2**62, 2**63, -(10**25), 0.0, -1.5, 5e-324, 1e308),
    *("", "-", "0/1", "-1/2", "1/" + "9" * 900, "9" * 900 + "/1", "12_x", "\x1b[31m", "\ud800", "x" * 10_000),
    *([], {}, [[]], ["x", "x"]),
)


def _places(value: Any, where: Where = ()) -> Iterator[Where]:
    if where:
        yield where
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*where, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:4]):
            yield from _places(item, (*where, number))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[Where]]:
    folder = tmp_path_factory.mktemp("hostile")
    raw = snapshot_bytes(make_snapshot(folder))
    return folder / "hostile.json", raw, list(_places(json.loads(raw)["snapshot"]))


@pytest.mark.parametrize("job_id", ["9" * 30, "1/" + "9" * 900, "4_" + "9" * 25])
def test_a_job_id_beyond_any_of_slurms_is_named(recorded: tuple[Path, bytes, list[Where]], job_id: str) -> None:
    path, raw, _ = recorded
    body = json.loads(raw)
    body["snapshot"]["observation"]["jobs"][0]["job_id"] = job_id
    path.write_text(json.dumps(body))
    assert "job_id holds a number" in str(run("status", "--snapshot", path).exception)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_value_in_a_snapshot_makes_a_verb_stumble(
    recorded: tuple[Path, bytes, list[Where]], data: st.DataObject
) -> None:
    path, raw, places = recorded
    body = json.loads(raw)
    *parents, last = data.draw(st.sampled_from(places))
    target: Any = body["snapshot"]
    for key in parents:
        target = target[key]
    target[last] = data.draw(st.sampled_from(VALUES))
    path.write_text(json.dumps(body))
    for argv in (["status"], ["status", "--json"], ["explain", "4"], ["shadow"], ["replay"]):
        given_file = [path] if argv == ["replay"] else ["--snapshot", path]
        failure = run(*argv, *given_file).exception
        assert failure is None or isinstance(failure, SystemExit | FairGpuError | PolicyError), argv
