"""The compiled submit plugin in a real slurmctld: beside Lua, under other releases, with its defaults, examined."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.mini_cluster import REPO, MiniCluster, close_breaker, start_hook_server
from tests.e2e.test_hook import STANDINGS, details

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.mini_cluster import Daemon

FOREIGN: Final = ("sbatch", "--hold", "--output=/dev/null", "--comment=agent=risk", "--wrap=true")
HEADERS: Final = Path("/usr/include/slurm")
_NUMBER: Final = re.compile(r"(#define SLURM_VERSION_NUMBER 0x)([0-9a-f]{6})")


@pytest.fixture
def server(compiled_cluster: MiniCluster) -> Iterator[Daemon]:
    """A server with fresh standings, asked again at once."""
    compiled_cluster.clear_jobs()
    standings = compiled_cluster.root / "run/fairgpu/standings.json"
    standings.write_text(json.dumps(STANDINGS | {"at_s": time.time()}))
    close_breaker(compiled_cluster)
    server = start_hook_server(compiled_cluster)
    yield server
    server.ensure_ended()
    standings.unlink()
    compiled_cluster.clear_jobs()


@pytest.fixture(scope="module")
def restored(compiled_cluster: MiniCluster) -> Iterator[MiniCluster]:
    """The cluster, for tests that change slurm.conf or the plugin; at the end both are as before."""
    conf, plugin = compiled_cluster.root / "etc/slurm.conf", compiled_cluster.root / "lib/job_submit_fairgpu.so"
    conf_before, plugin_before = conf.read_text(), plugin.read_bytes()
    yield compiled_cluster
    conf.write_text(conf_before)
    plugin.unlink()  # slurmctld has it mapped: a new file, not new bytes in the old one
    plugin.write_bytes(plugin_before)
    compiled_cluster.restart("slurmctld")


@pytest.fixture(scope="module")
def beside_lua(restored: MiniCluster, tmp_path_factory: pytest.TempPathFactory) -> MiniCluster:
    """The cluster with ``JobSubmitPlugins=lua,fairgpu`` and a plugin that was built for another micro release."""
    build(restored, headers(tmp_path_factory.mktemp("micro"), change=0x3))
    conf = restored.root / "etc/slurm.conf"
    conf.write_text(conf.read_text().replace("JobSubmitPlugins=fairgpu", "JobSubmitPlugins=lua,fairgpu"))
    restored.restart("slurmctld")
    return restored


def build(cluster: MiniCluster, include: Path) -> subprocess.CompletedProcess[str]:
    """Build the plugin with the headers in ``include`` into the cluster, without asking which Slurm runs."""
    folder, site = f"--into={cluster.root}/lib", f"--site={cluster.root}/etc/fairgpu-site.yaml"
    return cluster.run("root", "fairgpu", "hook", "build", "--offline", folder, site, f"--slurm-include={include}")


def headers(folder: Path, *, change: int) -> Path:
    """Return this host's headers, with a version number that differs in the bits of ``change``."""
    folder.chmod(0o755)
    target = folder / "slurm"
    target.mkdir()
    for header in HEADERS.glob("*.h"):
        (target / header.name).write_text(header.read_text())
    version = target / "slurm_version.h"
    text = _NUMBER.sub(lambda found: f"{found[1]}{int(found[2], 16) ^ change:06x}", version.read_text())
    version.write_text(text)
    return folder


def test_every_kind_of_job_can_be_updated(compiled_cluster: MiniCluster, server: Daemon) -> None:
    # The plugin reads the job through a copy that slurmctld makes: each kind has other parts filled in.
    cluster = compiled_cluster
    own = "--comment=agent=risk"
    jobs = [
        cluster.sbatch("alice", own, "--wrap=sleep 60"),
        cluster.sbatch("alice", own, "--hold", "--array=0-9", "--dependency=singleton"),
        cluster.sbatch("alice", own, "--hold", "--export=NONE", "--begin=now+1hour"),
        cluster.sbatch("alice", own, "--hold", "--gpus-per-task=1", "-n1", ":", own, "--gpus-per-node=1"),
    ]
    waiting = cluster.popen("alice", "srun", own, "--hold", "--job-name=interactive", "true")
    cluster.wait(lambda: cluster.squeue("--name=interactive"), 10, "srun waits")
    jobs.append(cluster.squeue("--name=interactive")[0].job_id)
    for job in jobs:
        for comment, rc in (("agent=vision", 1), ("agent=risk stage=train", 0)):
            done = cluster.run("alice", "scontrol", "update", f"jobid={job}", f"comment={comment}", check=False)
            assert (done.returncode, server.is_running()) == (rc, True), (job, comment, done.stderr)
    cluster.clear_jobs()
    waiting.wait(20)


