"""What FairGPU learns beside Slurm: SLA indicators and Unix groups."""

from slurm_plugin.telemetry.groups import resolve_groups
from slurm_plugin.telemetry.indicators import IndicatorReading, parse_indicators, read_indicators

__all__ = ["IndicatorReading", "parse_indicators", "read_indicators", "resolve_groups"]
