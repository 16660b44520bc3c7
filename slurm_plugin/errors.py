"""Errors of the Slurm side, split by what the caller can do.

::

    FairGpuError
    ├── ConfigError             the site file is wrong: exit 2, lists every problem
    ├── SlurmError              something about Slurm
    │   ├── SlurmUnavailable    retry later (slurmctld or the network is away): exit 3
    │   ├── SlurmAuthError      do not retry: this user may not do that
    │   ├── SlurmRejected       this job only was refused
    │   └── SlurmParseError     an answer that we do not understand; carries the field and the raw text
    ├── StaleStateError         the state is too old or doubtful to act on
    └── AlreadyRunningError     another instance holds the lease
"""

from __future__ import annotations


class FairGpuError(Exception):
    """Root of every error of this distribution's shells."""


class ConfigError(FairGpuError):
    """The site file (or a setting) is wrong; ``problems`` lists all of them, one line each."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class SlurmError(FairGpuError):
    """Something about Slurm."""


class SlurmUnavailable(SlurmError):  # noqa: N818 - the established name for a retryable condition
    """Slurm could not be reached or did not answer in time; trying later may help."""


class SlurmAuthError(SlurmError):
    """Slurm answered that this user may not do that; trying again does not help."""


class SlurmRejected(SlurmError):  # noqa: N818 - names what Slurm did
    """Slurm refused a change of one object, which the message names."""


class SlurmParseError(SlurmError):
    """An answer that we do not understand."""

    def __init__(self, message: str, *, field: str, raw: str) -> None:
        super().__init__(message)
        self.field = field
        self.raw = raw


class StaleStateError(FairGpuError):
    """The state is too old or doubtful to act on; nothing was changed."""


class AlreadyRunningError(FairGpuError):
    """Another instance holds the lease."""
