"""The command as a process: what a reader that leaves and an error of the core look like from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.snapshot import snapshot_bytes
from tests.slurm_plugin.cli.recorded import make_snapshot, record

if TYPE_CHECKING:
    from pathlib import Path

FAIRGPU = f"{sys.executable} -c 'from slurm_plugin.cli.main import main; main()'"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("verb", ["status", "status --json", "explain 4", "shadow"])
def test_a_reader_that_leaves_at_once_is_not_worth_a_word(tmp_path: Path, verb: str) -> None:
    done = shell(f"{FAIRGPU} {verb} --snapshot {record(tmp_path)} | true; exit ${{PIPESTATUS[0]}}")
    # Some write all before the reader has gone: 0; else 1, never the interpreter's 120.
    assert done.returncode in {0, 1}
    assert done.stderr == ""


def test_a_full_device_is_an_error_in_one_line(tmp_path: Path) -> None:
    for verb in (f"status --snapshot {record(tmp_path)}", "status --help"):
        done = shell(f"{FAIRGPU} {verb} > /dev/full")
        assert (done.returncode, done.stderr) == (1, "fairgpu: [Errno 28] No space left on device\n")


def test_closed_streams_hurt_nobody_and_never_mix(tmp_path: Path) -> None:
    path = record(tmp_path)
    done = shell(f"{FAIRGPU} status --snapshot {path} >&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = shell(f"{FAIRGPU} explain 999 --json --snapshot {path} 2>&-")
    assert done.returncode == 1
    json.loads(done.stdout)


def test_a_policy_that_does_not_exist_is_an_error_in_one_line(tmp_path: Path) -> None:
    body = json.loads(snapshot_bytes(make_snapshot(tmp_path)))
    body["snapshot"]["site_policy"]["policy"] = "astrology"
    path = tmp_path / "astrology.json"
    path.write_text(json.dumps(body))
    done = shell(f"{FAIRGPU} explain 4 --snapshot {os.fspath(path)}")
    assert done.returncode == 1
    assert done.stderr.startswith("fairgpu: no scheduling policy is called 'astrology'")
