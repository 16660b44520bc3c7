"""What the managed partitions allow: AllowQos, DenyQos and a QOS of their own come before the job's QOS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_plugin.bands.complaint import Complaint
from slurm_plugin.client.qos import parse_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policies.site_policy import SitePolicy
    from slurm_plugin.bands.accounting import Accounting

_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_NOTHING: Final = frozenset({"", "N/A", "(null)", "NONE"})


class PartitionComplaints(NamedTuple):
    """Complaints that forbid the bands, and those that one should know."""

    blockers: tuple[Complaint, ...]
    warnings: tuple[Complaint, ...]


def parse_partitions(text: str) -> dict[str, dict[str, str]]:
    """Return the partitions of ``scontrol show partition -o`` by name, values verbatim."""
    found = (dict(_PAIR.findall(line)) for line in text.splitlines())
    return {partition["PartitionName"]: partition for partition in found if "PartitionName" in partition}


def partition_complaints(
    policy: SitePolicy,
    accounting: Accounting,
    partitions: Mapping[str, Mapping[str, str]],
    ours: frozenset[str],
) -> PartitionComplaints:
    """Return what the managed partitions have against the bands.

    Parameters
    ----------
    partitions : mapping
        ``scontrol show partition`` by name and key; a managed partition that is absent is doctor's business.
    """
    blockers: list[Complaint] = []
    warnings: list[Complaint] = []
    for name in policy.partitions:
        partition = partitions.get(name)
        if partition is not None:
            blockers += _access(name, partition, ours)
            blocking, warning = _own_qos(name, partition, accounting, ours)
            blockers += blocking
            warnings += warning
    return PartitionComplaints(tuple(blockers), tuple(warnings))


def _access(name: str, partition: Mapping[str, str], ours: frozenset[str]) -> Iterator[Complaint]:
    allowed = _names(partition.get("AllowQos", "ALL"))
    missing = sorted(ours - allowed)
    if "all" not in allowed and missing:
        yield Complaint(
            what=f"partition {name}: AllowQos lacks {', '.join(missing)}",
            why="jobs in our QOSes would not start there",
            fix=f"slurm.conf: PartitionName={name} AllowQos={','.join(sorted(allowed | ours))}",
        )
    denied = _names(partition.get("DenyQos", ""))
    if denied & ours:
        kept = ",".join(sorted(denied - ours))
        yield Complaint(
            what=f"partition {name}: DenyQos names {', '.join(sorted(denied & ours))}",
            why="jobs in our QOSes would not start there",
            fix=f"slurm.conf: PartitionName={name} " + (f"DenyQos={kept}" if kept else "without DenyQos"),
        )


def _own_qos(
    name: str, partition: Mapping[str, str], accounting: Accounting, ours: frozenset[str]
) -> tuple[list[Complaint], list[Complaint]]:
    own = partition.get("QoS", "")
    row = None if own in _NOTHING else accounting.find_qos(own)
    if row is None:
        return [], []
    if own in ours:
        text = Complaint(
            what=f"partition {name}: its own QOS is {own}, one of ours",
            why="its limits would count for every job there",
            fix=f"slurm.conf: PartitionName={name} QOS=  # another one",
        )
        return [text], []
    limited = [tres for tres, _ in parse_limits(row.fields.get("grptres", ""))]
    if limited:
        text = Complaint(
            what=f"partition {name}: its QOS {own} limits {', '.join(limited)} of all jobs (GrpTRES)",
            why="a partition QOS goes before the job's QOS: quotas on these would not be enforced",
            fix=f"sacctmgr -i modify qos {own} set grptres={','.join(f'{tres}=-1' for tres in limited)}",
        )
        return [text], []
    others = [word for word, value in row.fields.items() if value and word.startswith(("max", "min", "grp"))]
    if others:
        text = Complaint(
            what=f"partition {name}: its QOS {own} sets {', '.join(others)}",
            why="these go before the same limits of our QOSes",
        )
        return [], [text]
    return [], []


def _names(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip() not in _NOTHING)
