"""The client that asks Slurm's own commands, the one interface that every release has."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.records import JobId, Observation
from slurm_plugin.client import text_answers, updates
from slurm_plugin.client.array_rows import RECORD_ROWS, TASK_ROWS, UNKNOWN_OPTION, fold_tasks
from slurm_plugin.client.command import Command, ProcessRunner, Runner, check, error_for, is_unavailable
from slurm_plugin.client.job_columns import JOB_COLUMNS
from slurm_plugin.client.job_ids import is_job_id
from slurm_plugin.client.jobs import read_jobs
from slurm_plugin.client.nodes import NODE_COLUMNS, read_nodes
from slurm_plugin.client.protocol import UpdateOutcome, UpdateStatus
from slurm_plugin.client.qos import QosReader, is_qos_name
from slurm_plugin.client.site_factors import SITE_COLUMNS, read_site_factors
from slurm_plugin.client.table import Separators, long_format, parse_table, short_format
from slurm_plugin.errors import SlurmAuthError, SlurmError, SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.records import QosRecord
    from slurm_plugin.client.table import Table

_NO_JOB_ID: Final = "not a job id of Slurm"
_NO_QOS_NAME: Final = "not a plain QOS name"
_LONGEST_UPDATE_ID: Final = 2000
"""Characters; a ``scontrol`` without readline reads lines of up to 4095."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """How Slurm's commands are run.

    Attributes
    ----------
    runner : Runner
        What runs them; tests put recordings here.
    timeout_s : float
        For each reading command.
    database_timeout_s : float
        For asking slurmdbd: a cycle waits so long when slurmdbd or its MariaDB hangs, once per ``RETRY_AFTER_S``.
    update_timeout_s : float
        For one ``scontrol`` with up to ``updates_per_process`` updates; 22.05 may sleep a second on a young
        job.
    now : callable
        Seconds since the epoch.
    separators : callable
        New separators for each command.
    hostname : str
        This host as ``SlurmctldHost`` calls it.
    """

    runner: Runner = field(default_factory=ProcessRunner)
    timeout_s: float = 20.0
    database_timeout_s: float = 5.0
    update_timeout_s: float = 60.0
    updates_per_process: int = 1000
    now: Callable[[], float] = time.time
    separators: Callable[[], Separators] = Separators.random
    hostname: str = field(default_factory=socket.gethostname)


class CliSlurm:
    """A cluster seen through ``squeue``, ``sprio``, ``sinfo``, ``scontrol`` and ``sdiag``.

    It remembers from the last ``observe`` how to address partly started arrays; without one, an update of
    such an array also reaches its started tasks, which does no harm.
    """

    def __init__(self, settings: CliSettings | None = None) -> None:
        self._settings = settings or CliSettings()
        self._update_ids: Mapping[JobId, str] = {}
        self._identity: tuple[str, str] | None = None
        self._has_task_rows_only = False
        self._qos = QosReader(ask=self._ask_about_qos, now=self._settings.now)

    def observe(self) -> Observation:
        """Jobs and nodes as they are now; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        problems: Counter[str] = Counter()
        cluster, release = self._cluster_and_release()
        at_s = self._settings.now()
        job_separators = self._settings.separators()
        jobs = self._fetch_jobs(job_separators)
        site_factors = self._fetch_site_factors(problems)
        node_separators = self._settings.separators()
        sinfo = self._ask("sinfo", "--local", "-N", "--all", "-O", long_format(NODE_COLUMNS, node_separators))
        reading = read_jobs(jobs, site_factors, problems)
        self._update_ids = reading.update_ids
        return Observation(
            at_s=at_s,
            cluster=cluster,
            slurm_version=release,
            jobs=reading.jobs,
            nodes=read_nodes(parse_table(sinfo, NODE_COLUMNS, node_separators), problems),
            problems=tuple(sorted(problems.items())),
        )

    def set_site_factors(self, changes: Sequence[tuple[JobId, int]]) -> Sequence[UpdateOutcome]:
        """Outcome of each change; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        return self._update([(job_id, f"SiteFactor={value}") for job_id, value in changes])

    def set_job_qos(self, changes: Sequence[tuple[JobId, str]]) -> Sequence[UpdateOutcome]:
        """Outcome of each move; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        sane = [(job_id, updates.move_assignment(name)) for job_id, name in changes if is_qos_name(name)]
        sent = iter(self._update(sane))
        return [next(sent) if is_qos_name(name) else _refused(job_id, _NO_QOS_NAME) for job_id, name in changes]

    def start_now(self, job_ids: Sequence[JobId]) -> Sequence[UpdateOutcome]:
        """Outcome of each; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        return self._update([(job_id, "StartTime=now") for job_id in job_ids])

    def fetch_qos(self) -> tuple[Sequence[QosRecord], Sequence[tuple[str, int]]]:
        """QOSes as slurmctld has them; see :class:`~slurm_plugin.client.protocol.SlurmClient`."""
        problems: Counter[str] = Counter()
        return self._qos.read(problems), tuple(sorted(problems.items()))

    def fetch_config(self) -> Mapping[str, str]:
        """``scontrol show config`` by key."""
        return text_answers.parse_config(self._ask("scontrol", "show", "config"))

    def fetch_diag(self) -> Mapping[str, str]:
        """``sdiag`` by ``section/label``."""
        return text_answers.parse_diag(self._ask("sdiag"))

    def version(self) -> str:
        """Release of the commands on this host."""
        return text_answers.parse_version(self._ask("scontrol", "--version"))

    def is_primary(self) -> bool:
        """Whether the first controller that answers is this host; with one controller, whether it answers."""
        result = self._settings.runner(self._command("scontrol", "ping"))
        controllers = text_answers.parse_ping(result.stdout)
        if not controllers:
            raise error_for(result.stderr or result.stdout, "scontrol")
        acting = [host for host, is_up in controllers if is_up]
        if len(controllers) == 1 or not acting:
            return bool(acting)
        return acting[0].partition(".")[0] == self._settings.hostname.partition(".")[0]

    def _fetch_jobs(self, separators: Separators) -> Table:
        """One row per record; whether the release can print them so is found out once."""
        if not self._has_task_rows_only:
            try:
                return self._ask_for_jobs(RECORD_ROWS, separators)
            except SlurmError as err:
                if UNKNOWN_OPTION not in str(err):
                    raise
                self._has_task_rows_only = True
        return fold_tasks(self._ask_for_jobs(TASK_ROWS, separators))

    def _ask_for_jobs(self, rows: str, separators: Separators) -> Table:
        words = ("squeue", "--local", "--all", rows, "--noconvert", "-O", long_format(JOB_COLUMNS, separators))
        return parse_table(self._ask(*words), JOB_COLUMNS, separators)

    def _fetch_site_factors(self, problems: Counter[str]) -> dict[str, int]:
        separators = self._settings.separators()
        try:
            sprio = self._ask("sprio", "--local", "-o", short_format(SITE_COLUMNS, separators))
        except SlurmUnavailable:
            raise
        except SlurmError as err:
            problems[f"no site factors: {err}"] += 1
            return {}
        return read_site_factors(parse_table(sprio, SITE_COLUMNS, separators), problems)

    def _update(self, changes: Sequence[tuple[JobId, str]]) -> list[UpdateOutcome]:
        outcomes: list[UpdateOutcome] = []
        size = self._settings.updates_per_process
        for start in range(0, len(changes), size):
            outcomes.extend(self._update_chunk(changes[start : start + size]))
        if updates.are_all_denied(outcomes):
            what = changes[0][1].partition("=")[0]
            raise SlurmAuthError(f"scontrol update {what}: {outcomes[0].text} (AdminLevel=Operator is needed)")
        return outcomes

    def _update_chunk(self, changes: Sequence[tuple[JobId, str]]) -> list[UpdateOutcome]:
        wanted = [(self._update_id(job_id), assignment) for job_id, assignment in changes if is_job_id(job_id)]
        ids = [update_id for update_id, _ in wanted]
        script = "".join(updates.update_command(*one) + "\n" for one in wanted)
        replies = updates.place_replies(self._run_script(script), ids) if wanted else updates.Replies()
        if replies.unplaced:
            self._update_one_by_one(wanted, replies)
        return [
            updates.outcome(job_id, replies.by_id.get(self._update_id(job_id), [_NO_JOB_ID])) for job_id, _ in changes
        ]

    def _run_script(self, script: str) -> str:
        result = self._settings.runner(
            Command(argv=("scontrol",), stdin=script, timeout_s=self._settings.update_timeout_s, is_merged=True)
        )
        if is_unavailable(result.stdout):
            raise error_for(result.stdout, "scontrol")
        return result.stdout

    def _update_one_by_one(self, wanted: Sequence[tuple[str, str]], replies: updates.Replies) -> None:
        """Send those again that no message named; a process of its own says for sure what became of each."""
        for update_id, assignment in wanted:
            if replies.by_id[update_id]:
                continue
            command = self._command("scontrol", *updates.update_command(update_id, assignment).split(" "))
            result = self._settings.runner(command)
            message = result.stderr or result.stdout
            if is_unavailable(message):
                raise error_for(message, "scontrol")
            if result.returncode != 0:
                placed = updates.place_replies(message, [update_id])
                replies.by_id[update_id].extend(placed.by_id[update_id] or placed.unplaced)

    def _update_id(self, job_id: JobId) -> str:
        update_id = self._update_ids.get(job_id, job_id)
        return update_id if len(update_id) <= _LONGEST_UPDATE_ID else job_id

    def _cluster_and_release(self) -> tuple[str, str]:
        if self._identity is None:
            config = self.fetch_config()
            self._identity = (config.get("ClusterName", ""), config.get("SLURM_VERSION", ""))
        return self._identity

    def _ask(self, *argv: str) -> str:
        return check(self._settings.runner(self._command(*argv)), argv)

    def _ask_about_qos(self, argv: tuple[str, ...]) -> str:
        settings = self._settings
        timeout_s = settings.database_timeout_s if argv[0] == "sacctmgr" else settings.timeout_s
        return check(settings.runner(Command(argv=argv, timeout_s=timeout_s)), argv)

    def _command(self, *argv: str) -> Command:
        return Command(argv=argv, timeout_s=self._settings.timeout_s)


def _refused(job_id: JobId, text: str) -> UpdateOutcome:
    return UpdateOutcome(job_id=job_id, status=UpdateStatus.REJECTED, text=text)
