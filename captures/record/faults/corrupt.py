"""Recordings of damaged record batches, and of an address that leads to another cluster."""

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
    """Leads connections of one port to another: a name that resolves to another machine, or a load balancer."""

    def __init__(self, port: int, to: int) -> None:
        self.to = to
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
            for one, other in ((client, broker), (broker, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other direction has ended
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):  # it is closed
                end.shutdown(socket.SHUT_RDWR)


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
        "batch-damaged.pcap",
        "a client whose batches have a wrong checksum: refused again and again (CORRUPT_MESSAGE)",
        _damaged_on_the_way,
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
