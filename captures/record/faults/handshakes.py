"""Recordings of TLS handshakes that fail or take long, without keys, of proxies, and of what only looks like these."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Self

from ..broker import Listener, RealBroker
from . import Fault, Stage
from .clients import java, rdkafka
from .faulty_certificates import make
from .waits import java_waits

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


class Balancer:
    """A TCP proxy on loopback: connections go to ports in turn, and what a broker says first waits for a while.

    ``drop`` ends all connections and continues.
    """

    def __init__(self, delay_s: float) -> None:
        self.ports: Sequence[int] = ()
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def drop(self) -> None:
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _serve(self) -> None:
        places = cycle(range(2))
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            place = next(places) % len(self.ports)
            server = socket.create_connection(("127.0.0.1", self.ports[place]))
            self._open += client, server
            for source, sink, delay_s in ((client, server, 0.0), (server, client, self._delay_s)):
                threading.Thread(target=_pass_on, args=(source, sink, delay_s), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _pass_on(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    """Copy one direction until either side ends."""
    try:
        while data := source.recv(65536):
            time.sleep(delay_s)
            delay_s = 0
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()


def _balanced(*certificates: str, delay_s: float = 0) -> Callable[[Stage], None]:
    """Three programs that reach brokers, each with one of these certificates, at the address of a proxy."""

    def play(stage: Stage) -> None:
        folder = make(stage.work / "certificates")
        with Balancer(delay_s) as balancer:
            ports: list[int] = []
            for certificate in certificates:
                properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / f"{certificate}.pem")}
                broker = stage.broker(start=False, listeners=(Listener(NEW, "SSL", properties=properties),))
                broker.advertised_ports[NEW] = balancer.port
                broker.start()
                ports.append(broker.port(NEW))
                stage.run(java_waits("topic", f"127.0.0.1:{broker.port('INTERNAL')}", "orders", str(broker.node_id)))
            balancer.ports = ports
            with stage.recording(balancer.port):
                for number in range(3):
                    settings = {"security_protocol": "ssl", "ssl_ca_location": str(folder / "ca.pem"), "every": "1"}
                    settings |= {"client_id": f"app-{number}", "linger_ms": "0", **ATTEMPTS}
                    stage.start(rdkafka(stage, 9, f"localhost:{balancer.port}", **settings))
                time.sleep(10)

    return play


def _dropped(times: int) -> Callable[[Stage], None]:
    """A proxy drops all connections of three programs at once, this many times."""

    def play(stage: Stage) -> None:
        broker = stage.broker(start=False, properties=OPEN)
        with Balancer(0) as balancer:
            broker.advertised_ports["CLIENT"] = balancer.port
            broker.start()
            balancer.ports = [broker.port()]
            with stage.recording(balancer.port):
                for number in range(3):
                    settings = {"client_id": f"app-{number}", "linger_ms": "0", "reconnect_backoff_ms": "200"}
                    stage.start(rdkafka(stage, 10, f"127.0.0.1:{balancer.port}", every=".3", **settings))
                time.sleep(3)
                for _ in range(times):
                    balancer.drop()
                    time.sleep(2)

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
        "tls-slow.pcap",
        "clients whose TLS handshakes take 1.5 s each: a proxy holds back what the broker says first",
        _balanced("good", delay_s=1.5),
    ),
    Fault(
        "tls-quick.pcap",
        "the same with 50 ms",
        _balanced("good", delay_s=0.05),
        looks_like="tls-slow.pcap",
    ),
    Fault(
        "tls-one-of-two.pcap",
        "a proxy that passes connections to two brokers in turn; the certificate of one of them expired on 2025-06-01",
        _balanced("good", "expired"),
    ),
    Fault(
        "connections-dropped.pcap",
        "a proxy in front of a broker drops all connections of three producers at once, every two seconds",
        _dropped(4),
    ),
    Fault(
        "connections-dropped-once.pcap",
        "the same, once",
        _dropped(1),
        looks_like="connections-dropped.pcap",
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
