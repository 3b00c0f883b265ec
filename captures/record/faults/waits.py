"""Recordings of quotas, of waits that were asked for, and of brokers that are slow in truth."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from ..broker import RealBroker
from ..distribution import DEFAULT_VERSION, python_with
from ..programs import CLIENTS, CONFLUENT, java_program
from ..sniffer import SniffOptions
from . import Fault, Stage

_OPEN = SniffOptions(until_quiet=False)
_LIBRDKAFKA = "librdkafka (confluent-kafka 2.16.1)"
_SMALL_BUFFERS = {
    "socket.receive.buffer.bytes": "4096",
    "quota.window.num": "2",
    "quota.window.size.seconds": "1",
}
"""Buffers that fill up with little data, and quotas that begin at once."""


def java_waits(*arguments: str) -> Sequence[str]:
    """Command line of ``Waits.java``."""
    return java_program("Waits", *arguments, version=DEFAULT_VERSION, sources="java-faults")()


def librdkafka(*arguments: str) -> Sequence[str]:
    """Command line of ``librdkafka_faults.py``."""
    return [python_with(*CONFLUENT), str(CLIENTS / "librdkafka_faults.py"), *arguments]


def pause(broker: RealBroker, seconds: float) -> None:
    """Stop a broker's process for a while; the kernel still accepts what clients send."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(broker.pid, signal.SIGCONT)


def _orders(stage: Stage, broker: RealBroker, replicas: str = "1") -> None:
    """A topic on these nodes, for librdkafka's clients."""
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", replicas))


def _burst(broker: RealBroker, size: int, client_id: str, acks: str) -> Sequence[str]:
    """A producer of 60 records of this size, four in a batch."""
    settings = (f"client.id={client_id}", f"acks={acks}", "linger.ms=5", "batch.num.messages=4")
    return librdkafka("burst", broker.bootstrap(), "orders", "60", str(size), *settings, "enable.idempotence=false")


def _paused_burst(stage: Stage, burst: Sequence[str], broker: RealBroker) -> None:
    """The producer, with this broker's process stopped for 3 seconds meanwhile."""
    producer = stage.start(burst)
    time.sleep(0.6)
    pause(broker, 3.0)
    producer.wait()


def _throttled(stage: Stage) -> None:
    """The producer is over its quota, and sends on while the broker does not read."""
    broker = stage.broker(properties=_SMALL_BUFFERS)
    _orders(stage, broker)
    stage.run(java_waits("quota", broker.bootstrap(), "greedy", "producer_byte_rate", "8000"))
    with stage.recording(broker.port()):
        stage.run(_burst(broker, 1000, "greedy", "1"))


def _administrator(rate: str) -> Callable[[Stage], None]:
    """A program creates five topics, with a quota of partitions per second that it may create."""

    def play(stage: Stage) -> None:
        broker = stage.broker(properties={"controller.quota.window.num": "2"})
        stage.clients.append(_LIBRDKAFKA)
        stage.run(java_waits("quota", broker.bootstrap(), "deployer", "controller_mutation_rate", rate))
        program = [python_with(*CONFLUENT), str(CLIENTS / "faults" / "rdkafka_groups.py"), "creates-5"]
        with stage.recording(broker.port()):
            stage.run([*program, broker.bootstrap(), "orders", "0", "client.id=deployer"])

    return play


def _slow(stage: Stage) -> None:
    """The same producer and broker without a quota; the broker stands still."""
    broker = stage.broker(properties=_SMALL_BUFFERS)
    _orders(stage, broker)
    with stage.recording(broker.port()):
        _paused_burst(stage, _burst(broker, 1000, "greedy", "1"), broker)


def _reader(broker: RealBroker, seconds: float) -> Sequence[str]:
    settings = ("client.id=patient", "fetch.min.bytes=1000000", "fetch.wait.max.ms=2500")
    return librdkafka("read", broker.bootstrap(), "orders", str(seconds), "0", *settings)


def _trickle(broker: RealBroker) -> Sequence[str]:
    return librdkafka("burst", broker.bootstrap(), "orders", "20", "50", "client.id=trickle", "linger.ms=1")


def _min_bytes(stage: Stage) -> None:
    """Few records, and a consumer that wants a megabyte at once: each fetch takes its max wait and brings some."""
    broker = stage.broker()
    _orders(stage, broker)
    with stage.recording(broker.port()):
        reader = stage.start(_reader(broker, 19))
        for _ in range(5):
            stage.run(_trickle(broker))
            time.sleep(1.5)
        reader.wait()


def _late_fetch(stage: Stage) -> None:
    """The same, and the broker stands still in a fetch, far beyond its max wait."""
    broker = stage.broker()
    _orders(stage, broker)
    with stage.recording(broker.port()):
        reader = stage.start(_reader(broker, 10))
        stage.run(_trickle(broker))
        time.sleep(1.0)
        pause(broker, 6.0)
        reader.wait()


def _slow_replica(stage: Stage) -> None:
    """A producer with acks=all; the process of the follower stands still, and the leader waits for it."""
    leader = stage.broker()
    follower = stage.broker(controller=leader)
    _orders(stage, leader, "1,2")
    with stage.recording(leader.port()):
        _paused_burst(stage, _burst(leader, 100, "careful", "all"), follower)


FAULTS = [
    Fault(
        "slow-replica.pcap",
        "a producer with acks=all; the follower's process stands still for 3 seconds, and the leader waits for it",
        _slow_replica,
    ),
    Fault(
        "throttled-producer.pcap",
        "a producer over its quota: the broker answers at once and does not read for the throttle time (KIP-219); "
        "the producer sends on until the broker's window is closed",
        _throttled,
        looks_like="slow-broker-not-throttled.pcap",
    ),
    Fault(
        "throttled-administrator.pcap",
        "a program over its quota of partitions that it may create (controller_mutation_rate): the broker does not "
        "read its next requests for the throttle time",
        _administrator("0.5"),
        sniff=_OPEN,
    ),
    Fault(
        "administrator-within-quota.pcap",
        "the same with a quota that is high enough",
        _administrator("1000"),
        looks_like="throttled-administrator.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "slow-broker-not-throttled.pcap",
        "the same producer without a quota: the broker's process stands still for 3 seconds",
        _slow,
    ),
    Fault(
        "fetch-min-bytes.pcap",
        "a consumer with fetch.min.bytes of 1 MB and a max wait of 2.5 s, few records: fetches wait on purpose and "
        "bring some",
        _min_bytes,
        looks_like="fetch-beyond-max-wait.pcap",
    ),
    Fault(
        "fetch-beyond-max-wait.pcap",
        "the same consumer; the broker's process stands still for 6 seconds in a fetch",
        _late_fetch,
    ),
]
