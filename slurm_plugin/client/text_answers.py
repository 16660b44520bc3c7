"""Free-form answers of Slurm's commands: configuration, statistics, ping and version."""

from __future__ import annotations

import re
from typing import Final

_SETTING: Final = re.compile(r"(\S.*?)\s*=(?:\s(.*))?")
_RPC: Final = re.compile(r"(\S+)\s+\(\s*\d+\)\s+(count:.*)")
_PING: Final = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)")


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config`` by key, values verbatim; a plugin's own keys follow the same way."""
    config: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SETTING.fullmatch(line.strip()):
            config.setdefault(match[1], (match[2] or "").strip())
    return config


def parse_diag(text: str) -> dict[str, str]:
    """``sdiag`` by ``section/label`` (lines before the first section by label alone), values verbatim.

    An RPC's value is its counters with single blanks: ``"count:13 ave_time:243 total_time:3171"``.
    """
    diag: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        body = line.strip()
        label, colon, value = body.partition(":")
        if rpc := _RPC.fullmatch(body):
            diag[f"{section}/{rpc[1]}"] = " ".join(rpc[2].split())
        elif line[:1].isspace() and colon:
            diag[f"{section}/{label}"] = value.strip()
        elif colon and value.strip():
            diag[label] = value.strip()
        elif body.strip("*"):
            section = label
    return diag


def parse_ping(text: str) -> list[tuple[str, bool]]:
    """List the controllers in their order of precedence, each with whether it answers."""
    return [(match[2], match[3] == "UP") for match in _PING.finditer(text)]


def parse_version(text: str) -> str:
    """Release in ``slurm-wlm 22.05.8``."""
    return text.rpartition(" ")[2].strip()
