"""The ``fairgpu`` command: verbs are loaded only when called, so that ``fairgpu --help`` stays quick."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from policies.errors import PolicyError
from slurm_plugin.errors import AlreadyRunningError, ConfigError, FairGpuError, SlurmUnavailable

_VERBS: Final[dict[str, tuple[str, str]]] = {
    "apply": ("slurm_plugin.cli.apply", "Write quotas and bands into slurmdbd, or take them out."),
    "check-config": ("slurm_plugin.cli.check_config", "Is the site file right?"),
    "demo": ("slurm_plugin.cli.demo", "Replay a recorded run; no root, no Slurm."),
    "doctor": ("slurm_plugin.cli.doctor", "Is this Slurm ready, and which line is missing?"),
    "explain": ("slurm_plugin.cli.explain", "Why does this job wait, digit for digit?"),
    "hook": ("slurm_plugin.cli.hook", "Build the submit plugin for this Slurm."),
    "hook-server": ("slurm_plugin.cli.hook_server", "Daemon: answer slurmctld's submit hook."),
    "off": ("slurm_plugin.cli.switch", "Stop every effect now."),
    "on": ("slurm_plugin.cli.switch", "Resume after 'off'."),
    "qos-helper": ("slurm_plugin.cli.qos_helper", "Daemon: change our own QOSes in slurmdbd."),
    "plan": ("slurm_plugin.cli.plan", "What would apply change in slurmdbd?"),
    "rebalance": ("slurm_plugin.cli.rebalance", "Daemon: keep the site factors right."),
    "replay": ("slurm_plugin.cli.replay", "Decide recorded cycles again and compare."),
    "shadow": ("slurm_plugin.cli.shadow", "For any user of any Slurm: who would be first?"),
    "snapshot": ("slurm_plugin.cli.snapshot", "Write a cycle to a file, for a bug report."),
    "status": ("slurm_plugin.cli.status", "Who has what, who is owed what?"),
    "top": ("slurm_plugin.cli.top", "The same, live."),
}
"""Verb -> module and one line of help; the module has a click command named like the verb with ``_`` for ``-``,
plus ``_command``."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_SLURM_UNREACHABLE: Final = 3


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(_VERBS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_") + "_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without loading their modules."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in sorted(_VERBS.items())])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="slurm-fairgpu", prog_name="fairgpu")
def cli() -> None:
    """Share a Slurm GPU cluster among agents by agreement.

    \b
    Examples:
      fairgpu check-config            is the site file right?
      fairgpu doctor                  is this Slurm ready, and which line is missing?
      fairgpu status                  who has what, who is owed what
      fairgpu explain 4711            why does this job wait, digit for digit
      fairgpu off                     stop every effect now; 'fairgpu on' resumes

    \b
    Exit codes: 0 done, 1 failed, 2 usage or site file, 3 Slurm unreachable.
    """


def _run() -> None:
    try:
        cli.main(standalone_mode=False)
    finally:
        sys.stdout.flush()  # what fails here can still be told; the interpreter's own last try cannot


def _open_missing_streams() -> None:
    """Give a closed stdout or stderr somewhere to write: talk would otherwise go to the other one."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the process's life


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line and turn our errors into a message and an exit code."""
    _open_missing_streams()
    try:
        _run()
    except click.ClickException as err:
        err.show()
        sys.exit(err.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        _discard_output()
        sys.exit(EXIT_FAILED)
    except OSError as err:  # a full disk behind stdout, a file that vanished
        _discard_output()
        click.echo(f"fairgpu: {err}", err=True)
        sys.exit(EXIT_FAILED)
    except ConfigError as err:
        click.echo(f"fairgpu: {err}", err=True)
        for problem in err.problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(EXIT_USAGE)
    except SlurmUnavailable as err:
        click.echo(f"fairgpu: {err}", err=True)
        sys.exit(EXIT_SLURM_UNREACHABLE)
    except (AlreadyRunningError, FairGpuError, PolicyError) as err:
        click.echo(f"fairgpu: {err}", err=True)
        sys.exit(EXIT_FAILED)
