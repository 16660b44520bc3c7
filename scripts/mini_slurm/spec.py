"""What a cluster looks like: how many nodes of which kind."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from mini_slurm.place import MiniError

DEFAULT_TYPES: Final = ("a100", "h100")
HOOKS: Final = ("lua", "compiled", "both")
_FIRST_PORT: Final = 27001


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike and stand in one ``NodeName`` line; `gpu_type` is None for CPU-only nodes."""

    names: tuple[str, ...]
    gpu_type: str | None
    first_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The shape of a cluster; memory in MiB per node; `hook` is one of `HOOKS` or empty.

    A cluster in containers has `release`, a key of `releases.DEBIAN`, and `subnet`, three bytes of an IPv4 address.
    """

    name: str
    nodes: int = 4
    gpus_per_node: int = 4
    types: tuple[str, ...] = DEFAULT_TYPES
    cpus_per_node: int = 32
    mem_per_node_mib: int = 262144
    cpu_nodes: int = 1
    hook: str = ""
    hook_deadline_ms: int = 20
    release: str = ""
    subnet: str = ""

    def __post_init__(self) -> None:
        problems = self._problems()
        if problems:
            raise MiniError("; ".join(problems))

    def _problems(self) -> list[str]:
        counts = {
            "--nodes": (self.nodes, 1),
            "--gpus-per-node": (self.gpus_per_node, 1),
            "--cpus-per-node": (self.cpus_per_node, 1),
            "--mem-per-node": (self.mem_per_node_mib, 1024),
            "--cpu-nodes": (self.cpu_nodes, 0),
            "--hook-deadline-ms": (self.hook_deadline_ms, 1),
        }
        problems = [f"{flag} must be at least {low}" for flag, (value, low) in counts.items() if value < low]
        if not self.types or not all(t.isalnum() and t == t.lower() for t in self.types):
            problems.append("--types takes lower-case names such as a100,h100")
        if len(self.types) > self.nodes > 0:
            problems.append("--types has more types than there are nodes")
        return problems

    @property
    def is_compiled(self) -> bool:
        """Whether slurmctld loads the compiled hook."""
        return self.hook in {"compiled", "both"}

    def groups(self) -> tuple[NodeGroup, ...]:
        """Return the node groups: GPU types in contiguous, nearly equal blocks, then the CPU-only nodes."""
        width = max(2, len(str(max(self.nodes, self.cpu_nodes))))
        kinds = len(self.types)
        cuts = [self.nodes * i // kinds for i in range(kinds + 1)]
        found = []
        for gpu, start, end in zip(self.types, cuts[:-1], cuts[1:], strict=True):
            names = tuple(f"node{n + 1:0{width}}" for n in range(start, end))
            found.append(NodeGroup(names=names, gpu_type=gpu, first_port=_FIRST_PORT + start))
        cpu = tuple(f"cpu{n + 1:0{width}}" for n in range(self.cpu_nodes))
        if cpu:
            found.append(NodeGroup(names=cpu, gpu_type=None, first_port=_FIRST_PORT + self.nodes))
        return tuple(found)

    def node_names(self) -> tuple[str, ...]:
        """Return every node name, GPU nodes first."""
        return tuple(name for group in self.groups() for name in group.names)

    def to_json(self) -> str:
        """Return the spec as JSON, for the cluster's directory."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ClusterSpec:
        """Return the spec that `to_json` wrote; what is missing has its default. Refuse one of another version."""
        try:
            fields = json.loads(text)
            return cls(**(fields | {"types": tuple(fields.get("types", DEFAULT_TYPES))}))
        except (AttributeError, TypeError, ValueError) as err:
            msg = f"made by another version of mini-slurm ({err})"
            raise MiniError(msg) from err


def fold(names: tuple[str, ...]) -> str:
    """Return contiguous node names in Slurm's notation: ``node[01-04]``."""
    if len(names) == 1:
        return names[0]
    stem = names[0].rstrip("0123456789")
    return f"{stem}[{names[0][len(stem) :]}-{names[-1][len(stem) :]}]"
