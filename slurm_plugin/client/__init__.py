"""Reads a Slurm cluster and writes site factors: one protocol, adapters for the real thing and for tests."""

from slurm_plugin.client.cli import CliSettings, CliSlurm
from slurm_plugin.client.command import ProcessRunner
from slurm_plugin.client.fake import FakeSlurm
from slurm_plugin.client.protocol import SlurmClient, UpdateOutcome, UpdateStatus

__all__ = [
    "CliSettings",
    "CliSlurm",
    "FakeSlurm",
    "ProcessRunner",
    "SlurmClient",
    "UpdateOutcome",
    "UpdateStatus",
]
