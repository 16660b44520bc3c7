"""What mini-slurm writes for a cluster in containers, and that the compose file says the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from mini_slurm import slurm_files
from mini_slurm.containers import machines, run_argv
from mini_slurm.machines import addresses
from mini_slurm.place import MACHINE_VARIABLE, REPO, SPEC_VARIABLE, MiniError
from mini_slurm.releases import DEBIAN, RELEASES, parse_version, release_for
from mini_slurm.site_files import hosts_text, mariadb_cnf
from mini_slurm.spec import ClusterSpec

ROOT: Final = Path("/clusters/c")
SPEC: Final = ClusterSpec(name="c", release="24.11", subnet="10.1.2")
HOST_SPEC: Final = ClusterSpec(name="c")


@pytest.fixture(autouse=True)
def no_slurm_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_files, "plugin_dir", lambda: Path("/usr/lib/slurm"))


def slurm_conf(spec: ClusterSpec) -> str:
    return slurm_files.slurm_conf(spec, ROOT, RELEASES[-1])


def test_every_machine_has_an_address_of_its_own_and_services_start_first() -> None:
    found = addresses(SPEC)
    assert machines(SPEC) == ("db", "dbd", "ctl", "node01", "node02", "node03", "node04", "cpu01")
    assert set(machines(SPEC)) == set(found)
    assert len(set(found.values())) == len(found)
    assert found["node01"] == "10.1.2.11"


def test_the_host_is_one_machine() -> None:
    assert addresses(HOST_SPEC) == {"ctl": "10.99.0.1"}
    assert hosts_text(HOST_SPEC) == "127.0.0.1 localhost\n10.99.0.1 ctl\n"


def test_more_nodes_than_a_network_holds_are_refused() -> None:
    addresses(ClusterSpec(name="c", nodes=244, cpu_nodes=0, subnet="10.1.2"))
    with pytest.raises(MiniError, match="at most 244 nodes"):
        addresses(ClusterSpec(name="c", nodes=245, cpu_nodes=0, subnet="10.1.2"))


def test_nodes_in_containers_are_found_by_name_and_have_gpus_of_their_own() -> None:
    assert "NodeName=node[01-02] Sockets=2" in slurm_conf(SPEC)
    assert "NodeName=node[01-02] NodeHostname=ctl NodeAddr=127.0.0.1 Port=[27001-27002]" in slurm_conf(HOST_SPEC)
    assert "File=/dev/fakegpu[0-3]" in slurm_files.gres_conf(SPEC, ROOT)
    assert f"File={ROOT}/dev/gpu[0-3]" in slurm_files.gres_conf(HOST_SPEC, ROOT)


def test_the_daemons_of_containers_reach_each_other_over_the_network() -> None:
    assert "SlurmctldHost=ctl(10.1.2.2)\nAccountingStorageHost=dbd\n" in slurm_conf(SPEC)
    dbd = slurm_files.slurmdbd_conf(SPEC, ROOT, "secret")
    assert {"DbdAddr=10.1.2.3", "StorageHost=db", "StoragePass=secret"} <= set(dbd.splitlines())
    assert "skip-networking" not in mariadb_cnf(SPEC, ROOT)
    assert "skip-networking" in mariadb_cnf(HOST_SPEC, ROOT)


def test_a_container_knows_who_it_is_and_a_spec_survives_the_way_to_it() -> None:
    argv = run_argv(SPEC, ROOT, "image", "dbd")
    assert {f"--env={MACHINE_VARIABLE}=dbd", "--ip=10.1.2.3", "--hostname=dbd", f"--volume={ROOT}:{ROOT}"} <= set(argv)
    assert argv[-1] == "image"
    (text,) = (word.partition(f"{SPEC_VARIABLE}=")[2] for word in argv if SPEC_VARIABLE in word)
    assert ClusterSpec.from_json(text) == SPEC


@pytest.mark.parametrize("release", sorted(DEBIAN))
def test_each_release_in_containers_has_a_row_of_differences(release: str) -> None:
    assert release_for(parse_version(release)).first <= parse_version(release)


def test_the_compose_file_is_the_default_cluster() -> None:
    text = (REPO / "packaging/docker/compose.yaml").read_text()
    compose: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    services = compose["services"]
    spec = ClusterSpec.from_json(services["ctl"]["environment"][SPEC_VARIABLE])
    assert {name: service["networks"]["mini"]["ipv4_address"] for name, service in services.items()} == addresses(spec)
    assert {service["environment"][MACHINE_VARIABLE] for service in services.values()} == set(machines(spec))
    assert all(service["hostname"] == name for name, service in services.items())
    assert {service["image"] for service in services.values()} == {f"fairgpu-mini:{spec.release}"}
    assert DEBIAN[spec.release] in services["ctl"]["build"]["args"]["BASE"]


def test_the_build_takes_the_same_files_from_the_clone_and_from_compose() -> None:
    from mini_slurm import engine  # noqa: PLC0415 - its private list is what is compared

    ignored = (REPO / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert allowed == {*engine._CONTEXT, "build-certificates.crt"}
    assert all((REPO / name).exists() for name in engine._CONTEXT)
