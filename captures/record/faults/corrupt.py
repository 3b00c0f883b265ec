"""Recordings of damaged record batches, and of load balancers: to another cluster, with limits."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path

from ..broker import RealBroker
from ..programs import QUICK_GROUPS
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .mistakes import members
from .waits import java_waits, librdkafka

_OPEN = SniffOptions(until_quiet=False)
_OTHER_CLUSTER = "b3RoZXJjbHVzdGVybmV3ZQ"


def _batch(crc: int) -> bytes:
    """A record batch (magic 2) of one record."""
    record = b"\0\0\0\x01\x0emade up\0"
    record = bytes([2 * len(record)]) + record
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc) + checked


def _damaged_on_the_way(stage: Stage) -> None:
    """A client whose batches have a wrong checksum; another one works."""
    broker = stage.broker()
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    stage.clients.append("a socket of Python that is given whole requests")
    batch = _batch(1)
    body = struct.pack(">hhi", -1, 1, 1000) + struct.pack(">i", 1) + b"\0\6orders" + struct.pack(">ii", 1, 0)
    body += struct.pack(">i", len(batch)) + batch
    with stage.recording(broker.port()):
        writer = stage.start(rdkafka(stage, 3, broker.bootstrap(), linger_ms="0"))
        with socket.create_connection(("127.0.0.1", broker.port()), timeout=5) as client:
            for number in range(4):
                message = struct.pack(">hhi", 0, 3, number) + b"\0\6damage" + body
                client.sendall(struct.pack(">i", len(message)) + message)
                size = int.from_bytes(client.recv(4, socket.MSG_WAITALL))
                client.recv(size, socket.MSG_WAITALL)
                time.sleep(0.3)
        writer.wait()


def _malformed(stage: Stage, tags: bytes) -> None:
    """A client whose Metadata requests (version 9) end in these tagged fields (KIP-482); another one works."""
    broker = stage.broker()
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    stage.clients.append("a socket of Python that is given whole requests")
    with stage.recording(broker.port()):
        writer = stage.start(rdkafka(stage, 3, broker.bootstrap(), linger_ms="0"))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", broker.port()), timeout=5) as client:
                for number in range(2):
                    message = struct.pack(">hhi", 3, 9, number) + b"\0\6editor\0" + b"\2\7orders\0\0\0\0"
                    message += tags if number else b"\0"
                    client.sendall(struct.pack(">i", len(message)) + message)
                    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL))
                    client.recv(size, socket.MSG_WAITALL)
            time.sleep(0.3)
        writer.wait()


def _damaged_on_disk(stage: Stage) -> None:
    """A byte of a stored batch changes; a consumer comes to it, and is started again."""
    broker = stage.broker(properties=QUICK_GROUPS)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    for _ in range(3):
        stage.run(librdkafka("produce", broker.bootstrap(), "orders", "10", "10", "linger.ms=50"))
    broker.stop()
    log = Path(broker.data_directory, "orders-0", "00000000000000000000.log")
    data = bytearray(log.read_bytes())
    data[2 * len(data) // 3 - 30] ^= 0x55
    log.write_bytes(data)
    broker.start()
    stage.clients.append("Apache Kafka's Java client")
    with stage.recording(broker.port()):
        for _ in range(2):
            stage.run(members("reads", broker, 4, 0, "client.id=reader"), fails=True)


class _Switch:
    """Leads connections of one port to another: a name that resolves to another machine, or a load balancer.

    `age`: seconds after which it ends a connection; `idle`: the same for a connection without data.
    """

    def __init__(self, port: int, to: int, *, age: float | None = None, idle: float | None = None) -> None:
        self.to = to
        self._age = age
        self._idle = idle
        self._server = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End what is open."""
        for one in self._open:
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            try:
                broker = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                client.close()
                continue
            self._open += [client, broker]
            if self._age is not None:
                timer = threading.Timer(self._age, _end, (client, broker))
                timer.daemon = True
                timer.start()
            for one, other in ((client, broker), (broker, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        one.settimeout(self._idle)
        with contextlib.suppress(OSError):  # the other direction has ended, or it was idle
            while data := one.recv(65_536):
                other.sendall(data)
        _end(one, other)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):  # it is closed
            end.shutdown(socket.SHUT_RDWR)


def _limited(stage: Stage, every: str, **limits: float) -> None:
    """A load balancer with a limit, and two producers: of a record each 200 ms, and each `every` seconds."""
    broker = stage.broker(start=False)
    broker.choose_ports()
    port = stage.free_port()
    broker.advertised_ports["CLIENT"] = port
    broker.start()
    stage.run(java_waits("topic", f"127.0.0.1:{broker.port('INTERNAL')}", "orders", "1"))
    switch = _Switch(port, broker.port(), **limits)
    quick = {"reconnect_backoff_ms": "50", "linger_ms": "0"}
    with stage.recording(port):
        java_client = stage.start(java(stage, 12, f"127.0.0.1:{port}", client_id="java-shop", **quick))
        stage.run(rdkafka(stage, 12, f"127.0.0.1:{port}", client_id="shop", every=every, **quick))
        java_client.wait()
    switch.close()


def _other_cluster(stage: Stage, *, other: bool) -> None:
    """The address of a cluster leads to another one after some seconds."""
    port = stage.free_port()
    brokers: list[RealBroker] = []
    for options in ({}, {"cluster_id": _OTHER_CLUSTER}):
        broker = stage.broker(start=False, node_id=1, **options)
        broker.choose_ports()
        broker.advertised_ports["CLIENT"] = port
        broker.start()
        inside = f"127.0.0.1:{broker.port('INTERNAL')}"
        stage.run(java_waits("topic", inside, "orders", "1"))
        brokers.append(broker)
    switch = _Switch(port, brokers[0].port())
    bootstrap = f"127.0.0.1:{port}"
    with stage.recording(port):
        stage.start(rdkafka(stage, 30, bootstrap, client_id="shop", linger_ms="0"))
        stage.start(java(stage, 30, bootstrap, client_id="java-shop", linger_ms="0"))
        time.sleep(5)
        if other:
            switch.to = brokers[1].port()
        switch.close()
        time.sleep(6)


FAULTS = [
    Fault(
        "connections-cut.pcap",
        "a load balancer in front of a broker ends each connection after two seconds",
        lambda stage: _limited(stage, ".2", age=2.0),
    ),
    Fault(
        "connections-cut-when-idle.pcap",
        "the same, but it ends connections that are silent for two seconds",
        lambda stage: _limited(stage, "3", idle=2.0),
        looks_like="connections-cut.pcap",
    ),
    Fault(
        "batch-damaged.pcap",
        "a client whose batches have a wrong checksum: refused again and again (CORRUPT_MESSAGE)",
        _damaged_on_the_way,
    ),
    Fault(
        "request-malformed.pcap",
        "a client whose second request on each connection announces more tagged fields than it has: the broker closes "
        "the connection",
        lambda stage: _malformed(stage, b"\2\0\2ab"),
    ),
    Fault(
        "request-with-unknown-tag.pcap",
        "the same with a tagged field that Kafka does not know: skipped",
        lambda stage: _malformed(stage, b"\1\x63\2ab"),
        looks_like="request-malformed.pcap",
    ),
    Fault(
        "batch-damaged-on-disk.pcap",
        "a byte of a stored batch has changed; a consumer comes to it, and is started again",
        _damaged_on_disk,
    ),
    Fault(
        "other-cluster.pcap",
        "the address of a cluster leads to another one after some seconds (DNS, load balancer)",
        lambda stage: _other_cluster(stage, other=True),
        sniff=_OPEN,
    ),
    Fault(
        "same-cluster.pcap",
        "the same, but all connections end and lead to the same cluster again",
        lambda stage: _other_cluster(stage, other=False),
        looks_like="other-cluster.pcap",
        sniff=_OPEN,
    ),
]
