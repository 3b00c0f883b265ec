from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.errors import MissingPartError
from kafkasniff.packets import PacketBatch
from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.samples import mixed

PYTHON = [sys.executable, "-m", "kafkasniff"]


class Wire:
    """A live source that yields crafted packets and then waits, as an interface does, until it is stopped."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.stopped = threading.Event()
        self.closed = False

    def open(self, interface: str, *, bpf: str | None = None, on_ready: Callable[[], None] | None = None) -> Wire:
        self.asked = {"interface": interface, "bpf": bpf}
        if on_ready is not None:
            on_ready()
        return self

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[PacketBatch]:
        packets = mixed()
        yield batch(packets[:50])
        yield batch(packets[50:], range(50, len(packets)))
        assert self.stopped.wait(30), "nobody stopped the capture"

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    source = Wire()
    monkeypatch.setattr("kafkasniff.capture.live.open_live", source.open)
    return source


def test_duration_ends_it(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.05", "tcp", "port", "9092")
    assert result.code == 0
    assert wire.asked == {"interface": "eth0", "bpf": "tcp port 9092"}
    assert wire.closed
    assert sum(item["type"] in {"request", "response"} for item in result.objects) == 46
    assert result.err.startswith("kafkasniff: listening on eth0")
    assert "46 messages" in result.err


def test_count_ends_it_without_waiting(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "-q", "--format", "json", "-c", 5)
    assert (result.code, len(result.objects), result.err) == (0, 5, "")
    assert wire.closed
    assert not wire.stopped.is_set()


def test_filters_work_as_in_decode(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--errors", "--duration", "50ms")
    assert [item["type"] for item in result.objects if item["type"] != "problem"] == ["request", "response"]
    assert "2 shown" in result.err


def test_text_is_the_default(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--duration", "50ms")
    assert "Produce v9" in result.text


def test_missing_privileges_are_code_5(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MissingPartError("capturing needs CAP_NET_RAW")

    monkeypatch.setattr("kafkasniff.capture.live.open_live", refuse)
    result = kafkasniff("live", "-i", "eth0")
    assert result.code == Exit.UNAVAILABLE
    assert result.err == "kafkasniff: capturing needs CAP_NET_RAW\n"


def test_an_interface_that_is_not_there_is_code_3() -> None:
    result = kafkasniff("live", "-i", "nonesuch0")
    assert result.code in {Exit.CAPTURE, Exit.UNAVAILABLE}
    assert result.err.count("\n") == 1


@contextmanager
def conversation() -> Iterator[int]:
    """A broker on loopback that answers what it is sent; gives its port. The client speaks when the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
            batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
            client.sendall(kafka.produce_request(5, "orders", batch, version=9))
            broker.recv(4096)
            broker.sendall(kafka.produce_response(5, "orders", 7, version=9))
            client.recv(4096)


@pytest.mark.root
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_real_interface_until_it_is_stopped(signum: int, require_root: Callable[[], None], tmp_path: Path) -> None:
    require_root()
    with conversation() as port:
        process = subprocess.Popen(
            [*PYTHON, "live", "-i", "lo", "--format", "json", "--host", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        assert b"listening on lo" in process.stderr.readline()
    try:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        started = time.monotonic()
        process.send_signal(signum)
        assert process.wait(timeout=30) == 0
        assert time.monotonic() - started < 10
        said = process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    assert [(line["type"], line["api"], line["api_version"], line["broker"]) for line in lines] == [
        ("request", "Produce", 9, f"127.0.0.1:{port}"),
        ("response", "Produce", 9, f"127.0.0.1:{port}"),
    ]
    assert "Traceback" not in said
