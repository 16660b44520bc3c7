"""Servers that answer a shim badly."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from slurm_plugin.hook.wire import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Hostile:
    """A server that greets each client with ``treat`` in a thread of its own."""

    def __init__(self, path: Path, treat: Callable[[socket.socket], None]) -> None:
        self.n_clients = 0
        self._treat = treat
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(os.fspath(self._path))
        self._listener.listen(64)
        self._listener.settimeout(0.05)
        self._is_open = True
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._acceptor.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while self._is_open:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.n_clients += 1
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(1)
            try:
                self._treat(client)
            except OSError:
                return


def replies(raw: bytes) -> Callable[[socket.socket], None]:
    def treat(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(raw)

    return treat


def silent(client: socket.socket) -> None:
    while client.recv(65_536):
        pass


def deaf(client: socket.socket) -> None:
    time.sleep(0.1)
    client.close()


def drips(client: socket.socket) -> None:
    client.recv(65_536)
    for byte in encode_frame("R", {"verdict": "reject", "user_msg": "x" * 200}):
        client.sendall(bytes([byte]))
        time.sleep(0.005)


REPLY = {"verdict": "accept", "site_factor": "5"}
HOSTILE = {
    "silent": silent,
    "reads nothing": deaf,
    "byte by byte": drips,
    "closes at once": lambda client: client.close(),
    "closes after the request": replies(b""),
    "garbage": replies(b"\xff" * 500),
    "an HTTP server": replies(b"HTTP/1.0 200 OK\r\n\r\n"),
    "a huge length": replies(b"FG1R99999999"),
    "a length of signs": replies(b"FG1R+0000020" + b"x" * 20),
    "a length without a body": replies(b"FG1R00000040"),
    "a cut body": replies(encode_frame("R", REPLY)[:-3]),
    "a netstring longer than the body": replies(b"FG1R00000016" + b"7:verdict,99:acc"),
    "a netstring of a million": replies(b"FG1R00000021" + b"7:verdict,9999999:acc"),
    "a netstring without an end": replies(b"FG1R00000018" + b"7:verdict,6:acceptX"),
    "the wrong operation": replies(encode_frame("S", {"verdict": "reject"})),
    "the wrong version": replies(encode_frame("R", {"verdict": "reject"}).replace(b"FG1", b"FG2")),
    "no verdict": replies(encode_frame("R", {"site_factor": "5"})),
    "a verdict of another kind": replies(encode_frame("R", {"verdict": "maybe"})),
    "a factor that is no number": replies(encode_frame("R", REPLY | {"site_factor": "1e3"})),
    "a negative factor": replies(encode_frame("R", REPLY | {"site_factor": "-5"})),
    "factor 0": replies(encode_frame("R", REPLY | {"site_factor": "0"})),
    "an empty factor": replies(encode_frame("R", REPLY | {"site_factor": ""})),
    "a factor that Slurm cannot hold": replies(encode_frame("R", REPLY | {"site_factor": "2147483646"})),
    "a factor of many digits": replies(encode_frame("R", REPLY | {"site_factor": "9" * 400})),
    "a factor beside a rejection": replies(encode_frame("R", REPLY | {"verdict": "reject"})),
    "a QOS with a space": replies(encode_frame("R", REPLY | {"qos": "fg_c rec"})),
    "a QOS that would be a list": replies(encode_frame("R", REPLY | {"qos": "fg_c_rec,normal"})),
    "a QOS with a line end": replies(encode_frame("R", REPLY | {"qos": "fg_c_rec\n"})),
    "a QOS in capitals": replies(encode_frame("R", REPLY | {"qos": "FG"})),
    "an empty QOS": replies(encode_frame("R", REPLY | {"qos": ""})),
    "a QOS too long": replies(encode_frame("R", REPLY | {"qos": "q" * 256})),
    "a QOS beside a rejection": replies(encode_frame("R", {"verdict": "reject", "qos": "fg_c_rec"})),
    "a field twice": replies(b"FG1R00000038" + b"7:verdict,6:accept," * 2),
    "an empty body": replies(b"FG1R00000000"),
}
