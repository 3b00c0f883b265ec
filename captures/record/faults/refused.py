"""Recordings of connects that nobody answers."""

from __future__ import annotations

import socket

from . import Fault, Stage


def _client_before_broker(stage: Stage) -> None:
    port = stage.free_port()
    stage.clients.append("TCP connects of Python's socket module")
    with stage.recording(port):
        for _ in range(9):
            with socket.socket() as client:
                client.connect_ex(("127.0.0.1", port))


FAULTS = [
    Fault(
        "nobody-listens.pcap",
        "nine connects to a port where nothing listens: nothing says that it is a broker's",
        _client_before_broker,
        looks_like="broker-killed.pcap",
    ),
]
