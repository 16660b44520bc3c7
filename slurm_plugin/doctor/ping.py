"""Ask the hook server whether it is there, and how long an answer takes."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.facts import PingFact
from slurm_plugin.hook.exchange import ClosedWithoutAnswerError, ask
from slurm_plugin.hook.wire import OP_PING, WireError, encode_frame

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S: Final = 1.0
_N_PINGS: Final = 5
_MEANINGS: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such socket",
    ConnectionRefusedError: "nobody listens",
}


def ping_hook(path: Path, *, timeout_s: float = _TIMEOUT_S, n_pings: int = _N_PINGS) -> PingFact:
    """Return the median time of a few pings (connect, ask, read), or why there is no answer."""
    try:
        answers = [_ping(path, timeout_s) for _ in range(n_pings)]
    except (PermissionError, BrokenPipeError, ConnectionResetError, ClosedWithoutAnswerError):
        return PingFact(is_refused=True, error="refused")
    except TimeoutError:
        return PingFact(error=f"no answer within {timeout_s:g} s")
    except OSError as err:
        return PingFact(error=_MEANINGS.get(type(err), err.strerror or str(err)))
    except WireError as err:
        return PingFact(error=f"not an answer: {err}")
    return PingFact(latency_s=statistics.median(took for took, _ in answers), state=answers[-1][1])


def _ping(path: Path, timeout_s: float) -> tuple[float, str]:
    began = time.perf_counter()
    fields = ask(path, encode_frame(OP_PING, {}), timeout_s=timeout_s)
    return time.perf_counter() - began, fields.get("state", "")
