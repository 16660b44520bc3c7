"""The machines of a cluster and their addresses: one machine in host mode, one container each otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mini_slurm.place import MiniError

if TYPE_CHECKING:
    from mini_slurm.spec import ClusterSpec

CONTROLLER: Final = "ctl"
ACCOUNTING: Final = "dbd"
DATABASE: Final = "db"
SERVICES: Final = (DATABASE, ACCOUNTING, CONTROLLER)
"""In the order in which they start."""

ONLY_ADDRESS: Final = "10.99.0.1"
"""Address of the one machine inside its own network namespace; the same in every cluster of host mode."""
_SERVICE_BYTES: Final = {CONTROLLER: 2, ACCOUNTING: 3, DATABASE: 4}
_FIRST_NODE_BYTE: Final = 11
_LAST_BYTE: Final = 254


def addresses(spec: ClusterSpec) -> dict[str, str]:
    """Return machine name -> IPv4 address; containers keep theirs when they are restarted."""
    if not spec.subnet:
        return {CONTROLLER: ONLY_ADDRESS}
    last = dict(_SERVICE_BYTES) | {name: _FIRST_NODE_BYTE + i for i, name in enumerate(spec.node_names())}
    if max(last.values()) > _LAST_BYTE:
        msg = f"at most {_LAST_BYTE - _FIRST_NODE_BYTE + 1} nodes fit into one container network"
        raise MiniError(msg)
    return {name: f"{spec.subnet}.{byte}" for name, byte in last.items()}


def accounting_host(spec: ClusterSpec) -> str:
    """Return the machine on which slurmdbd runs."""
    return ACCOUNTING if spec.subnet else CONTROLLER


def machine_of(daemon: str, *, in_containers: bool) -> str:
    """Return the machine on which a daemon runs."""
    return ACCOUNTING if in_containers and daemon == "slurmdbd" else CONTROLLER
