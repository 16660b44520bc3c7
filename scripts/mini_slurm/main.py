"""Entry point: ``exec`` takes a short cut past argparse and everything else."""

from __future__ import annotations

import sys

from mini_slurm.place import MiniError, UsageError


def main(argv: list[str]) -> int:
    """Run one mini-slurm command and return its exit code: 0 done, 1 failed, 2 wrong usage."""
    try:
        if argv[:1] == ["exec"]:
            from mini_slurm.enter import run_exec  # noqa: PLC0415 - exec loads only what it needs

            return run_exec(argv[1:])
        from mini_slurm.cli import run  # noqa: PLC0415 - argparse, subprocess and so on cost exec 30 ms

        return run(argv)
    except UsageError as err:
        sys.stderr.write(f"mini-slurm: {err}\n")
        return 2
    except MiniError as err:
        sys.stderr.write(f"mini-slurm: {err}\n")
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
