"""``python -m tests.soak``: 20 minutes of mixed jobs and 300 kills on a mini-Slurm; needs root."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.soak.run import Settings, soak
from tests.soak.tell import as_json, page, report


def main() -> int:
    """Print the result; 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.8, help="submissions per second")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there, too")
    parser.add_argument("--page", type=Path, metavar="PATH", help="write the page of the documentation there")
    options = parser.parse_args()
    began_s = time.monotonic()
    settings = Settings(
        seconds=options.minutes * 60,
        kills=options.kills,
        seed=options.seed,
        rate=options.rate,
        is_kept=options.keep,
    )
    result = soak(settings, lambda line: _say(f"{time.monotonic() - began_s:5.0f} s  {line}"))
    sys.stdout.write(report(result) + "\n")
    if options.json:
        options.json.write_text(json.dumps(as_json(result), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if options.page:
        options.page.write_text(page(result), encoding="utf-8")
    return 0 if result.is_good else 1


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