def test_headers_of_another_release_are_refused_while_slurm_can_be_asked(
    compiled_cluster: MiniCluster, tmp_path: Path
) -> None:
    include = headers(tmp_path, change=0x100)
    argv = ("fairgpu", "hook", "build", f"--into={compiled_cluster.root}/lib2", f"--slurm-include={include}")
    done = compiled_cluster.run("root", *argv, check=False)
    assert done.returncode == 1
    assert "the plugin would disable itself" in done.stderr
    assert not (compiled_cluster.root / "lib2").exists()


def test_the_missing_lines_are_printed_and_nothing_is_changed(compiled_cluster: MiniCluster) -> None:
    before = (compiled_cluster.root / "etc/slurm.conf").read_bytes()
    other = compiled_cluster.root / "lib3"
    done = compiled_cluster.run("root", "fairgpu", "hook", "build", "--json", f"--into={other}")
    (line,) = json.loads(done.stdout)["slurm_conf"]
    assert re.fullmatch(rf"PluginDir=/\S+:{compiled_cluster.root}/lib:{other}", line)
    assert (compiled_cluster.root / "etc/slurm.conf").read_bytes() == before


def test_submissions_go_on_while_the_server_is_frozen_and_the_breaker_makes_them_cheap(
    compiled_cluster: MiniCluster, server: Daemon
) -> None:
    server.freeze()
    try:
        for _ in range(6):
            compiled_cluster.sbatch("alice", "--hold", "--comment=agent=risk")
        compiled_cluster.run("root", "sinfo")
        assert compiled_cluster.log("slurmctld").count("no answer (late)") >= 3
    finally:
        server.thaw()
    close_breaker(compiled_cluster)
    compiled_cluster.wait(
        lambda: compiled_cluster.run("dave", *FOREIGN, check=False).returncode == 1, 10, "the server is asked again"
    )


def test_the_repository_ships_no_built_plugin() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\.so$", tracked, re.MULTILINE)


@pytest.mark.usefixtures("server")
def test_built_for_another_micro_release_it_works(beside_lua: MiniCluster) -> None:
    version = beside_lua.run("root", "scontrol", "--version").stdout.split()[1]
    assert version.encode() not in (beside_lua.root / "lib/job_submit_fairgpu.so").read_bytes()
    assert beside_lua.run("dave", *FOREIGN, check=False).returncode == 1


@pytest.mark.usefixtures("server")
def test_lua_runs_first_and_its_word_stands(beside_lua: MiniCluster) -> None:
    job = beside_lua.sbatch("alice", "--begin=now+1hour", "--comment=agent=risk")
    assert details(beside_lua, job)["AdminComment"] == "seen"  # what Lua wrote, up to the first blank
    refused = beside_lua.run("dave", *FOREIGN, check=False)
    assert "may not use tag agent=risk" in refused.stderr
    by_site = beside_lua.run("dave", *FOREIGN, "--job-name=refused-by-the-site", check=False)
    assert "the site says no" in by_site.stderr
    assert "may not use tag" not in by_site.stderr
    report = json.loads(beside_lua.run("root", "fairgpu", "doctor", "--json", check=False).stdout)
    found = {check["name"]: (check["status"], check["found"]) for check in report["checks"]}
    assert found["job-submit"] == ("ok", "lua,fairgpu")
    assert found["lua-script"][0] == "ok"
    assert found["compiled-hook"][0] == "ok"


@pytest.mark.usefixtures("server")
def test_built_for_another_release_slurmctld_starts_and_jobs_pass(restored: MiniCluster, tmp_path: Path) -> None:
    build(restored, headers(tmp_path, change=0x100))
    restored.restart("slurmctld")
    line = "disabled, jobs pass unchanged: built for Slurm"
    assert restored.log("slurmctld").count(line) == 1
    for _ in range(3):
        restored.run("dave", *FOREIGN)
    assert restored.log("slurmctld").count(line) == 1
    report = json.loads(restored.run("root", "fairgpu", "doctor", "--json", check=False).stdout)
    (check,) = (check for check in report["checks"] if check["name"] == "compiled-hook")
    assert check["status"] == "warn"
    assert "passes all jobs unchanged" in check["why"]
