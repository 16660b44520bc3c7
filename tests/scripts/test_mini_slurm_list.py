"""Clusters that another checkout made: shown, not stumbled over."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "scripts" / "mini-slurm"
SPEC = {"name": "ours", "nodes": 2, "gpus_per_node": 4, "types": ["a100"]}


def mini(base: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FAIRGPU_MINI_DIR": str(base)}
    return subprocess.run([PROGRAM, *argv], capture_output=True, text=True, check=False, env=env)


def put(base: Path, name: str, text: str) -> None:
    (base / name / "etc").mkdir(parents=True)
    (base / name / "etc" / "spec.json").write_text(text)


@pytest.mark.parametrize("text", [json.dumps({**SPEC, "colour": "red"}), "{", "[]", json.dumps({**SPEC, "nodes": "x"})])
def test_a_cluster_of_another_version_is_shown_as_such(tmp_path: Path, text: str) -> None:
    put(tmp_path, "ours", json.dumps(SPEC))
    put(tmp_path, "theirs", text)
    done = mini(tmp_path, "list")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1][:4] == ["ours", "dead", "2", "8"]
    assert rows[2][:4] == ["theirs", "dead", "?", "?"]
    assert "made by another version" in done.stdout
    status = mini(tmp_path, "status", "--name", "theirs")
    assert (status.returncode, status.stderr) == (1, "")
    assert "made by another version" in status.stdout
    assert "another version" not in mini(tmp_path, "status", "--name", "ours").stdout
