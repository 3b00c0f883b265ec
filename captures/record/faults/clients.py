"""Client programs of the recordings of trouble: their command lines, and bare sockets that speak a little Kafka."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Sequence

from ..distribution import DEFAULT_VERSION, go_program, node_modules, python_with
from ..programs import CLIENTS, CONFLUENT, java_program
from . import Stage

GREETING = bytes.fromhex("0000000f 0012 0000 00000001 0005 70726f6265")
"""ApiVersions v0 of a client called `probe`."""


def rdkafka(stage: Stage, seconds: float, bootstrap: str, topic: str = "orders", **settings: str) -> Sequence[str]:
    """librdkafka that sends a record every 200 ms; settings with `_` for each dot."""
    _note(stage, f"librdkafka {CONFLUENT[0].rpartition('=')[2]}")
    program = [python_with(*CONFLUENT), str(CLIENTS / "faults" / "rdkafka_tries.py")]
    return [*program, str(seconds), bootstrap, topic, *_settings(settings)]


def java(stage: Stage, seconds: float, bootstrap: str, topic: str = "orders", **settings: str) -> Sequence[str]:
    """The Java producer, likewise."""
    _note(stage, f"Apache Kafka's Java client {DEFAULT_VERSION}")
    program = java_program("Tries", version=DEFAULT_VERSION, sources="java-faults")()
    return [*program, str(seconds), bootstrap, topic, *_settings(settings)]


def go(stage: Stage, library: str, seconds: float, bootstrap: str, topic: str = "orders") -> Sequence[str]:
    """franz-go or sarama, likewise; `sarama-once` ends with the first record."""
    module = CLIENTS / "go_tries"
    name = library.partition("-once")[0]
    wanted = re.search(rf"/{name} v(\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    _note(stage, f"{name} {wanted[1]}")
    return [go_program(module), library, str(seconds), bootstrap, topic]


def kafkajs(stage: Stage, seconds: float, bootstrap: str, topic: str = "orders") -> Sequence[str]:
    """kafkajs, likewise."""
    modules = node_modules(CLIENTS / "node")
    _note(stage, f"kafkajs {json.loads((modules / 'kafkajs' / 'package.json').read_text())['version']}")
    program = str(CLIENTS / "node" / "kafkajs_tries.js")
    return ["env", f"NODE_PATH={modules}", "node", program, str(seconds), bootstrap, topic]


def greeted(stage: Stage, port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection from a loopback address on which the broker has answered ApiVersions."""
    _note(stage, "ApiVersions v0 of a bare socket")
    client = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(address, 0))
    client.sendall(GREETING)
    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL))
    client.recv(size, socket.MSG_WAITALL)
    return client


def greeted_session(stage: Stage, port: int, user: str, password: str, *, seconds: float) -> None:
    """A client that authenticates once (PLAIN) and then sends ApiVersions every 500 ms, until the broker closes."""
    _note(stage, "SASL of a bare socket")
    token = f"\0{user}\0{password}".encode()
    requests = [
        _request(17, 1, 1, b"\0\5PLAIN"),
        _request(36, 1, 2, len(token).to_bytes(4) + token),
        *(_request(18, 0, number, b"") for number in range(3, 3 + round(seconds * 2))),
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for place, request in enumerate(requests):
            client.sendall(request)
            size = client.recv(4, socket.MSG_WAITALL)
            if not size:
                return
            client.recv(int.from_bytes(size), socket.MSG_WAITALL)
            time.sleep(0.5 if place > 1 else 0)


def _request(api: int, version: int, number: int, body: bytes) -> bytes:
    """A request of a client called `once`, with a header of version 1."""
    header = api.to_bytes(2) + version.to_bytes(2) + number.to_bytes(4) + b"\0\4once"
    return (len(header) + len(body)).to_bytes(4) + header + body


def _settings(settings: dict[str, str]) -> list[str]:
    return [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]


def _note(stage: Stage, client: str) -> None:
    if client not in stage.clients:
        stage.clients.append(client)
