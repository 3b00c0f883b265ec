"""Recordings of which a part cannot be decoded: one direction, TLS without keys, another protocol, a cut file.

Those of one direction are the packets of shipped captures, selected by tcpdump as a mirror port (SPAN) selects them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ..distribution import SetupError, python_with
from ..programs import CONFLUENT
from . import Fault, Stage
from .clients import java, rdkafka

CAPTURES = Path(__file__).resolve().parents[2]

PRODUCE = """
import sys, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1], "client.id": "orders", **eval(sys.argv[2])})
for number in range(int(sys.argv[3])):
    producer.produce("orders", f"order {number}".encode())
    producer.poll(0.1)
producer.flush(float(sys.argv[4]))
"""
"""Arguments: bootstrap servers, settings, records, seconds to wait for their delivery."""
STOPPED_S = 34.0
"""How long a broker stands still: longer than clients wait by default (request.timeout.ms, 30 s)."""


def _origin(stage: Stage, source: str) -> tuple[Path, int]:
    """A shipped capture and the port of its broker; its clients go into the note on the origin."""
    folder, _, name = source.rpartition("/")
    entries = json.loads((CAPTURES / folder / "manifest.json").read_text())["captures"]
    entry = next(one for one in entries if one["file"] == name)
    stage.clients.append(f"{entry['client']}, as recorded in captures/{source}")
    return CAPTURES / source, int(entry["broker_ports"][0])


def _filtered(source: str, expression: str) -> Callable[[Stage], None]:
    """The packets of a shipped capture for which an expression of tcpdump holds; ``PORT`` is the broker's."""

    def play(stage: Stage) -> None:
        path, port = _origin(stage, source)
        _run("tcpdump", "-n", "-r", str(path), "-w", str(stage.capture), expression.replace("PORT", str(port)))

    return play


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{command[0]}: {done.stderr[-1000:]}")


def _lost_midway(stage: Stage) -> None:
    """Both directions, until some packet; then the client's alone."""
    path, port = _origin(stage, "librdkafka-group-classic.pcap")
    _run(
        "tshark",
        "-n",
        "-F",
        "pcap",
        "-r",
        str(path),
        "-w",
        str(stage.capture),
        "-Y",
        f"frame.number < 150 || tcp.dstport == {port}",
    )


def _cut(stage: Stage) -> None:
    """A file that was copied while it was written."""
    path, _ = _origin(stage, "librdkafka-codecs.pcap")
    data = path.read_bytes()
    stage.capture.write_bytes(data[: len(data) // 3])


def _serve(stage: Stage, port: int) -> None:
    folder = stage.work / "served"
    folder.mkdir()
    (folder / "index.html").write_text("<p>ok</p>" * 200)
    stage.start([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), str(port)])
    stage.clients.append("http.server and urllib of Python")


def _fetch_pages(port: int, count: int) -> None:
    for _ in range(count):
        for attempt in range(50):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                break
            except OSError:
                if attempt == 49:
                    raise
                time.sleep(0.1)


def _kafka_at_http(stage: Stage) -> None:
    port = stage.free_port()
    _serve(stage, port)
    _fetch_pages(port, 1)
    with stage.recording(port):
        for client in (rdkafka, java):
            stage.run(client(stage, 4, f"127.0.0.1:{port}"))


def _http(stage: Stage) -> None:
    port = stage.free_port()
    _serve(stage, port)
    _fetch_pages(port, 1)
    with stage.recording(port):
        _fetch_pages(port, 6)


def _http_beside_kafka(stage: Stage) -> None:
    port = stage.free_port()
    _serve(stage, port)
    _fetch_pages(port, 1)
    broker = stage.broker(java_options=["-Xmx256m"], properties={"auto.create.topics.enable": "true"})
    stage.clients.append(CONFLUENT[0])
    produce = [python_with(*CONFLUENT), "-c", PRODUCE, broker.bootstrap(), "{}", "5", "20"]
    stage.run(produce)
    with stage.recording(port, broker.port()):
        _fetch_pages(port, 6)
        stage.run(produce)


def _stopped(stage: Stage) -> None:
    """SIGSTOP: the kernel still acknowledges what the client sends, and the broker does not answer."""
    broker = stage.broker(java_options=["-Xmx256m"], properties={"auto.create.topics.enable": "true"})
    stage.clients.append(CONFLUENT[0])
    client = python_with(*CONFLUENT)
    stage.run([client, "-c", PRODUCE, broker.bootstrap(), "{}", "5", "20"])
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with stage.recording(*broker.ports.values()):
            settings = "{'socket.timeout.ms': 33000, 'api.version.request.timeout.ms': 33000}"
            stage.run([client, "-c", PRODUCE, broker.bootstrap(), settings, "2", str(STOPPED_S)])
    finally:
        os.kill(broker.pid, signal.SIGCONT)


FAULTS = [
    Fault(
        "requests-only.pcap",
        "what clients sent to a broker, without anything that came back: a mirror port that carries one direction",
        _filtered("librdkafka-group-classic.pcap", "dst port PORT"),
    ),
    Fault(
        "responses-only.pcap",
        "what a broker sent, without the requests: a mirror port that carries one direction",
        _filtered("librdkafka-group-classic.pcap", "src port PORT"),
    ),
    Fault(
        "responses-lost-midway.pcap",
        "both directions, and after a while the clients' alone: the path of the responses has changed",
        _lost_midway,
    ),
    Fault(
        "broker-stopped.pcap",
        "a broker that was stopped (SIGSTOP) 34 s: its kernel acknowledges requests, and none is answered",
        _stopped,
        looks_like="requests-only.pcap",
    ),
    Fault(
        "acks-zero-requests-only.pcap",
        "what a producer with acks=0 sent after its first requests were answered; there are no responses to it",
        _filtered(
            "librdkafka-acks0.pcap",
            "src port 45018 and dst port PORT and tcp[tcpflags] & tcp-syn == 0 and "
            "(greater 200 or tcp[tcpflags] & tcp-fin != 0)",
        ),
        looks_like="requests-only.pcap",
    ),
    Fault(
        "tls-without-keys.pcap",
        "clients and a broker that speak TLS; nothing holds the session secrets",
        _filtered("tls/tls13-kafkajs.pcapng", "tcp"),  # the format pcap has no room for the secrets in the pcapng
    ),
    Fault(
        "kafka-at-http.pcap",
        "Kafka's clients at a web server, which waits for the end of their first line until they give up",
        _kafka_at_http,
    ),
    Fault("http-only.pcap", "a web server and its client: no Kafka on any port", _http),
    Fault(
        "http-beside-kafka.pcap",
        "a web server beside a broker in one capture",
        _http_beside_kafka,
        looks_like="http-only.pcap",
    ),
    Fault("cut-file.pcap", "a capture that was copied while it was written: it ends within a packet", _cut),
]
