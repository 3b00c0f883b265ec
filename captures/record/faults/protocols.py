"""Recordings of clients that speak something that their listener does not take, and of probes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import urllib.request

from ..broker import Listener
from . import Fault, Stage
from .clients import GREETING, go, java, rdkafka
from .faulty_certificates import make

OPEN = {"auto.create.topics.enable": "true"}
SLOW = {"reconnect_backoff_ms": "700", "reconnect_backoff_max_ms": "1000"}
PLAIN_ONLY = Listener(
    "SASL",
    "SASL_PLAINTEXT",
    properties={
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_alice="alice-secret";',
    },
)
ALICE = {"security_protocol": "sasl_plaintext", "sasl_username": "alice", "sasl_password": "alice-secret"}


def _tls_at_plaintext(stage: Stage) -> None:
    broker = stage.broker(properties=OPEN)
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 1, broker.bootstrap()))
        stage.run(rdkafka(stage, 3, broker.bootstrap(), security_protocol="ssl", **SLOW))
        stage.run(java(stage, 3, broker.bootstrap(), security_protocol="SSL", **SLOW))


def _plaintext_at_tls(stage: Stage) -> None:
    folder = make(stage.work / "certificates")
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "good.pem")}
    broker = stage.broker(listeners=[Listener("TLS", "SSL", properties=store)], properties=OPEN)
    with stage.recording(broker.port("TLS")):
        stage.run(rdkafka(stage, 3, broker.bootstrap("TLS"), **SLOW))
        stage.run(java(stage, 3, broker.bootstrap("TLS"), **SLOW))


def _http(stage: Stage) -> None:
    broker = stage.broker(properties=OPEN)
    stage.clients.append("GET of Python's urllib")
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 1, broker.bootstrap()))
        for _ in range(2):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{broker.bootstrap()}/metrics", timeout=3)


_SSH, _SMTP = b"SSH-2.0-OpenSSH_9.6\r\n", b"220 mail.example ESMTP\r\n"
_MYSQL = bytes.fromhex("4a0000000a") + b"8.0.36\0" + bytes(67)


def _greetings(stage: Stage) -> None:
    """Kafka's clients at services that speak first, and close at what they do not understand."""

    def serve(server: socket.socket, greeting: bytes) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, contextlib.suppress(ConnectionError):
                    client.sendall(greeting)
                    client.recv(1 << 16)

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [server.getsockname()[1] for server in servers]
        for server, greeting in zip(servers, (_SSH, _SMTP, _MYSQL), strict=True):
            threading.Thread(target=serve, args=(server, greeting), daemon=True).start()
        with stage.recording(*ports):
            addresses = [f"127.0.0.1:{port}" for port in ports]
            stage.run(rdkafka(stage, 2, addresses[0], **SLOW))
            stage.run(go(stage, "franz-go", 2, addresses[1]))
            stage.run(go(stage, "sarama", 2, addresses[2]))


def _plain_at_sasl(stage: Stage) -> None:
    broker = stage.broker(listeners=[PLAIN_ONLY], properties=OPEN)
    with stage.recording(broker.port("SASL")):
        stage.run(rdkafka(stage, 3, broker.bootstrap("SASL"), **SLOW))
        stage.run(rdkafka(stage, 1, broker.bootstrap("SASL"), sasl_mechanism="PLAIN", **ALICE))


def _old_client(stage: Stage) -> None:
    broker = stage.broker(properties=OPEN)
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 1, broker.bootstrap()))
        old = {"api_version_request": "false", "broker_version_fallback": "0.9.0"}
        stage.run(rdkafka(stage, 3, broker.bootstrap(), **old, **SLOW))


def _probes(stage: Stage) -> None:
    broker = stage.broker(properties=OPEN)
    stage.clients.append("TCP connects, and greetings without patience, of Python's socket module")
    with stage.recording(broker.port()):
        for _ in range(5):
            socket.create_connection(("127.0.0.1", broker.port()), timeout=5).close()
        for _ in range(2):
            killed = socket.create_connection(("127.0.0.1", broker.port()), timeout=5)
            killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            killed.sendall(GREETING[:10])
            time.sleep(0.2)
            killed.close()  # reset, as the kernel does for a process that ends with unread data
        stage.run(rdkafka(stage, 1, broker.bootstrap()))


def _wrong_mechanism(stage: Stage) -> None:
    broker = stage.broker(listeners=[PLAIN_ONLY], properties=OPEN)
    quick = {"reconnect_backoff_ms": "100", "reconnect_backoff_max_ms": "150"}
    with stage.recording(broker.port("SASL")):
        stage.run(rdkafka(stage, 14, broker.bootstrap("SASL"), sasl_mechanism="SCRAM-SHA-256", **ALICE, **quick))


def _short_lived(stage: Stage) -> None:
    broker = stage.broker(listeners=[PLAIN_ONLY], properties=OPEN)
    stage.run(rdkafka(stage, 1, broker.bootstrap("SASL"), sasl_mechanism="PLAIN", **ALICE))
    with stage.recording(broker.port("SASL")):
        for _ in range(12):
            stage.run(rdkafka(stage, 0.1, broker.bootstrap("SASL"), sasl_mechanism="PLAIN", **ALICE))


FAULTS = [
    Fault(
        "tls-at-plaintext.pcap",
        "librdkafka and the Java client with TLS at a listener without, which serves another client",
        _tls_at_plaintext,
    ),
    Fault(
        "plaintext-at-tls.pcap", "librdkafka and the Java client without TLS at a listener with TLS", _plaintext_at_tls
    ),
    Fault("http-at-kafka.pcap", "GET /metrics at a listener of Kafka", _http),
    Fault(
        "services-greet-first.pcap",
        "librdkafka, franz-go and sarama at services that speak first, as SSH, SMTP and MySQL do",
        _greetings,
    ),
    Fault("plaintext-at-sasl.pcap", "a client without SASL at a listener that wants it, then one with", _plain_at_sasl),
    Fault(
        "old-client.pcap",
        "librdkafka set to speak as with 0.9 (Produce v1) at a broker of 4.4, which takes v3 and newer; others work",
        _old_client,
    ),
    Fault(
        "probes.pcap",
        "health checks that connect and close, clients that end within their greeting, and one that works",
        _probes,
        looks_like="plaintext-at-tls.pcap",
    ),
    Fault(
        "sasl-wrong-mechanism.pcap",
        "a client that asks for SCRAM-SHA-256, again and again, at a listener that takes PLAIN alone",
        _wrong_mechanism,
    ),
    Fault(
        "producers-short-lived.pcap",
        "a program that makes a producer for each record: every connection logs in, sends and ends",
        _short_lived,
        looks_like="sasl-wrong-mechanism.pcap",
    ),
]
