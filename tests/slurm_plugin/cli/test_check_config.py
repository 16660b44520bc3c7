from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.cli.check_config import check_config_command
from slurm_plugin.site.reference import export_schema, render_reference

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "ecommerce.yaml"


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slurm_plugin.cli.main", *argv]
    code = "from slurm_plugin.cli.main import main; main()"
    return subprocess.run(  # the real command line with its exit codes
        [command[0], "-c", code, *argv], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )


def test_a_right_file_is_summed_up_and_exits_0() -> None:
    done = run("check-config", str(EXAMPLE))
    assert done.returncode == 0
    assert "mode observe, policy wdrf" in done.stdout
    assert "queue_wait=2m p99_latency=200ms error_rate=0.01" in done.stdout
    assert "fairgpu doctor" in done.stderr


def test_a_wrong_file_lists_every_problem_on_stderr_and_exits_2(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("cluster: c\nmode: x\n")
    done = run("check-config", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"fairgpu: {path} has 3 problems"
    assert "  line 2: mode: must be 'observe', 'advise' or 'enforce', got 'x'" in done.stderr.splitlines()


def test_a_wrong_file_as_json_lists_the_same_and_exits_2(tmp_path: Path) -> None:
    done = run("check-config", "--json", str(tmp_path / "none.yaml"))
    answer = json.loads(done.stdout)
    assert done.returncode == 2
    assert answer["ok"] is False
    assert "there is no site file" in answer["problems"][0]


def test_a_right_file_as_json_shows_what_is_in_force() -> None:
    result = CliRunner().invoke(check_config_command, ["--json", "--site", str(EXAMPLE)])
    answer = json.loads(result.stdout)
    assert answer["ok"] is True
    assert answer["settings"]["agents"]["risk"]["base_weight"] == 0.6
    assert answer["settings"]["sla"]["smoothing"] == "1m"


@pytest.mark.parametrize("option", ["--schema", "--reference"])
def test_schema_and_reference_need_no_site_file(option: str) -> None:
    result = CliRunner().invoke(check_config_command, [option])
    assert result.exit_code == 0
    if option == "--schema":
        assert json.loads(result.stdout) == export_schema()
    else:
        assert result.stdout == render_reference()
