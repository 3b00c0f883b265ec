"""Recordings of TLS handshakes that fail, without keys, and of some that only look like these."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from ..broker import Listener, RealBroker
from . import Fault, Stage
from .clients import java, rdkafka
from .faulty_certificates import make

OLD, NEW = "OLD", "NEW"
"""Listeners with TLS 1.2 and 1.3."""
ATTEMPTS = {"reconnect_backoff_ms": "1000", "reconnect_backoff_max_ms": "2000"}
OPEN = {"auto.create.topics.enable": "true"}


def _broker(stage: Stage, certificate: str, *, mutual: bool = False) -> tuple[RealBroker, Path]:
    """A broker with a certificate, and the folder of all of them."""
    folder = make(stage.work / "certificates")
    listeners = []
    for name, version in ((OLD, "TLSv1.2"), (NEW, "TLSv1.3")):
        properties = {
            "ssl.enabled.protocols": version,
            "ssl.protocol": version,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / f"{certificate}.pem"),
        }
        if mutual:
            trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}
            properties |= {"ssl.client.auth": "required", **trusted}
        listeners.append(Listener(name, "SSL", properties=properties))
    return stage.broker(listeners=listeners, properties=OPEN), folder


def _ports(broker: RealBroker) -> tuple[int, int]:
    return broker.port(OLD), broker.port(NEW)


def _both(stage: Stage, broker: RealBroker, authority: Path, seconds: float = 3) -> None:
    """librdkafka and the Java client at both listeners, one after the other."""
    for name in (OLD, NEW):
        local = broker.bootstrap(name).replace("127.0.0.1", "localhost")
        trust = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(authority)}
        stage.run(rdkafka(stage, seconds, local, security_protocol="ssl", ssl_ca_location=str(authority), **ATTEMPTS))
        stage.run(java(stage, seconds + 3, local, security_protocol="SSL", **trust, **ATTEMPTS))


def _failing(certificate: str, authority: str, *, mutual: bool = False) -> Fault:
    def play(stage: Stage) -> None:
        broker, folder = _broker(stage, certificate, mutual=mutual)
        with stage.recording(*_ports(broker)):
            _both(stage, broker, folder / f"{authority}.pem")

    file, shows = _FAILING[certificate, authority, mutual]
    both = "librdkafka and the Java client, TLS 1.2 and 1.3"
    return Fault(file, f"{shows}: {both}", play)


_FAILING = {
    ("good", "other-ca", False): (
        "tls-untrusted.pcap",
        "clients that do not trust the authority of the broker's certificate",
    ),
    ("expired", "ca", False): ("tls-expired.pcap", "a broker's certificate that expired on 2025-06-01"),
    ("elsewhere", "ca", False): (
        "tls-other-name.pcap",
        "a broker's certificate for kafka.example, and clients that come to localhost",
    ),
    ("good", "ca", True): ("tls-no-client-certificate.pcap", "a broker that wants certificates, clients without one"),
}


def _client_certificate(name: str) -> Callable[[Stage], None]:
    """librdkafka and the Java client with a certificate of their own, at a broker that wants one."""

    def play(stage: Stage) -> None:
        broker, folder = _broker(stage, "good", mutual=True)
        own, authority = str(folder / f"{name}.pem"), str(folder / "ca.pem")
        local = broker.bootstrap(NEW).replace("127.0.0.1", "localhost")
        trust = {"ssl_truststore_type": "PEM", "ssl_truststore_location": authority}
        keys = {"ssl_keystore_type": "PEM", "ssl_keystore_location": own}
        pem = {"ssl_ca_location": authority, "ssl_certificate_location": own, "ssl_key_location": own}
        with stage.recording(broker.port(NEW)):
            stage.run(rdkafka(stage, 3, local, security_protocol="ssl", **pem, **ATTEMPTS))
            stage.run(java(stage, 6, local, security_protocol="SSL", **trust, **keys, **ATTEMPTS))

    return play


def _fine(stage: Stage) -> None:
    broker, folder = _broker(stage, "good")
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    stage.clients.append("TCP connects and whole TLS handshakes of Python's ssl module")
    with stage.recording(*_ports(broker)):
        for port in _ports(broker):
            for _ in range(4):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                with socket.create_connection(("127.0.0.1", port), timeout=5) as bare:
                    context.wrap_socket(bare, server_hostname="localhost").close()
        _both(stage, broker, folder / "ca.pem", seconds=1)


def _killed_in_the_handshake(stage: Stage) -> None:
    broker, folder = _broker(stage, "good")
    stage.clients.append("ClientHellos of Python's ssl module, whose process ends")
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with stage.recording(*_ports(broker)):
        for port in _ports(broker):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as bare:
                bare.sendall(_hello(context))
                time.sleep(0.5)
        _both(stage, broker, folder / "ca.pem", seconds=1)


def _hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    side = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody answered")


FAULTS = [
    *(_failing(certificate, authority, mutual=mutual) for certificate, authority, mutual in _FAILING),
    Fault(
        "tls-client-certificate-expired.pcap",
        "a broker that wants certificates, clients whose certificate expired on 2025-06-01: TLS 1.3",
        _client_certificate("expired"),
    ),
    Fault(
        "tls-client-certificate.pcap",
        "the same with a valid certificate",
        _client_certificate("good"),
        looks_like="tls-client-certificate-expired.pcap",
    ),
    Fault(
        "tls-works.pcap",
        "TLS 1.2 and 1.3 that work, between health checks that connect, or shake hands, and close",
        _fine,
        looks_like="tls-untrusted.pcap",
    ),
    Fault(
        "tls-client-killed.pcap",
        "a program that ends while it waits for the rest of the handshake, once at each listener; others work",
        _killed_in_the_handshake,
        looks_like="tls-untrusted.pcap",
    ),
]
