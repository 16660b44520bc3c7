"""The two shims behind one interface: each runs in a host that plays slurmctld, told by the same steps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import slurm_plugin.hook
from slurm_plugin.hook.plugin_build import SOURCES, Toolchain
from slurm_plugin.hook.plugin_file import PLUGIN_NAME, SETTINGS_NAME

HERE: Final = Path(__file__).parent
LUA_SHIM: Final = Path(slurm_plugin.hook.__file__).parent / "lua"

Value = str | bytes | int
Options = Mapping[str, object]
"""``deadline_ms``, ``failures``, ``pause_s``, ``uids``; the socket is given apart."""

_NO_VALUES: Final = {"min_nodes": 4294967294, "cpus_per_task": 65534, "priority": 4294967294, "begin_time": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call did: its return code, duration, the fields that it set, what user and log were told."""

    rc: str
    ms: float
    changed: str
    told: str
    logged: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A submission by uid 1000; ``only`` replaces the usual job's fields."""

    more: Mapping[str, Value] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    default_partition: str = ""

    @property
    def fields(self) -> dict[str, Value]:
        job: dict[str, Value] = {"user_id": 1000, "account": "rec", "partition": "gpu", "num_tasks": 1, **self.more}
        return {name: value for name, value in job.items() if name not in self.without}


@dataclass(frozen=True, slots=True, kw_only=True)
class Modify:
    """An update by ``uid`` of a job that has ``record``'s fields."""

    fields: Mapping[str, Value]
    record: Mapping[str, Value]
    uid: int


Step = Submit | Modify | float
"""A number waits for so many seconds."""


class Shim(Protocol):
    """A shim in its host."""

    def run(self, path: Path, *steps: Step, options: Options | None = None) -> list[Call]: ...


def parse_calls(output: bytes) -> list[Call]:
    rows = [row.split("\t") for row in output.decode("utf-8", "replace").splitlines()]
    return [Call(rc=r[0], ms=float(r[1]), changed=r[2], told=r[3], logged=r[4]) for r in rows]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def run_lua(path: Path, script: str) -> list[Call]:
    done = subprocess.run(
        ["lua5.1", os.fspath(HERE / "harness.lua"), os.fspath(LUA_SHIM), os.fspath(path)],
        input=script.encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return parse_calls(done.stdout)


class LuaShim:
    """``fairgpu.lua`` in ``harness.lua``."""

    def run(self, path: Path, *steps: Step, options: Options | None = None) -> list[Call]:
        lines = [f"wrap({_lua(options or {})})", *(self._line(step) for step in steps)]
        return run_lua(path, "\n".join(lines))

    def _line(self, step: Step) -> str:
        if isinstance(step, Submit):
            parts = f"{{cpu={{flag_default=0}}, {step.default_partition}={{flag_default=1}}}}"
            return f"submit({_lua(_NO_VALUES | step.fields)}, {parts if step.default_partition else '{}'})"
        if isinstance(step, Modify):
            return f"modify({_lua(step.fields)}, {_lua(step.record)}, {step.uid})"
        return f"sleep({step})"


def _lua(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={_lua(item)}" for name, item in value.items()) + "}"
    if isinstance(value, str | bytes):
        text = _bytes(value).decode("latin-1")
        return '"' + re.sub(r"[^ !#-\[\]-~]", lambda found: f"\\{ord(found[0]):03}", text) + '"'
    if isinstance(value, Sequence):
        return "{" + ", ".join(map(_lua, value)) + "}"
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A built host with its stock plugin and the plugin, and what runs it (``valgrind ...``)."""

    folder: Path
    runner: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def start(self, folder: Path, path: Path, options: Options | None = None) -> subprocess.Popen[bytes]:
        """Start the host on a plugin in ``folder`` whose settings name ``path``."""
        folder.mkdir(exist_ok=True)
        plugin = folder / PLUGIN_NAME
        shutil.copyfile(self.folder / PLUGIN_NAME, plugin)
        write_settings(folder, path, options or {})
        argv = [*self.runner, os.fspath(self.folder / "host"), os.fspath(self.folder / "auth_stock.so"), str(plugin)]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | self.env)


def write_settings(folder: Path, path: Path, options: Options) -> None:
    lines = [f"socket = {path}"]
    for name, value in options.items():
        many = isinstance(value, Sequence) and not isinstance(value, str)
        lines.append(f"{name} = {', '.join(map(str, value)) if many else value}")  # type: ignore[call-overload]
    (folder / SETTINGS_NAME).write_text("\n".join(lines) + "\n")


def build_host(toolchain: Toolchain, folder: Path, *, flags: Sequence[str] = (), defines: Sequence[str] = ()) -> Host:
    """Compile host, stock plugin and plugin; ``defines`` are the host's (``-DRUNNING=0x180b05``)."""
    include = () if toolchain.include is None else ("-isystem", os.fspath(toolchain.include))
    common = [toolchain.compiler, "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *include, *flags, *defines]
    source, plugin_sources = HERE / "host", sorted(SOURCES.glob("*.c"))
    for argv in (
        [*common, "-rdynamic", "-pthread", source / "host.c", "-o", folder / "host"],
        [*common, "-shared", "-fPIC", source / "stock.c", "-o", folder / "auth_stock.so"],
        toolchain.command(folder / PLUGIN_NAME, plugin_sources, flags=("-g", *flags)),
    ):
        done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return Host(folder=folder)


class CompiledShim:
    """The plugin in ``host.c``."""

    def __init__(self, host: Host, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self.stderr = ""

    def run(self, path: Path, *steps: Step, options: Options | None = None) -> list[Call]:
        return self.run_lines(path, *map(host_line, steps), options=options)

    def run_lines(self, path: Path, *lines: str, options: Options | None = None) -> list[Call]:
        process = self._host.start(self._folder, path, options)
        out, err = process.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=280)
        self.stderr = err.decode("utf-8", "replace")
        assert process.returncode == 0, self.stderr
        return parse_calls(out)


def host_line(step: Step) -> str:
    """Return the line of the host's input for a step."""
    if isinstance(step, Submit):
        parts = f" {_words({'default_partition': step.default_partition})}" if step.default_partition else ""
        return f"submit {_words(step.fields)}{parts}"
    if isinstance(step, Modify):
        return f"modify uid#{step.uid} {_words(step.fields)} {_words(step.record, 'old.')}"
    return f"sleep {step}"


def _words(fields: Mapping[str, Value], prefix: str = "") -> str:
    words = (
        f"{prefix}{name}#{value}" if isinstance(value, int) else f"{prefix}{name}={_bytes(value).hex()}"
        for name, value in fields.items()
    )
    return " ".join(words)
