"""Run `kafkasniff live` on a real interface as the user who runs the tests, usually root."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.craft import kafka_bytes as kafka

STAYS: Final = ["--keep-root"] if os.geteuid() == 0 else []
"""Options of a `live` that makes files in the folders of tests, for any user that may read the interpreter."""


def until_it_captures(process: subprocess.Popen[Any]) -> None:
    """Read the output of `live`, including warnings, until it captures."""
    said = b""
    while b"listening on" not in said:
        line = process.stderr.readline()
        if not line:
            pytest.fail(said.decode())
        said += line


def exchange(client: socket.socket, broker: socket.socket, number: int, *, error: int = 0) -> None:
    """A Produce request (version 9) of one record, and its response."""
    batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
    client.sendall(kafka.produce_request(number, "orders", batch, version=9))
    broker.recv(4096)
    broker.sendall(kafka.produce_response(number, "orders", 7, error=error, version=9))
    client.recv(4096)


@contextlib.contextmanager
def conversation(*numbers: int) -> Iterator[int]:
    """A broker on loopback that answers requests with these correlation ids; yields its port.

    The client speaks when the block ends.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
            for number in numbers:
                exchange(client, broker, number)


@contextlib.contextmanager
def running(options: list[str], *numbers: int, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`live` on loopback (or the interface in `options`) over a conversation, with lines of JSON."""
    with conversation(*numbers) as port:
        where = [] if "-i" in options else ["-i", "lo"]
        command = [sys.executable, "-m", "kafkasniff", "live", *STAYS, *where, "--format", "json", *options]
        process = subprocess.Popen(
            [*command, "--host", f"127.0.0.1:{port}", f"tcp port {port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )
        until_it_captures(process)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
