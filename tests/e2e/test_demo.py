"""The README's first command, as a person runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_demo_is_fair_and_its_control_run_is_not(tmp_path: Path) -> None:
    picture = tmp_path / "timeline.png"
    argv = [str(REPO / "scripts" / "demo"), "--seconds", "80", "--out", str(picture)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert picture.read_bytes().startswith(b"\x89PNG")
