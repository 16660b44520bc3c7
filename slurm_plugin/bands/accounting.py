"""What slurmdbd holds: QOSes and associations, as Slurm's own commands print them on every release.

Columns are found by header name; releases add and move them. ``sacctmgr show assoc`` gives what counts for an
association, its account's values included. What is written on the association itself, with the signs of
additions (``+debug,-normal``), only ``sacctmgr dump`` tells; it needs root or SlurmUser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_plugin import translate
from slurm_plugin.client.command import Command, Runner, check
from slurm_plugin.client.qos import parse_limits
from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.records import Tres

TIMEOUT_S: Final = 60.0

QOS_KEYWORDS: Final[Mapping[str, str]] = {
    "Priority": "priority",
    "GraceTime": "gracetime",
    "Preempt": "preempt",
    "PreemptExemptTime": "preemptexempttime",
    "PreemptMode": "preemptmode",
    "Flags": "flags",
    "UsageThres": "usagethreshold",
    "UsageFactor": "usagefactor",
    "LimitFactor": "limitfactor",
    "GrpTRES": "grptres",
    "GrpTRESMins": "grptresmins",
    "GrpTRESRunMins": "grptresrunmins",
    "GrpJobs": "grpjobs",
    "GrpSubmit": "grpsubmitjobs",
    "GrpWall": "grpwall",
    "MaxTRES": "maxtresperjob",
    "MaxTRESPerNode": "maxtrespernode",
    "MaxTRESMins": "maxtresminsperjob",
    "MaxWall": "maxwalldurationperjob",
    "MaxTRESPU": "maxtresperuser",
    "MaxTRESRunMinsPU": "maxtresrunminsperuser",
    "MaxJobsPU": "maxjobsperuser",
    "MaxSubmitPU": "maxsubmitjobsperuser",
    "MaxTRESPA": "maxtresperaccount",
    "MaxTRESRunMinsPA": "maxtresrunminsperaccount",
    "MaxJobsPA": "maxjobsperaccount",
    "MaxSubmitPA": "maxsubmitjobsperaccount",
    "MinTRES": "mintresperjob",
}
"""Header of ``sacctmgr -P show qos`` -> keyword of ``sacctmgr modify qos set``."""

TRES_KEYWORDS: Final = frozenset(keyword for keyword in QOS_KEYWORDS.values() if "tres" in keyword)
_NO_DUMP: Final = ("is not in the accounting system", "sufficient privileges")
_NEEDED: Final = ("Name", "Priority", "GraceTime", "Preempt", "PreemptMode", "GrpTRES", "MaxTRES")
_ASSOC_COLUMNS: Final = ("Account", "User", "Partition", "QOS", "Def QOS")
_ASSOC_FORMAT: Final = "format=id,account,user,partition,qos,defaultqos"
_OPTION: Final = re.compile(r":(\w+)=(?:'([^']*)'|([^:']*))")
_DUMP_LINE: Final = re.compile(r"(Cluster|Parent|Account|User) - '([^']*)'(.*)")


class AssocKey(NamedTuple):
    """Which association of the cluster; ``user`` is empty for an account's own."""

    account: str
    user: str = ""
    partition: str = ""

    def __str__(self) -> str:
        parts = [f"account={self.account}"]
        parts += [f"user={self.user}"] if self.user else []
        parts += [f"partition={self.partition}"] if self.partition else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRow:
    """One QOS; ``fields`` maps sacctmgr's keyword to its value in :func:`canonical` spelling, empty for unset."""

    name: str
    fields: Mapping[str, str]

    @property
    def priority(self) -> int:
        """Priority, 0 if unset."""
        return int(self.fields["priority"] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssocRow:
    """One association of the cluster.

    Attributes
    ----------
    qos, default : tuple of str, str
        What counts, inherited values included; ``default`` is empty if there is none.
    own_qos, own_default : tuple of str, str
        What is written on the association itself: a plain list replaces the account's, ``+a`` and ``-a`` change it,
        nothing inherits it.
    parent : str
        Account above an account's own association.
    assoc_id : str
        slurmdbd's number of the association.
    """

    key: AssocKey
    qos: tuple[str, ...]
    default: str = ""
    own_qos: tuple[str, ...] = ()
    own_default: str = ""
    parent: str = ""
    assoc_id: str = ""

    @property
    def is_inheriting(self) -> bool:
        """Whether the account's QOSes count here too."""
        return not self.own_qos or self.own_qos[0][0] in "+-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """QOSes of the database and associations of one cluster, sorted."""

    cluster: str
    qos: tuple[QosRow, ...]
    associations: tuple[AssocRow, ...]

    def find_qos(self, name: str) -> QosRow | None:
        """Return the QOS of that name."""
        return next((row for row in self.qos if row.name == name), None)


def canonical(keyword: str, text: str) -> str:
    """Return a value in one spelling, so that equal limits are equal texts.

    Amounts are sorted with memory in MiB, times are seconds, lists are sorted.

    Examples
    --------
    >>> canonical("grptres", "mem=2G,cpu=4"), canonical("gracetime", "00:01:30"), canonical("flags", "B,A")
    ('cpu=4,mem=2048', '90', 'A,B')
    """
    if keyword in TRES_KEYWORDS:
        return ",".join(f"{name}={amount}" for name, amount in parse_limits(text))
    if keyword in {"flags", "preempt"}:
        return ",".join(sorted(filter(None, text.split(","))))
    if keyword == "gracetime":
        return str(translate.parse_duration_s(text) or 0)
    return text.lower() if keyword == "preemptmode" else text


def tres_text(amounts: Tres) -> str:
    """Return limits in :func:`canonical` spelling."""
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts))


def read_accounting(runner: Runner, cluster: str) -> Accounting:
    """Return QOSes and associations.

    Raises
    ------
    SlurmUnavailable, SlurmAuthError, SlurmError, SlurmParseError
        slurmdbd is away, this user may not dump it, or an answer lacks a column.
    """
    dumped = parse_dump(_dump(runner, cluster))
    rows = read_associations(runner, cluster)
    return Accounting(
        cluster=cluster,
        qos=read_qos(runner),
        associations=tuple(_joined(row, dumped.get(row.key)) for row in rows),
    )


def read_qos(runner: Runner) -> tuple[QosRow, ...]:
    """Return every QOS of the database by name; any user may ask."""
    return parse_qos(_ask(runner, "sacctmgr", "-P", "show", "qos"))


def read_associations(runner: Runner, cluster: str) -> tuple[AssocRow, ...]:
    """Return what counts for each association of the cluster, without what is written on it itself."""
    return parse_associations(_ask(runner, "sacctmgr", "-P", "show", "assoc", f"cluster={cluster}", _ASSOC_FORMAT))


def parse_qos(text: str) -> tuple[QosRow, ...]:
    """Return the rows of ``sacctmgr -P show qos``."""
    rows = []
    for row in _table(text, _NEEDED):
        try:
            fields = {word: canonical(word, row[head]) for head, word in QOS_KEYWORDS.items() if head in row}
        except ValueError as err:
            raise SlurmParseError(f"QOS {row['Name']}: {err}", field="qos", raw=str(row)) from err
        rows.append(QosRow(name=row["Name"], fields=fields))
    return tuple(sorted(rows, key=lambda row: row.name))


def parse_associations(text: str) -> tuple[AssocRow, ...]:
    """Return the rows of ``sacctmgr -P show assoc``."""
    rows = [
        AssocRow(
            key=AssocKey(row["Account"], row["User"], row["Partition"]),
            qos=_names(row["QOS"]),
            default=row["Def QOS"],
            assoc_id=row.get("ID", ""),
        )
        for row in _table(text, _ASSOC_COLUMNS)
    ]
    return tuple(sorted(rows, key=lambda row: row.key))


class OwnValues(NamedTuple):
    """What ``sacctmgr dump`` shows on one association."""

    qos: tuple[str, ...]
    default: str
    parent: str


def parse_dump(text: str) -> dict[AssocKey, OwnValues]:
    """Return what is written on each association itself."""
    found: dict[AssocKey, OwnValues] = {}
    parent = ""
    for line in text.splitlines():
        match = _DUMP_LINE.fullmatch(line.strip())
        if match is None:
            continue
        kind, name, rest = match.groups()
        options = _options(rest)
        qos, default = _names(options.get("QOS", "")), options.get("DefaultQOS", "")
        own = OwnValues(qos=qos, default=default, parent=parent)
        if kind == "Parent":
            parent = name
        elif kind == "Account":
            found[AssocKey(name)] = own
        elif kind == "User":
            found[AssocKey(parent, name, options.get("Partition", ""))] = own
    return found


def _options(text: str) -> dict[str, str]:
    """Options of one line, read from the left, so that a free text that looks like an option stays text."""
    return {name: quoted or plain for name, quoted, plain in _OPTION.findall(text)}


def _joined(row: AssocRow, own: OwnValues | None) -> AssocRow:
    if own is None:
        return row
    return replace(row, own_qos=own.qos, own_default=own.default, parent=own.parent)


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(filter(None, text.split(","))))


def _table(text: str, needed: Iterable[str]) -> Sequence[dict[str, str]]:
    head, *lines = text.splitlines() or [""]
    headers = head.split("|")
    for name in needed:
        if name not in headers:
            raise SlurmParseError(f"sacctmgr's answer has no column {name}", field=name, raw=head)
    rows = [line.split("|") for line in lines if line]
    for row in rows:
        if len(row) != len(headers):
            raise SlurmParseError("sacctmgr's answer has a line of another length", field=head, raw="|".join(row))
    return [dict(zip(headers, row, strict=True)) for row in rows]


def _dump(runner: Runner, cluster: str) -> str:
    try:
        return _ask(runner, "sacctmgr", "dump", cluster, "file=/dev/stdout")
    except SlurmError as err:
        if any(word in str(err) for word in _NO_DUMP):
            raise SlurmAuthError(
                f"{err} Run as root, or make SlurmUser one of slurmdbd's administrators: "
                "sacctmgr -i add user slurm account=root adminlevel=administrator"
            ) from err
        raise


def _ask(runner: Runner, *argv: str) -> str:
    return check(runner(Command(argv=argv, timeout_s=TIMEOUT_S)), argv)
