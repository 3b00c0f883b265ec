"""Recordings of records that were lost, and of such as only seem to be."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from . import Fault, Stage
from .clients import rdkafka
from .waits import java_waits, librdkafka

_LIBRDKAFKA = "librdkafka (confluent-kafka 2.16.1)"
_JAVA = "Apache Kafka Java client 4.4.0"
_SMALL_TOPIC = "max.message.bytes=2000"


def _acks_zero(*arguments: str) -> Sequence[str]:
    return librdkafka(*arguments, "client.id=careless", "acks=0", "linger.ms=5", "enable.idempotence=false")


def _beside_a_careful_one(stage: Stage, size: int) -> None:
    """Batches of one record of this size with acks=0, beside a producer that waits for its answers."""
    broker = stage.broker()
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "small", "1", _SMALL_TOPIC))
    with stage.recording(broker.port()):
        careful = stage.start(librdkafka("stay", broker.bootstrap(), "small", "1", "50", "client.id=careful", "acks=1"))
        time.sleep(1.5)
        stage.run(_acks_zero("stay", broker.bootstrap(), "small", "3", str(size), "batch.num.messages=1"))
        careful.wait()


def _acks_zero_refused(stage: Stage) -> None:
    """Records of 5 kB, for a topic that takes 2 kB."""
    _beside_a_careful_one(stage, 5000)


def _acks_zero_closed(stage: Stage) -> None:
    """Records that the topic takes; the client closes when it is done."""
    _beside_a_careful_one(stage, 500)


def _java_producer(stage: Stage, count: int, size: int) -> None:
    broker = stage.broker()
    stage.clients.append(_JAVA)
    stage.run(java_waits("topic", broker.bootstrap(), "small", "1", _SMALL_TOPIC))
    settings = ("client.id=splitter", "linger.ms=100", "batch.size=16384", "compression.type=none")
    with stage.recording(broker.port()):
        stage.run(java_waits("produce", broker.bootstrap(), "small", str(count), str(size), *settings))


def _too_large(stage: Stage) -> None:
    """A record of 5 kB: no way of sending it."""
    _java_producer(stage, 1, 5000)


def _split(stage: Stage) -> None:
    """Ten records of 500 bytes in one batch: refused, split, accepted."""
    _java_producer(stage, 10, 500)


def _interrupted(stage: Stage, timeout_ms: int) -> None:
    """The broker's process stands still, takes a batch unread into its grave, and comes back four seconds later."""
    broker = stage.broker()
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    settings = ("client.id=exact", "enable.idempotence=true", f"message.timeout.ms={timeout_ms}", "linger.ms=5")
    backoff = ("reconnect.backoff.ms=500", "reconnect.backoff.max.ms=1000")
    command = librdkafka("again", broker.bootstrap(), "orders", "1", "100", *settings, *backoff)
    with stage.recording(broker.port()):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=stage.work)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()  # the first is delivered
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            process.stdin.write(b"\n")
            process.stdin.flush()
            time.sleep(2.0)
            broker.kill()
            time.sleep(4.0)
            broker.start()
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def _given_up(stage: Stage) -> None:
    _interrupted(stage, 3000)


def _retried(stage: Stage) -> None:
    _interrupted(stage, 60_000)


def _large_requests(stage: Stage, limit: str, *names: str, killed: bool = False) -> None:
    """Producers of records of 25 kB, each in a request, beside one of small records."""
    broker = stage.broker(properties={"socket.request.max.bytes": limit})
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    one_each = {"batch_num_messages": "1", "max_in_flight": "1", "linger_ms": "0", "reconnect_backoff_ms": "1500"}
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 6, broker.bootstrap(), client_id="small"))
        for name in names:
            stage.start(rdkafka(stage, 6, broker.bootstrap(), client_id=name, size="25000", every="1.5", **one_each))
        time.sleep(4)
        if killed:
            broker.kill()
        time.sleep(3)


FAULTS = [
    Fault(
        "request-too-large.pcap",
        "a producer whose requests of 25 kB are more than socket.request.max.bytes (20 kB)",
        lambda stage: _large_requests(stage, "20000", "large"),
    ),
    Fault(
        "requests-large.pcap",
        "two such producers, and the default limit; the broker is killed after four seconds",
        lambda stage: _large_requests(stage, "104857600", "large", "larger", killed=True),
        looks_like="request-too-large.pcap",
    ),
    Fault(
        "batch-given-up.pcap",
        "an idempotent producer's batch dies unanswered with the broker; its delivery timeout passes before the broker "
        "is back, and the producer continues with the next record",
        _given_up,
    ),
    Fault(
        "batch-retried.pcap",
        "the same with a longer delivery timeout: the producer sends the batch again, and it is stored",
        _retried,
        looks_like="batch-given-up.pcap",
    ),
    Fault(
        "acks-zero-refused.pcap",
        "acks=0: the broker refuses each batch for its size, says nothing, and closes the connection",
        _acks_zero_refused,
    ),
    Fault(
        "acks-zero-closed.pcap",
        "acks=0: the broker takes all batches; the client closes when it is done",
        _acks_zero_closed,
        looks_like="acks-zero-refused.pcap",
    ),
    Fault("batch-too-large.pcap", "one record that is larger than the topic takes: refused for good", _too_large),
    Fault(
        "batch-split.pcap",
        "a batch that is larger than the topic takes: the producer splits it, and all records are accepted",
        _split,
        looks_like="batch-too-large.pcap",
    ),
]
