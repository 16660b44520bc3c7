"""The README's first command, as a person runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_both_acts_hold_and_their_control_runs_do_not(tmp_path: Path) -> None:
    order, bands, record = tmp_path / "order.png", tmp_path / "bands.png", tmp_path / "run"
    options = ("--out", str(order), "--out-borrowing", str(bands), "--record", str(record))
    done = subprocess.run([str(REPO / "scripts" / "demo"), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]
    assert order.read_bytes().startswith(b"\x89PNG")
    assert bands.read_bytes().startswith(b"\x89PNG")
    replayed = subprocess.run([str(REPO / ".venv/bin/fairgpu"), "demo", str(record)], capture_output=True, check=False)
    assert replayed.returncode == 0, replayed.stdout
