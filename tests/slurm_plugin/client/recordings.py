"""Recorded answers of real clusters, served to the client in the format that it asks for.

The ``cli-*`` recordings were taken with fixed widths and ``|`` (their commands are in ``COMMANDS.tsv``): headers were
cut to the width, times are ISO, uid and wckey were not asked for, and pending tasks of one array are folded. They are
cut at the column positions of the header and printed again with the separators of the call; all their jobs came from
``sbatch``, which was not asked for either. ``native-*`` recordings are the client's own commands, see
``scripts/record-fixtures``; their columns BATCH_FLAG and REQUEUE were added later with the values of an ``sbatch`` job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.client.job_columns import JOB_COLUMNS
from slurm_plugin.client.nodes import NODE_COLUMNS
from slurm_plugin.client.qos import ASSOC_MGR, SHOW_QOS

FIXTURES: Final = Path(__file__).parents[2] / "data" / "fixtures"
RELEASES: Final = ("22.05.8", "24.11.5", "25.11.7", "26.05.5")
NATIVE_RELEASE: Final = "22.05.8"

_CUT_HEADERS: Final = {"HET_JOB_OFFS": "HET_JOB_OFFSET", "RESTART_": "RESTART_COUNT"}
_UIDS: Final = {"alice": "2001", "bob": "2002", "carol": "2003"}
_HEADERS: Final = {column.field: column.header for column in (*JOB_COLUMNS, *NODE_COLUMNS)}
_TEXTS: Final = {
    ("scontrol", "show", "config"): "scontrol-config.txt",
    ("scontrol", "--version"): "version.txt",
    ("sdiag",): "sdiag.txt",
    ASSOC_MGR: "scontrol-assoc_mgr.txt",
}
_FIELD: Final = re.compile(r"([\w-]+):([^,]+)")
_UPDATE: Final = re.compile(r"update jobid=(\S+) (?:SiteFactor=-?\d+|QOS=(\S+)(?: Requeue=1)?|StartTime=now)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCluster:
    """Runner that answers from one release's recording; updates of jobs that are not in it are refused."""

    release: str

    def __call__(self, command: Command) -> CommandResult:
        program = command.argv[0]
        if command.argv == ("scontrol",):
            return _update(command.stdin, self._pending())
        if program == "squeue":
            answer = _print_long(self._table("squeue-O.txt"), command.argv[-1])
        elif program == "sinfo":
            answer = _print_long(self._table("sinfo-N-O.txt"), command.argv[-1])
        elif program == "sprio":
            answer = _print_sprio(self._text("sprio-l.txt"), command.argv[-1])
        elif command.argv == SHOW_QOS:
            rows = (line.split("|") for line in self._text("sacctmgr-qos-fmt.txt").splitlines())
            answer = "".join(f"{row[0]}|{row[2]}|{row[3]}\n" for row in rows)
        else:
            answer = self._text(_TEXTS[command.argv])
        return CommandResult(0, answer, "")

    def _text(self, name: str) -> str:
        return (FIXTURES / f"cli-{self.release}" / name).read_text(encoding="utf-8")

    def _table(self, name: str) -> list[dict[str, str]]:
        return _cut_table(self._text(name))

    def _pending(self) -> dict[str, bool]:
        table = self._table("squeue-O.txt")
        states = {row["JOBID"].partition("_")[0]: row["STATE"] == "PENDING" for row in table}
        return states | {row["HET_JOB_ID"]: row["STATE"] == "PENDING" for row in table if row["HET_JOB_ID"] != "N/A"}


def native(name: str) -> str:
    """One answer of the native recording."""
    return (FIXTURES / f"native-{NATIVE_RELEASE}" / name).read_text(encoding="utf-8")


def _cut_table(text: str) -> list[dict[str, str]]:
    lines = text.splitlines()
    bounds = [0, *(match.end() for match in re.finditer(r"\|", lines[0]))]
    if bounds[-1] < len(lines[0]):
        bounds.append(len(lines[0]) + 1)
    rows = [[line[a : b - 1].strip() for a, b in pairwise(bounds)] for line in lines]
    headers = [_CUT_HEADERS.get(header, header) for header in rows[0]]
    table: list[dict[str, str]] = []
    for row in rows[1:]:
        cells: dict[str, str] = {}
        for header, cell in zip(headers, row, strict=True):
            cells["JOBID_SHOWN" if header == "JOBID" and header in cells else header] = cell
        cells |= {"UID": _UIDS.get(cells.get("USER", ""), "0"), "WCKEY": "(null)", "BATCH_FLAG": "1"}
        table.append(cells)
    return table


def _print_long(table: list[dict[str, str]], option: str) -> str:
    fields = _FIELD.findall(option)
    lines = ["".join(_HEADERS[name] + suffix for name, suffix in fields)]
    lines.extend("".join(row[_HEADERS[name]] + suffix for name, suffix in fields) for row in table)
    return "\n".join(lines) + "\n"


def _print_sprio(text: str, option: str) -> str:
    match = re.fullmatch(r"%i(_[\w-]+c)%S(_[\w-]+r)", option)
    assert match is not None
    header, *rows = (line.split() for line in text.splitlines())
    site = header.index("SITE")
    lines = [("JOBID", "SITE"), *((row[0], row[site]) for row in rows)]
    return "".join(f"{job_id}{match[1]}{value}{match[2]}\n" for job_id, value in lines)


def _update(script: str, pending: dict[str, bool]) -> CommandResult:
    """Answer in the words and the order of a real ``scontrol`` with readline; ``pending`` by known job number."""
    lines: list[str] = []
    for line in script.splitlines():
        lines.append(f"scontrol: {line}")
        match = _UPDATE.fullmatch(line)
        assert match is not None, line
        number = re.split(r"[_+]", match[1])[0]
        if number not in pending:
            lines.append(f"Invalid job id specified for job {match[1]}")
        elif match[2] == "nope":
            lines.append(f"Invalid qos specification for job {match[1]}")
        elif match[2] and not pending[number]:
            lines.append(f"Job is no longer pending execution for job {match[1]}")
    return CommandResult(1, "\n".join([*lines, "scontrol: ", ""]), "")
