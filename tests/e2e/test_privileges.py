"""Who may do what: the rebalancer is an Operator with no other right, the helper does three things and no fourth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.mini_cluster import Daemon, MiniCluster, start_qos_helper, start_rebalancer

if TYPE_CHECKING:
    from collections.abc import Iterator

# One change, asked with the product's own client by whoever runs it; prints the outcome.
ASK: Final = """
import sys
from pathlib import Path
from slurm_plugin.qos_helper.client import HelperUnavailableError, SocketQosHelper
from slurm_plugin.qos_helper.request import QosChange, Setting
path, name, setting, value = sys.argv[1:]
change = QosChange(names=(name,), setting=Setting(setting), value=value)
try:
    (outcome,) = SocketQosHelper(path=Path(path)).apply([change])
    print(outcome.verdict.value, outcome.text)
except HelperUnavailableError as err:
    print("unavailable:", err)
"""


@pytest.fixture(scope="module")
def helper(cluster: MiniCluster) -> Iterator[Daemon]:
    """QOS helper of a cluster with bands; afterwards slurmdbd is as it was."""
    own = cluster.root / "etc/fairgpu-site.yaml"
    before = own.read_text()
    own.write_text(
        before.replace("scale: 1000000", "scale: 5000").replace("mode: dominant", "mode: blend") + "bands: {}\n"
    )
    cluster.run("root", "fairgpu", "apply", "--yes")
    daemon = start_qos_helper(cluster)
    yield daemon
    daemon.ensure_ended()
    cluster.clear_jobs()
    cluster.run("root", "fairgpu", "apply", "--remove", "--yes")
    own.write_text(before)


def _levels(cluster: MiniCluster) -> dict[str, str]:
    shown = cluster.run("root", "sacctmgr", "-nP", "show", "user", "format=user,adminlevel").stdout
    return dict(line.split("|") for line in shown.splitlines())


def _identity(daemon: Daemon) -> dict[str, str]:
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _uid(cluster: MiniCluster, user: str) -> str:
    return cluster.run("root", "id", "-u", user).stdout.strip()


def _ask(cluster: MiniCluster, user: str, name: str, setting: str, value: str) -> str:
    path = cluster.root / "run/fairgpu-qos/helper.sock"
    python = cluster.run("root", "sh", "-c", "head -1 $(command -v fairgpu)").stdout.strip().removeprefix("#!")
    return cluster.run(user, *python.split(), "-c", ASK, str(path), name, setting, value).stdout


def _qos(cluster: MiniCluster) -> str:
    return cluster.run("root", "sacctmgr", "-P", "show", "qos").stdout


def test_both_run_without_root_and_without_capabilities(cluster: MiniCluster, helper: Daemon) -> None:
    assert {user for user, level in _levels(cluster).items() if level != "None"} == {"root", "fairgpu"}
    assert _levels(cluster)["fairgpu"] == "Operator"
    rebalancer = start_rebalancer(cluster)
    try:
        for daemon, user in ((rebalancer, "fairgpu"), (helper, "slurm")):
            shown = _identity(daemon)
            assert set(shown["Uid"].split()) == {_uid(cluster, user)}
            assert int(shown["CapEff"], 16) == 0
    finally:
        rebalancer.ensure_ended()


def test_an_operator_cannot_change_a_qos_itself_nor_raise_its_level(cluster: MiniCluster, helper: Daemon) -> None:
    assert helper.is_running()
    before = _qos(cluster)
    own = f"fg_{cluster.name}_risk_borrow"
    for change in (["qos", own, "set", "priority=3"], ["user", "fairgpu", "set", "adminlevel=administrator"]):
        done = cluster.run("fairgpu", "sacctmgr", "-i", "modify", *change, check=False)
        assert done.returncode != 0
    assert _qos(cluster) == before
    assert _levels(cluster)["fairgpu"] == "Operator"


def test_the_helper_changes_a_rank_for_the_rebalancers_user(cluster: MiniCluster, helper: Daemon) -> None:
    own = f"fg_{cluster.name}_risk_borrow"
    assert _ask(cluster, "fairgpu", own, "priority", "3").startswith("done")
    shown = cluster.run("root", "sacctmgr", "-nP", "show", "qos", own, "format=priority").stdout
    assert shown.strip() == "3"
    assert own in helper.log()


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("normal", "priority", "3"),
        ("fg_{cluster}_risk", "priority", "3"),
        ("fg_{cluster}_risk_borrow", "priority", "4000"),
        ("fg_{cluster}_risk_borrow", "preempt", "fg_{cluster}_rec"),
        ("fg_{cluster}_risk", "preempt", "normal"),
        ("fg_other_risk_borrow", "priority", "3"),
        ("fg_{cluster}_risk_borrow,normal", "priority", "3"),
    ],
)
@pytest.mark.usefixtures("helper")
def test_the_helper_refuses_anything_else(cluster: MiniCluster, name: str, setting: str, value: str) -> None:
    before = _qos(cluster)
    answer = _ask(cluster, "fairgpu", name.format(cluster=cluster.name), setting, value.format(cluster=cluster.name))
    assert answer.startswith("refused")
    assert _qos(cluster) == before


@pytest.mark.usefixtures("helper")
def test_a_researcher_cannot_reach_the_helper(cluster: MiniCluster) -> None:
    before = _qos(cluster)
    assert "unavailable" in _ask(cluster, "alice", f"fg_{cluster.name}_risk_borrow", "priority", "3")
    assert _qos(cluster) == before
