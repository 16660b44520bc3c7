"""What FairGPU asks of a Slurm cluster, whichever way it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.records import Observation, QosRecord


class UpdateStatus(StrEnum):
    """What became of one change."""

    OK = "ok"
    GONE = "gone"
    """Slurm knows the job no more, it has ended, or (for a QOS) it runs: nothing is left to change."""
    REJECTED = "rejected"
    """Slurm refused this change; ``UpdateOutcome.text`` has its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """What became of the change of one job; ``text`` is Slurm's own message, empty for ``ok``."""

    job_id: JobId
    status: UpdateStatus
    text: str = ""


class SlurmClient(Protocol):
    """One cluster. Every method may raise :class:`~slurm_plugin.errors.SlurmUnavailable`.

    Adapters: :class:`~slurm_plugin.client.cli.CliSlurm` (Slurm's own commands) and
    :class:`~slurm_plugin.client.fake.FakeSlurm` (for tests). One contract test holds for all of them.
    """

    def observe(self) -> Observation:
        """Jobs and nodes as they are now, without indicators and groups, in a fixed order.

        Raises
        ------
        SlurmParseError
            If an answer lacks a column that we cannot do without.
        """
        ...

    def set_site_factors(self, changes: Sequence[tuple[JobId, int]]) -> Sequence[UpdateOutcome]:
        """Outcome of each change, in the order given; a single job's refusal is an outcome, not an error.

        When Slurm goes away in the middle, ``SlurmUnavailable`` says nothing about which changes arrived.
        Writing a factor twice is harmless, so the caller tries again.

        Raises
        ------
        SlurmAuthError
            If Slurm refuses all of them because this user is no operator.
        """
        ...

    def set_job_qos(self, changes: Sequence[tuple[JobId, str]]) -> Sequence[UpdateOutcome]:
        """Move pending jobs to other QOSes; outcomes and errors as for :meth:`set_site_factors`.

        A running job's QOS cannot change on any release; such a job is ``GONE``. With the move onto borrowed quota
        (our borrow and opportunistic QOSes) the job becomes one that Slurm may requeue, whatever its user said since.
        """
        ...

    def start_now(self, job_ids: Sequence[JobId]) -> Sequence[UpdateOutcome]:
        """Lift the begin time of requeued jobs (``StartTime=now``); as :meth:`set_site_factors`."""
        ...

    def fetch_qos(self) -> tuple[Sequence[QosRecord], Sequence[tuple[str, int]]]:
        """QOSes sorted by name, and what could not be read, with counts.

        Raises
        ------
        SlurmError
            slurmctld did not answer, or not to this user.
        """
        ...

    def fetch_config(self) -> Mapping[str, str]:
        """Slurm's configuration by key (``scontrol show config``), values verbatim."""
        ...

    def fetch_diag(self) -> Mapping[str, str]:
        """Slurm's statistics (``sdiag``) by ``section/label``, values verbatim."""
        ...

    def version(self) -> str:
        """Slurm's release, ``"22.05.8"``."""
        ...

    def is_primary(self) -> bool:
        """Whether the controller that acts now runs on this host; with one controller, whether it answers."""
        ...
