from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from slurm_plugin.cli.doctor import doctor_command, print_report
from slurm_plugin.doctor import Status, run_checks
from tests.slurm_plugin.doctor.conftest import RECORDINGS, SITE, changed, good_facts

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

FAKE_COMMAND = """\
#!{python}
import sys
here, name, words = {data!r}, sys.argv[0].rsplit("/", 1)[1], " ".join(sys.argv[1:])
for key, file in {answers!r}.items():
    if (name + " " + words).startswith(key):
        sys.stdout.write(open(here + "/" + file).read())
        sys.exit(0)
sys.exit(name + ": error: Unable to contact slurm controller (connect failure)")
"""
ANSWERS = {
    "scontrol show config": "config-25.11.7.txt",
    "scontrol show partition": "partitions.txt",
    "sacctmgr -nP show assoc": "associations.txt",
}


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Programs that print recordings of a real Slurm, and nothing else."""
    for name in ("scontrol", "sacctmgr", "squeue", "sinfo", "sprio", "sdiag"):
        program = tmp_path / name
        program.write_text(
            FAKE_COMMAND.format(python=sys.executable, data=str(RECORDINGS), answers=ANSWERS), encoding="utf-8"
        )
        program.chmod(0o755)
    return tmp_path


def doctor(bin_dir: Path, *argv: str) -> Result:
    site = bin_dir / "site.yaml"
    paths = f"paths: {{state_dir: {bin_dir}, run_dir: {bin_dir}}}\nhook: {{socket: {bin_dir}/hook.sock}}\n"
    site.write_text(SITE + paths)
    return CliRunner().invoke(doctor_command, ["--site", str(site), "--slurm-bin-dir", str(bin_dir), *argv])


def test_json_has_every_check_and_the_factors_and_exits_1_where_one_fails(bin_dir: Path) -> None:
    result = doctor(bin_dir, "--json")
    answer = json.loads(result.stdout)
    found = {check["name"]: check for check in answer["checks"]}
    assert found["priority-type"]["status"] == "ok"
    assert found["job-submit"]["fix"].endswith("slurm.conf: JobSubmitPlugins=lua")
    assert found["clock"]["status"] == "unknown"
    assert answer["priority_factors"]["qos"] == 100_000
    is_failing = any(check["status"] == "fail" for check in answer["checks"])
    assert result.exit_code == (1 if is_failing else 0)


def test_the_report_shows_each_line_to_add(bin_dir: Path) -> None:
    result = doctor(bin_dir)
    assert "    slurm.conf: JobSubmitPlugins=lua" in result.stdout.splitlines()
    assert "After a change of slurm.conf: scontrol reconfigure" in result.stdout
    assert "site factor (ours)" in result.stdout
    assert result.stderr.strip().endswith("unknown")


def test_a_silent_slurm_is_one_complaint_and_exit_1(bin_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    result = doctor(bin_dir)
    assert result.exit_code == 1
    assert result.stdout.count("Unable to contact slurm controller") == 1


def test_nothing_to_complain_prints_the_tables_only(capsys: pytest.CaptureFixture[str]) -> None:
    facts = good_facts()
    print_report(facts, run_checks(facts))
    printed = capsys.readouterr()
    assert Status.WARN.value not in printed.out
    assert printed.err == f"{len(run_checks(facts))} ok, 0 warn, 0 fail, 0 unknown\n"


def test_text_from_slurm_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    facts = changed(good_facts(), config={"PriorityType": "priority/\x1b[2Jbasic[red]"})
    print_report(facts, run_checks(facts))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "priority/\\x1b[2Jbasic[red]" in out
