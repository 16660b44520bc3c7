"""Rows of ``sinfo -N`` turned into node records, and which node states can take a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.records import NodeName, NodeRecord, PartitionName, Tres
from slurm_plugin import translate
from slurm_plugin.client.table import Column, Table

if TYPE_CHECKING:
    from collections import Counter

NODE_COLUMNS: Final = (
    Column(field="NodeList", header="NODELIST"),
    Column(field="Partition", header="PARTITION"),
    Column(field="StateComplete", header="STATECOMPLETE"),
    Column(field="CPUs", header="CPUS"),
    Column(field="Memory", header="MEMORY"),
    Column(field="Gres", header="GRES"),
    Column(field="Timestamp", header="TIMESTAMP", default=""),
)
"""What we ask ``sinfo`` for: one row per node and partition."""

STATES: Final[dict[str, tuple[bool, str]]] = {
    "idle": (True, "free"),
    "mixed": (True, "partly used"),
    "allocated": (True, "full now, free when the present jobs end"),
    "down": (False, "out of service"),
    "error": (False, "out of service"),
    "unknown": (False, "the controller has not heard of it since its start"),
    "future": (False, "not there yet"),
    "invalid": (False, "Slurm cannot name the state"),
}
"""Base state of a node -> whether a new job may start there, and why."""

FLAGS: Final[dict[str, tuple[bool, str]]] = {
    "blocked": (True, "a job with exclusive topology holds the block; free when it ends"),
    "cloud": (True, "only says where the node comes from"),
    "completing": (True, "the last job's epilog runs"),
    "drain": (False, "an operator wants no new job here"),
    "dynamic_future": (True, "only says where the node comes from"),
    "dynamic_norm": (True, "only says where the node comes from"),
    "external": (True, "only says where the node comes from"),
    "fail": (False, "expected to fail, no new job"),
    "invalid_reg": (False, "registered with fewer resources than configured"),
    "maintenance": (False, "in a maintenance reservation"),
    "maint": (False, "in a maintenance reservation"),
    "not_responding": (False, "slurmd does not answer"),
    "perfctrs": (True, "only performance counters are in use"),
    "planned": (True, "the backfill scheduler keeps it for a job of this queue"),
    "power_down": (False, "will be powered down"),
    "power_drain": (False, "drains, then powers down"),
    "power_up": (True, "boots for a job"),
    "powered_down": (True, "Slurm boots it when a job is given to it"),
    "powering_down": (False, "shuts down, cannot take a job until that is done"),
    "powering_up": (True, "boots for a job"),
    "reboot_issued": (False, "reboots now"),
    "reboot_requested": (True, "takes jobs until the reboot is issued"),
    "reserved": (False, "only jobs of the reservation start here, what they hold is counted by itself"),
    "resume": (True, "comes back into service"),
    "undrain": (True, "comes back into service"),
}
"""Flag beside the base state -> whether a new job may start there in spite of it, and why."""


def is_schedulable(state: str) -> bool:
    """Whether Slurm may start a new job on a node in this state, now or when the present ones end.

    Parameters
    ----------
    state : str
        Base state and flags, lower case, joined by ``+`` (``"allocated+drain"``). A base that we do not
        know is not schedulable; a flag that we do not know changes nothing (the reader reports both).
    """
    base, *flags = state.split("+")
    return STATES.get(base, (False, ""))[0] and all(FLAGS.get(flag, (True, ""))[0] for flag in flags)


def is_out(state: str) -> bool:
    """Whether a node in this state is out of service: down, or drained or failed with its last job gone.

    A node that drains still runs jobs, which count against their quotas. One that is reserved, boots or is powered
    down is not out: it comes back without anybody's doing.
    """
    base, *flags = state.split("+")
    is_busy = base in ("mixed", "allocated")
    return base in ("down", "error") or (not is_busy and not {"drain", "fail"}.isdisjoint(flags))


def read_nodes(table: Table, problems: Counter[str]) -> tuple[NodeRecord, ...]:
    """Node records sorted by name; what could not be understood is added to ``problems``."""
    partitions: dict[str, set[PartitionName]] = {}
    first_rows: dict[str, tuple[str, ...]] = {}
    for row in table.rows:
        name, partition, *_ = row
        partitions.setdefault(name, set()).add(PartitionName(translate.parse_partition(partition)[0]))
        first_rows.setdefault(name, row)
    if table.n_malformed:
        problems["sinfo row with the wrong number of columns"] += table.n_malformed
    nodes: list[NodeRecord] = []
    for name in sorted(first_rows):
        node = _read_node(first_rows[name], tuple(sorted(partitions[name] - {PartitionName("")})), problems)
        if node is not None:
            nodes.append(node)
    return tuple(nodes)


def _read_node(
    row: tuple[str, ...], partitions: tuple[PartitionName, ...], problems: Counter[str]
) -> NodeRecord | None:
    name, _, raw_state, cpus, memory, gres, since = row
    state = raw_state.strip().lower()
    for problem in _unknown_words(state):
        problems[problem] += 1
    try:
        tres = _node_tres(cpus, memory, gres)
    except ValueError:
        problems["sinfo row not understood"] += 1
        return None
    return NodeRecord(
        name=NodeName(name),
        partitions=partitions,
        state=state,
        is_schedulable=is_schedulable(state),
        tres=tres,
        out_since_s=_read_since(since, problems) if is_out(state) else None,
    )


def _read_since(raw: str, problems: Counter[str]) -> int | None:
    """When the reason was set that Slurm or an operator gave, which is when the node went out."""
    try:
        return translate.parse_time_s(raw.strip())
    except ValueError:
        problems["sinfo time not understood"] += 1
        return None


def _unknown_words(state: str) -> list[str]:
    base, *flags = state.split("+")
    unknown = [] if base in STATES else [f"node state {base}"]
    return unknown + [f"node state flag {flag}" for flag in flags if flag not in FLAGS]


def _node_tres(cpus: str, memory: str, gres: str) -> Tres:
    amounts = {"cpu": translate.parse_count(cpus) or 0, "mem": translate.parse_memory_mib(memory) or 0}
    for count in translate.parse_gres(gres):
        for name in filter(None, (count.tres, count.typed_tres)):
            amounts[name] = amounts.get(name, 0) + count.amount
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
