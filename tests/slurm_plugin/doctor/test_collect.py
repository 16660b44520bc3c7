from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.client.fake import FakeSlurm
from slurm_plugin.client.text_answers import parse_diag
from slurm_plugin.doctor.collect import collect_facts, parse_controller_s
from slurm_plugin.doctor.host import find_filesystem, find_shadowing, is_path_safe, look_at
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.site import SiteFile, parse_site
from tests.slurm_plugin.doctor.conftest import RECORDINGS, SITE

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local\\040disk tmpfs rw 0 0
short
"""


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    paths = f"paths: {{state_dir: {tmp_path}, run_dir: {tmp_path}}}\nhook: {{socket: {tmp_path}/h.sock}}\n"
    return parse_site(SITE.replace("cluster: fg", "cluster: fake") + paths)


def answers(command: Command) -> CommandResult:
    if command.argv[:3] == ("scontrol", "show", "partition"):
        return CommandResult(0, (RECORDINGS / "partitions.txt").read_text(), "")
    if command.argv[:4] == ("sacctmgr", "-nP", "show", "assoc"):
        return CommandResult(0, (RECORDINGS / "associations.txt").read_text(), "")
    return CommandResult(0, "Operator\n", "")


def test_everything_that_slurm_says_is_gathered(site: SiteFile) -> None:
    facts = collect_facts(site, FakeSlurm(release="25.11.7"), answers)
    assert facts.release == (25, 11)
    assert set(facts.partitions or {}) == {"main", "a100"}
    assert facts.accounts == frozenset({"root", "rec", "risk", "vision"})
    assert facts.associated_users == frozenset({"root", "alice", "bob", "carol"})
    assert facts.admin_level == "Operator"
    assert facts.n_jobs == 0
    assert facts.missing == {}


def test_a_slurm_that_is_away_leaves_unknowns_with_the_reason(site: SiteFile) -> None:
    slurm = FakeSlurm()
    slurm.be_unavailable(1)
    facts = collect_facts(site, slurm, answers)
    assert facts.config == {}
    assert facts.partitions is None
    assert facts.missing["config"]


def test_a_slurmdbd_that_is_away_leaves_its_part_unknown(site: SiteFile) -> None:
    def run(command: Command) -> CommandResult:
        if command.argv[0] == "sacctmgr":
            raise SlurmUnavailable("sacctmgr did not end within 20 s")
        return answers(command)

    facts = collect_facts(site, FakeSlurm(), run)
    assert (facts.accounts, facts.admin_level) == (None, None)
    assert facts.missing["admin_level"] == "sacctmgr did not end within 20 s"
    assert facts.partitions is not None


def test_the_rebalancers_last_cycle_is_dated(site: SiteFile) -> None:
    standings = site.paths.run_dir / "standings.json"
    standings.write_text(json.dumps({"at_s": 0}))
    age_s = collect_facts(site, FakeSlurm(), answers).host.standings_age_s
    assert age_s is not None
    assert age_s > 1e9
    standings.write_text("[")
    assert collect_facts(site, FakeSlurm(), answers).host.standings_age_s is None


def test_without_a_state_directory_advice_is_for_our_user_not_for_the_caller(site: SiteFile) -> None:
    gone = site.paths.model_copy(update={"state_dir": site.paths.state_dir / "none"})
    host = collect_facts(dataclasses.replace(site, paths=gone), FakeSlurm(), answers).host
    assert (host.service_user, host.is_switch_visible) == ("fairgpu", False)


def test_the_controllers_clock_is_read_from_sdiag() -> None:
    diag = parse_diag("*****\nsdiag output at Mon Nov 30 13:02:23 2026 (1796043743)\nData since      x (1)\n")
    assert parse_controller_s(diag) == 1_796_043_743.0
    assert parse_controller_s({}) is None


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/var/lib", "ext4"),
        ("/home/x", "nfs4"),
        ("/home/local disk/y", "tmpfs"),
        ("/homework", "ext4"),
        ("/proc/self", "proc"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_mount(path: str, want: str) -> None:
    assert find_filesystem(Path(path), MOUNTS) == want


def test_a_path_is_described_or_missing(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert look_at(tmp_path, MOUNTS).mode & 0o777 == 0o750
    assert look_at(tmp_path / "none", MOUNTS).exists is False


def test_another_distribution_with_our_package_is_named() -> None:
    owners = {"policies": ["slurm-fairgpu", "rival"], "slurm_plugin": ["slurm-fairgpu"], "numpy": ["numpy"]}
    assert find_shadowing(owners) == ("rival (policies)",)


def test_a_search_of_the_working_directory_is_seen() -> None:
    assert is_path_safe(["", "/usr/lib"], is_safe_flag=False) is False
    assert is_path_safe([str(Path.cwd())], is_safe_flag=False) is False
    assert is_path_safe(["/opt/bin", str(Path.cwd())], is_safe_flag=False) is True
    assert is_path_safe([""], is_safe_flag=True) is True
