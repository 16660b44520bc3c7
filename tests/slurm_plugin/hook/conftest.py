"""A hook server in a thread, on a socket in a temporary directory."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from policies.registry import get_policy
from policies.submission.decision import Identity
from slurm_plugin.hook.directory import UserDirectory
from slurm_plugin.hook.outcome import HookRules
from slurm_plugin.hook.plugin_build import BuildError, Toolchain, find_toolchain
from slurm_plugin.hook.server import HookServer
from slurm_plugin.hook.service import HookService, SubmissionRecord
from slurm_plugin.hook.socket_file import open_listener
from slurm_plugin.hook.standings import Standings, StandingsBook
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields, parse_header
from slurm_plugin.site.load import SiteFile, parse_site
from tests.slurm_plugin.hook.shims import CompiledShim, Host, LuaShim, Shim, build_host

ALICE = 1000
SITE_TEXT = """
cluster: c
mode: enforce
partitions: [gpu]
agents:
  rec: {accounts: [rec], base_weight: 0.5}
  risk: {accounts: [risk], users: [bob], base_weight: 0.5}
"""


@dataclass
class RunningServer:
    """What a test reaches of a server."""

    path: Path
    server: HookServer
    service: HookService
    users: UserDirectory
    book: StandingsBook
    stats: HookStats
    _records: list[SubmissionRecord]

    def records(self) -> list[SubmissionRecord]:
        """What was recorded; a ping's answer means that everything before it is settled."""
        self.ask("P", {})
        return self._records

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(5)
        client.connect(os.fspath(self.path))
        return client

    def ask(self, op: str, fields: Mapping[str, str | bytes]) -> dict[str, str]:
        with self.connect() as client:
            client.sendall(encode_frame(op, fields))
            return read_reply(client)


def read_reply(client: socket.socket) -> dict[str, str]:
    raw = b""
    while chunk := client.recv(65_536):
        raw += chunk
    assert parse_header(raw).op == "R"
    return parse_fields(raw[HEADER_BYTES:])


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    paths = f"paths: {{state_dir: {tmp_path}, run_dir: {tmp_path}}}\nhook: {{socket: {tmp_path}/hook.sock}}\n"
    path = tmp_path / "site.yaml"
    path.write_text(SITE_TEXT + paths)
    return parse_site(path.read_text(), path=path)


Start = Callable[..., RunningServer]


@pytest.fixture
def start(tmp_path: Path, site: SiteFile) -> Iterator[Start]:
    """Start a server; keywords go to :class:`HookServer`."""
    stops: list[Callable[[], None]] = []

    def run(**options: object) -> RunningServer:
        allowed = options.pop("allowed_uids", frozenset({os.geteuid()}))
        assert isinstance(allowed, frozenset)
        stats, book = HookStats(), StandingsBook()
        users = UserDirectory({ALICE: Identity(user="alice", groups=frozenset())})
        book.offer(standings())
        records: list[SubmissionRecord] = []
        rules = HookRules.from_policy(site.policy, is_off=False)
        service = HookService(rules, users, book=book, stats=stats, record=records.append)
        listener = open_listener(tmp_path / "hook.sock", allowed)
        server = HookServer(listener.socket, service, stats=stats, allowed_uids=allowed, **options)  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run)
        thread.start()

        def stop() -> None:
            server.stop()
            thread.join(5)
            listener.close()

        stops.append(stop)
        return RunningServer(listener.path, server, service, users, book, stats, records)

    yield run
    for stop in stops:
        stop()


def standings(at_s: float | None = None) -> Standings:
    return Standings(
        policy=get_policy("wdrf"),
        at_s=time.time() if at_s is None else at_s,
        scale=40_000,
        tres=("cpu", "gres/gpu"),
        capacity=(100, 10),
        weights={"rec": Fraction(1, 2), "risk": Fraction(1, 2)},
        next_amounts={"rec": (0, 0), "risk": (0, 0)},
    )


SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """C compiler and Slurm's headers."""
    try:
        return find_toolchain(None)
    except BuildError as err:
        pytest.skip(str(err))


@pytest.fixture(scope="session")
def sanitized_host(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The compiled shim and its host with address and undefined-behaviour sanitizers; an error ends the host."""
    return build_host(toolchain, tmp_path_factory.mktemp("sanitized"), flags=SANITIZED)


@pytest.fixture(params=["lua", "compiled"])
def shim(request: pytest.FixtureRequest, tmp_path: Path) -> Shim:
    """Each of the two shims in turn."""
    if request.param == "compiled":
        return CompiledShim(request.getfixturevalue("sanitized_host"), tmp_path / "plugin")
    if shutil.which("lua5.1") is None:
        pytest.skip("needs lua5.1 and lua-socket")
    return LuaShim()
