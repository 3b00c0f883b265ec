"""Recordings of replicas that do not catch up, of a rolling restart, and of ports that lead to the wrong broker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from ..broker import RealBroker
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .network import QUICK_SESSIONS
from .positions import groups
from .waits import java_waits

_OPEN = SniffOptions(until_quiet=False)
LIMIT = "100"
"""Bytes a second that replicas may fetch, far less than is written."""


_PROPERTIES = {
    **QUICK_SESSIONS,
    "offsets.topic.replication.factor": "3",
    "replica.fetch.max.bytes": "4096",
    "replica.fetch.response.max.bytes": "4096",
}


def _three(stage: Stage) -> list[RealBroker]:
    first = stage.broker(properties=_PROPERTIES)
    return [first, *(stage.broker(properties=_PROPERTIES, controller=first) for _ in range(2))]


def _moved(limited: bool) -> Callable[[Stage], None]:
    """A partition gets a second replica on another broker, while its clients ask for metadata now and then."""

    def play(stage: Stage) -> None:
        brokers = _three(stage)
        bootstrap = brokers[0].bootstrap()
        stage.run(java_waits("topic", bootstrap, "orders", "2"))
        stage.run(rdkafka(stage, 4, bootstrap, size="2000", every=".02"))
        if limited:
            stage.run(java_waits("limit", bootstrap, "orders", LIMIT))
        settings = {"client_id": "writer", "every": ".5", "topic_metadata_refresh_interval_ms": "4000"}
        settings |= {"topic_metadata_refresh_sparse": "true"}
        with stage.recording(*(broker.port() for broker in brokers)):
            writer = stage.start(rdkafka(stage, 46, bootstrap, **settings))
            time.sleep(2)
            stage.run(java_waits("replicas", bootstrap, "orders", "2,3"))
            writer.wait()

    return play


def _restarts(stage: Stage) -> None:
    """All brokers but the controller restart, one after the other, with a controlled shutdown."""
    brokers = _three(stage)
    bootstrap = brokers[0].bootstrap()
    stage.run(java_waits("topic", bootstrap, "orders", "2,3"))
    with stage.recording(*(broker.port() for broker in brokers)):
        settings = {"client_id": "writer", "topic_metadata_refresh_interval_ms": "2000"}
        stage.start(rdkafka(stage, 120, bootstrap, every="1", **settings))
        stage.start(groups("once", brokers[0], 120, "client.id=reader", "fetch.wait.max.ms=2000"))
        time.sleep(3)
        for broker in brokers[1:]:
            broker.stop()
            broker.start()
            time.sleep(5)


class _Forwarder:
    """A port that leads to another one, as a load balancer or a NAT does."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])

    def lead_to(self, target: int) -> None:
        threading.Thread(target=self._serve, args=(target,), daemon=True).start()

    def _serve(self, target: int) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
                broker = socket.create_connection(("127.0.0.1", target))
            except OSError:
                return
            for ends in ((client, broker), (broker, client)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()

    def close(self) -> None:
        self._socket.close()


def _forwarded(swapped: bool) -> Callable[[Stage], None]:
    """Two brokers advertise ports that are forwarded, each to its broker or to the other one."""

    def play(stage: Stage) -> None:
        first = stage.broker(properties=QUICK_SESSIONS)
        others = [stage.broker(start=False, properties=QUICK_SESSIONS, controller=first) for _ in range(2)]
        ports = [broker.port() for broker in others]
        with contextlib.ExitStack() as stack:
            forwarders = [stack.enter_context(contextlib.closing(_Forwarder())) for _ in others]
            for broker, forwarder, port in zip(others, forwarders, ports[::-1] if swapped else ports, strict=True):
                forwarder.lead_to(port)
                broker.advertised_ports["CLIENT"] = forwarder.port
                broker.start()
            for topic, place in (("orders", "2"), ("payments", "3")):
                stage.run(java_waits("topic", f"127.0.0.1:{first.port('INTERNAL')}", topic, place))
            bootstrap = f"127.0.0.1:{forwarders[0].port}"
            with stage.recording(*(forwarder.port for forwarder in forwarders)):
                for topic in ("orders", "payments"):
                    stage.start(rdkafka(stage, 30, bootstrap, topic, client_id=f"writer-of-{topic}", every="1"))
                stage.start(java(stage, 30, bootstrap, client_id="java-writer"))
                time.sleep(12)

    return play


FAULTS = [
    Fault(
        "replica-limited.pcap",
        "a partition gets a second replica, which never catches up: the rate of its fetches is limited (throttle)",
        _moved(limited=True),
        sniff=_OPEN,
    ),
    Fault(
        "replica-added.pcap",
        "the same without the limit: the replica is in sync after a moment",
        _moved(limited=False),
        looks_like="replica-limited.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "brokers-restarted-in-turns.pcap",
        "a rolling restart: two of three brokers, one after the other, each with a controlled shutdown",
        _restarts,
        looks_like="broker-restarted.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "ports-swapped.pcap",
        "the advertised ports of two brokers are forwarded, each to the other broker",
        _forwarded(swapped=True),
        sniff=_OPEN,
    ),
    Fault(
        "ports-forwarded.pcap",
        "the same, and each port leads to its own broker",
        _forwarded(swapped=False),
        looks_like="ports-swapped.pcap",
        sniff=_OPEN,
    ),
]
