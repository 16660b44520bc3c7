"""Gather the facts: ask Slurm, slurmdbd, the hook server and this host. What cannot be asked stays unknown."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurm_plugin.bands.accounting import read_associations, read_qos
from slurm_plugin.bands.partitions import parse_partitions
from slurm_plugin.client.command import Command, Runner, check
from slurm_plugin.doctor.facts import Facts
from slurm_plugin.doctor.host import collect_host
from slurm_plugin.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policies.records import NodeRecord
    from slurm_plugin.client.protocol import SlurmClient
    from slurm_plugin.site import SiteFile

_TIMEOUT_S: Final = 20.0
_EPOCH: Final = re.compile(r"\((\d{9,12})\)")


def parse_associations(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return accounts and users of ``sacctmgr -nP show assoc format=account,user``."""
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    return frozenset(row[0] for row in rows if row[0]), frozenset(row[1] for row in rows if row[1])


def parse_controller_s(diag: Mapping[str, str]) -> float | None:
    """Return the controller's clock in ``sdiag``'s first line, seconds since the epoch."""
    for key, value in diag.items():
        if "output at" in key and (match := _EPOCH.search(value)):
            return float(match[1])
    return None


@dataclass(slots=True)
class _Answers:
    """What was answered, and why the rest was not."""

    known: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def ask(self, names: tuple[str, ...], question: Callable[[], tuple[Any, ...]]) -> None:
        try:
            answer = question()
        except SlurmError as err:
            self.missing.update(dict.fromkeys(names, str(err)))
        else:
            self.known.update(zip(names, answer, strict=True))


def collect_facts(site: SiteFile, client: SlurmClient, runner: Runner) -> Facts:
    """Return everything that the checks look at.

    Parameters
    ----------
    site : SiteFile
    client : SlurmClient
        For what FairGPU always asks.
    runner : Runner
        For what only doctor asks: ``scontrol show partition`` and ``sacctmgr``.
    """
    answers = _Answers()
    answers.ask(("config",), lambda: (client.fetch_config(),))
    config: Mapping[str, str] = answers.known.get("config", {})
    host = collect_host(site, config)
    asked_s = time.time()
    if config:
        answers.ask(("version",), lambda: (config.get("SLURM_VERSION") or client.version(),))
        answers.ask(("controller_s",), lambda: (parse_controller_s(client.fetch_diag()),))
        answers.ask(("queue_users", "n_jobs", "nodes"), lambda: _queue(client))
        answers.ask(("partitions",), lambda: (_partitions(runner),))
        answers.ask(("accounts", "associated_users"), lambda: _associations(runner, config))
        if site.policy.bands is not None:
            answers.ask(("qos",), lambda: (read_qos(runner),))
            answers.ask(("qos_in_use",), lambda: (tuple(client.fetch_qos()[0]),))
            answers.ask(("assoc_rows",), lambda: (read_associations(runner, config.get("ClusterName", "")),))
        else:
            answers.known |= {"qos": (), "qos_in_use": (), "assoc_rows": ()}
        answers.ask(("admin_level",), lambda: (_admin_level(runner, host.service_user),))
    return Facts(site=site, host=host, asked_s=asked_s, missing=answers.missing, **answers.known)


def _ask(runner: Runner, *argv: str) -> str:
    return check(runner(Command(argv=argv, timeout_s=_TIMEOUT_S)), argv)


def _queue(client: SlurmClient) -> tuple[frozenset[str], int, tuple[NodeRecord, ...]]:
    seen = client.observe()
    return frozenset(job.user for job in seen.jobs), len(seen.jobs), seen.nodes


def _partitions(runner: Runner) -> dict[str, dict[str, str]]:
    return parse_partitions(_ask(runner, "scontrol", "show", "partition", "-o"))


def _associations(runner: Runner, config: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    cluster = f"cluster={config.get('ClusterName', '')}"
    return parse_associations(_ask(runner, "sacctmgr", "-nP", "show", "assoc", cluster, "format=account,user"))


def _admin_level(runner: Runner, user: str) -> str:
    text = _ask(runner, "sacctmgr", "-nP", "show", "user", user, "format=adminlevel")
    lines = text.split()
    return lines[0] if lines else ""
