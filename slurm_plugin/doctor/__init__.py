"""Whether this Slurm is ready for FairGPU, and which line is missing."""

from slurm_plugin.doctor.check import Check, Status
from slurm_plugin.doctor.examine import ALL_CHECKS, run_checks
from slurm_plugin.doctor.facts import Facts, HostFacts, PathFact, PingFact

__all__ = ["ALL_CHECKS", "Check", "Facts", "HostFacts", "PathFact", "PingFact", "Status", "run_checks"]
