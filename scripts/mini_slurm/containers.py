"""A cluster in containers, seen from the host: one for each machine, on a network of their own."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Final

from mini_slurm import place
from mini_slurm.engine import docker
from mini_slurm.machines import SERVICES, addresses
from mini_slurm.place import MiniError

if TYPE_CHECKING:
    from pathlib import Path

    from mini_slurm.spec import ClusterSpec

LABEL: Final = "fairgpu-mini"
_SUBNETS: Final = tuple(f"10.213.{byte}" for byte in range(1, 255))


def container_name(cluster: str, machine: str) -> str:
    """Return what Docker calls a machine of a cluster."""
    return f"fairgpu-mini-{cluster}-{machine}"


def machines(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the machines in the order in which they start."""
    return (*SERVICES, *spec.node_names())


def make_network(cluster: str) -> str:
    """Make the cluster's network and return the first three bytes of its addresses."""
    for subnet in _SUBNETS:
        argv = ("network", "create", f"--label={LABEL}={cluster}", f"--subnet={subnet}.0/24")
        try:
            docker(*argv, f"fairgpu-mini-{cluster}")
        except MiniError as err:
            if "overlap" not in str(err):
                raise
        else:
            return subnet
    msg = f"no free network among {_SUBNETS[0]}.0/24 to {_SUBNETS[-1]}.0/24"
    raise MiniError(msg)


def start(spec: ClusterSpec, root: Path, image: str) -> None:
    """Start one container for each machine; they wait for each other."""
    for machine in machines(spec):
        docker(*run_argv(spec, root, image, machine))


def run_argv(spec: ClusterSpec, root: Path, image: str, machine: str) -> list[str]:
    """Return the docker arguments that start one machine."""
    variables = {place.MACHINE_VARIABLE: machine, place.ROOT_VARIABLE: str(root), place.SPEC_VARIABLE: spec.to_json()}
    return [
        *("run", "--detach", f"--label={LABEL}={spec.name}", f"--name={container_name(spec.name, machine)}"),
        *(f"--hostname={machine}", f"--network=fairgpu-mini-{spec.name}", f"--ip={addresses(spec)[machine]}"),
        *(f"--env={name}={value}" for name, value in variables.items()),
        *(f"--volume={root}:{root}", image),
    ]


def wait_until_up(spec: ClusterSpec, root: Path, timeout_s: float = 120) -> None:
    """Wait until every machine has written down that it runs; raise with the log of one that ended."""
    deadline_s = time.monotonic() + timeout_s
    waiting = list(machines(spec))
    while waiting:
        machine = waiting[0]
        name = container_name(spec.name, machine)
        said = _logs(name)
        if f"mini-slurm: {machine} runs" in said:
            waiting.pop(0)
            place.init_pid(root, machine)
        elif docker("inspect", "--format={{.State.Running}}", name) != "true" or time.monotonic() > deadline_s:
            msg = f"container {name} did not start:\n{said}"
            raise MiniError(msg)
        else:
            time.sleep(0.2)


def _logs(name: str) -> str:
    return subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=False).stderr


def main_pid(cluster: str, machine: str) -> int | None:
    """Return the host pid of a machine's process 1, or None when its container does not run."""
    try:
        return int(docker("inspect", "--format={{.State.Pid}}", container_name(cluster, machine))) or None
    except MiniError:
        return None


def remove(cluster: str) -> None:
    """Remove the cluster's containers and its network."""
    found = docker("ps", "--all", "--quiet", f"--filter=label={LABEL}={cluster}").split()
    if found:
        docker("rm", "--force", "--volumes", *found)
    networks = docker("network", "ls", "--quiet", f"--filter=label={LABEL}={cluster}").split()
    if networks:
        docker("network", "rm", *networks)
