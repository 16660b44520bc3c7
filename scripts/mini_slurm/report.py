"""What ``status``, ``list``, ``logs`` and a finished ``up`` print."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from mini_slurm import containers, place, processes
from mini_slurm.place import MiniError
from mini_slurm.spec import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def describe(name: str) -> dict[str, object]:
    """Return everything ``status --json`` prints about cluster `name`."""
    root = place.cluster_dir(name)
    pid = place.init_pid(root)
    found: dict[str, object] = {
        "name": name,
        "state": _state(root, pid),
        "directory": str(root),
        "slurm_conf": str(root / "etc/slurm.conf"),
        "site_file": str(root / "etc/fairgpu-site.yaml"),
        "init_pid": pid,
    }
    spec_text = place.read_text(root / "etc/spec.json")
    if spec_text:
        found |= _spec(spec_text)
    if pid is not None:
        found["daemons"] = dict(sorted(Counter(_process_names(root)).items()))
        found["nodes"] = _nodes(root)
        found["jobs"] = _jobs(root)
    return found


def _process_names(root: Path) -> list[str]:
    machines: tuple[str, ...] = (place.FIRST_MACHINE,)
    if place.has_containers(root):
        machines = containers.machines(ClusterSpec.from_json(place.read_text(root / "etc/spec.json")))
    return [process.name for machine in machines for process in processes.members(root, machine)]


def _spec(text: str) -> dict[str, object]:
    try:
        ClusterSpec.from_json(text)
    except MiniError as err:
        return {"note": str(err)}
    return {"spec": json.loads(text)}


def _state(root: Path, pid: int | None) -> str:
    if pid is None:
        return "dead" if root.exists() else "down"
    return "up" if (root / "up").exists() else "starting"


def _nodes(root: Path) -> list[dict[str, str]]:
    columns = ("name", "partitions", "state", "cpus", "mem_mib", "gres")
    answer = processes.run_inside(root, ["sinfo", "--noheader", "--Node", "--format=%N|%P|%T|%c|%m|%G"])
    nodes: dict[str, dict[str, str]] = {}
    for line in answer.stdout.splitlines():
        row = dict(zip(columns, line.strip().replace("(null)", "-").split("|"), strict=False))
        seen = nodes.setdefault(row["name"], row | {"partitions": ""})
        seen["partitions"] = ",".join(filter(None, (seen["partitions"], row.get("partitions", "").rstrip("*"))))
    for row in nodes.values():
        row["partitions"] = ",".join(sorted(row["partitions"].split(",")))
    return list(nodes.values())


def _jobs(root: Path) -> dict[str, int]:
    answer = processes.run_inside(root, ["squeue", "--noheader", "--array", "--format=%T"])
    return dict(sorted(Counter(answer.stdout.split()).items())) if answer.returncode == 0 else {}


def text_of(found: dict[str, object]) -> str:
    """Return `describe`'s answer as a table for people."""
    lines = [f"cluster {found['name']}: {found['state']}"]
    for label, key in (("directory", "directory"), ("slurm.conf", "slurm_conf"), ("site file", "site_file")):
        lines.append(f"  {label:<10} {found[key]}")
    if "note" in found:
        lines.append(f"  {'note':<10} {found['note']}")
    for label in ("daemons", "jobs"):
        counts = found.get(label)
        if isinstance(counts, dict):
            shown = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
            lines.append(f"  {label:<10} {shown}")
    nodes = found.get("nodes")
    if isinstance(nodes, list):
        heading = ("NODE", "PARTITIONS", "STATE", "CPUS", "MEM (MiB)", "GRES")
        lines += ["", *table([heading, *(tuple(node.values()) for node in nodes)])]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return `rows` as lines of left-aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def list_text(names: Sequence[str]) -> str:
    """Return one line per cluster: name, state, size, directory."""
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "GPU NODES", "GPUS", "DIRECTORY")]
    for name in names:
        root = place.cluster_dir(name)
        state = _state(root, place.init_pid(root))
        try:
            spec = ClusterSpec.from_json(place.read_text(root / "etc/spec.json"))
        except MiniError:
            rows.append((name, state, "?", "?", f"{root} (made by another version)"))
            continue
        rows.append((name, state, str(spec.nodes), str(spec.nodes * spec.gpus_per_node), str(root)))
    return "\n".join(table(rows)) + "\n"


def log_text(name: str, daemon: str | None, lines: int) -> str:
    """Return the last `lines` lines of a daemon's log, or the list of logs when `daemon` is None."""
    logs = {path.stem: path for path in sorted((place.cluster_dir(name) / "log").glob("*.log"))}
    if daemon is None:
        return "".join(f"{stem}\n" for stem in logs)
    if daemon not in logs:
        msg = f"no log {daemon!r} in cluster {name!r}; there are: {', '.join(logs) or 'none'}"
        raise MiniError(msg)
    return "".join(f"{line}\n" for line in place.read_text(logs[daemon]).splitlines()[-lines:])
