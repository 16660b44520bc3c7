"""The compiled shim's reading of answers against an independent one, on damaged answers of every kind."""

from __future__ import annotations

import os
import random
import re
import subprocess
from typing import TYPE_CHECKING, Final

from slurm_plugin.hook.plugin_build import SOURCES
from slurm_plugin.hook.wire import encode_fields
from tests.slurm_plugin.hook.conftest import SANITIZED
from tests.slurm_plugin.hook.shims import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.hook.plugin_build import Toolchain

VERDICTS: Final = {b"unchanged": 0, b"accept": 1, b"reject": 2}
N_BODIES: Final = 20_000
GOOD: Final = (
    {"verdict": "accept", "site_factor": "40000", "agent": "rec"},
    {"verdict": "accept", "site_factor": "2147483645", "user_msg": "did you mean agent=...?"},
    {"verdict": "accept", "site_factor": "7", "qos": "fg_c_r.e-c9"},
    {"verdict": "accept", "qos": "q" * 255},
    {"verdict": "accept", "qos": "q" * 256},
    {"verdict": "reject", "user_msg": "no, 7:verdict,6:accept, is text"},
    {"verdict": "unchanged", "user_msg": "\x1b\n\xe9", "": ""},
)
PIECES: Final = (
    b"7:verdict,6:accept,",
    b"11:site_factor,1:7,",
    b"8:user_msg,2:hi,",
    b"3:qos,6:normal,",
    b"3:qos,0:,",
    b"0:,",
    b"999999:",
    b":",
    b",",
    b"9",
)


def read_answer(body: bytes) -> str:
    """Return what docs/reference/wire-protocol.md says about a body, as ``answers.c`` prints it."""
    parts, at = [], 0
    while at < len(body):
        match = re.compile(rb"([0-9]{1,6}):").match(body, at)
        end = match.end() + int(match[1]) if match else len(body)
        if match is None or body[end : end + 1] != b",":
            return "-"
        parts.append(body[match.end() : end])
        at = end + 1
    names, values = parts[::2], parts[1::2]
    if len(names) != len(values) or len(set(names)) != len(names) or len(names) > 64:
        return "-"
    return _judge(dict(zip(names, values, strict=True)))


def _judge(fields: dict[bytes, bytes]) -> str:
    verdict = VERDICTS.get(fields.get(b"verdict", b""))
    factor = fields.get(b"site_factor")
    is_factor_good = factor is None or (
        re.fullmatch(rb"[0-9]{1,10}", factor) is not None and 1 <= int(factor) <= 2_147_483_645 and verdict == 1
    )
    qos = fields.get(b"qos")
    is_qos_good = qos is None or (re.fullmatch(rb"[a-z0-9_.-]{1,255}", qos) is not None and verdict == 1)
    if verdict is None or not is_factor_good or not is_qos_good:
        return "-"
    message = re.sub(rb"[^ -~]", b"?", fields.get(b"user_msg", b"")[:1_000]).decode()
    return f"{verdict} {int(factor or 0)} {(qos or b'').decode()};{message}"


def damaged(rng: random.Random) -> bytes:
    """Return an answer with up to four bytes or pieces changed, moved, doubled or lost."""
    body = bytearray(encode_fields(rng.choice(GOOD)))
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(body) + 1)
        what = rng.randrange(5)
        if what == 0:
            body[at : at + 1] = bytes([rng.randrange(256)])
        elif what == 1:
            body[at:at] = rng.choice(PIECES)
        elif what == 2:
            del body[at : at + rng.randrange(1, 8)]
        elif what == 3:
            body[at:at] = body[: rng.randrange(20)]
        else:
            body.extend(rng.choice(PIECES))
    return bytes(body)


def test_every_damaged_answer_is_read_alike(toolchain: Toolchain, tmp_path: Path) -> None:
    program = os.fspath(tmp_path / "answers")
    sources = [os.fspath(HERE / "host" / "answers.c"), os.fspath(SOURCES / "wire.c")]
    argv = [toolchain.compiler, "-std=c11", "-g", "-O1", *SANITIZED, f"-I{SOURCES}", *sources, "-o", program]
    subprocess.run(argv, check=True, timeout=120)
    rng = random.Random(7)  # noqa: S311 - test data, the same in every run
    bodies = [damaged(rng) for _ in range(N_BODIES)]
    bodies += [b"".join(b"%d:%s,0:," % (len(str(n)), str(n).encode()) for n in range(k)) + PIECES[0] for k in (63, 64)]
    lines = "".join(f"{body.hex()}\n" for body in bodies).encode()
    done = subprocess.run([program], input=lines, capture_output=True, check=True, timeout=120)
    got = done.stdout.decode().splitlines()
    want = [read_answer(body) for body in bodies]
    different = [case for case in zip(bodies, got, want, strict=True) if case[1] != case[2]]
    assert different == []
    assert 0.1 < sum(line != "-" for line in want) / len(want) < 0.9
