"""Recordings of how connections end: with answers unread, with requests on their way, long before the client writes.

The client is a socket that is given whole requests: no client library can be made to write at a certain moment.
"""

from __future__ import annotations

import socket
import struct
import threading
import time

from ..broker import Listener
from ..distance import DELAY_S, DEVICE, FAR, NEAR, delayed_network, keep_side
from ..sniffer import SniffOptions
from . import Fault, Stage

IDLE_MS = 1_000
"""connections.max.idle.ms of the broker that closes what is silent."""

_CLIENT_ID = b"\x00\x06writer"


def _request(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    message = struct.pack(">hhi", key, version, correlation_id) + _CLIENT_ID + body
    return struct.pack(">i", len(message)) + message


def _api_versions(correlation_id: int) -> bytes:
    return _request(18, 0, correlation_id, b"")


def _list_groups(correlation_id: int) -> bytes:
    return _request(16, 0, correlation_id, b"")


def _answer(client: socket.socket) -> bytes:
    """One response without its length."""
    size = struct.unpack(">i", _exactly(client, 4))[0]
    return _exactly(client, size)


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data


def _greeted(port: int, host: str = "127.0.0.1") -> socket.socket:
    client = socket.create_connection((host, port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(_api_versions(1))
    _answer(client)
    return client


def _closed_with_answers_unread(stage: Stage) -> None:
    broker = stage.broker()
    stage.clients.append("a socket of Python that is given whole requests")
    with stage.recording(broker.port()):
        for _ in range(3):
            client = _greeted(broker.port())
            for correlation_id in range(2, 5):
                client.sendall(_list_groups(correlation_id))
            time.sleep(0.3)
            client.close()  # with bytes unread, Linux sends a RST instead of a FIN
            time.sleep(0.1)


def _closed_with_answers_on_their_way(stage: Stage) -> None:
    with delayed_network():
        broker = stage.broker(listeners=[Listener(host=NEAR)])
        stage.clients.append("a socket of Python that is given whole requests")
        with stage.recording(broker.port()):
            for _ in range(3):
                client = _greeted(broker.port(), FAR)
                for correlation_id in range(2, 8):
                    client.sendall(_list_groups(correlation_id))
                time.sleep(1.2 * DELAY_S)
                client.close()  # the answers are on their way, and do not know of the FIN
                time.sleep(0.3)
        keep_side(stage.capture, broker.port(), of_client=True)


def _killed_with_requests_on_their_way(stage: Stage) -> None:
    with delayed_network():
        broker = stage.broker(listeners=[Listener(host=NEAR)])
        stage.clients.append("a socket of Python that is given whole requests")
        with stage.recording(broker.port()):
            client = _greeted(broker.port(), FAR)
            killer = threading.Timer(0.1, broker.kill)
            killer.start()
            try:
                for correlation_id in range(2, 100):
                    client.sendall(_list_groups(correlation_id))
                    time.sleep(0.004)
            except OSError:
                pass  # the RST is there
            killer.join()
            client.close()
            time.sleep(0.2)
        keep_side(stage.capture, broker.port(), of_client=False)


def _written_after_the_idle_timeout(stage: Stage) -> None:
    broker = stage.broker(properties={"connections.max.idle.ms": str(IDLE_MS)})
    stage.clients.append("a socket of Python that is given whole requests")
    with stage.recording(broker.port()):
        client = _greeted(broker.port())
        client.sendall(_list_groups(2))
        _answer(client)
        time.sleep(3.5 * IDLE_MS / 1000)
        client.sendall(_list_groups(3))
        time.sleep(0.3)
        client.close()


def _closed_by_the_broker_before_it_answered(stage: Stage) -> None:
    broker = stage.broker()
    stage.clients.append("a socket of Python that is given whole requests")
    with stage.recording(broker.port()):
        client = _greeted(broker.port())
        client.sendall(_list_groups(2))
        _answer(client)
        client.sendall(_request(16, 99, 3, b""))  # a version that no broker knows: it closes the connection
        time.sleep(0.5)
        client.close()


FAULTS = [
    Fault(
        "close-answers-unread.pcap",
        "three clients close their connections with answers unread: a RST each",
        _closed_with_answers_unread,
    ),
    Fault(
        "close-answers-on-their-way.pcap",
        "three clients close their connections while answers come in: a FIN, then a RST for each answer",
        _closed_with_answers_on_their_way,
        sniff=SniffOptions(interface=DEVICE),
    ),
    Fault(
        "broker-killed-requests-on-their-way.pcap",
        "a broker is killed while requests are on their way to it, captured at the broker",
        _killed_with_requests_on_their_way,
        sniff=SniffOptions(interface=DEVICE),
    ),
    Fault(
        "idle-then-written.pcap",
        "the broker closes a silent connection (connections.max.idle.ms); later the client writes a request to it",
        _written_after_the_idle_timeout,
    ),
    Fault(
        "request-closes-connection.pcap",
        "the broker closes the connection because of a request that it does not know",
        _closed_by_the_broker_before_it_answered,
        looks_like="idle-then-written.pcap",
    ),
]
