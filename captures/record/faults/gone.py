"""Recordings of brokers that die, stop and come back, and of connections that end for other reasons."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..broker import RealBroker
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import greeted, java, rdkafka
from .waits import java_waits

QUICK = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "4000",
    "auto.create.topics.enable": "true",
    "metadata.max.idle.interval.ms": "0",
    "num.partitions": "2",
    "default.replication.factor": "2",
}
"""Heartbeats in quick succession, so that leaders move within seconds."""
IDLE_MS = 11_000


def _cluster(stage: Stage) -> tuple[RealBroker, RealBroker]:
    first = stage.broker(properties=QUICK)
    return first, stage.broker(properties=QUICK, controller=first)


def _killed(stage: Stage) -> None:
    first, second = _cluster(stage)
    bootstrap = f"{second.bootstrap()},{first.bootstrap()}"
    stage.run(rdkafka(stage, 1, bootstrap))
    with stage.recording(first.port(), second.port()):
        stage.start(java(stage, 12, bootstrap, linger_ms="500", metadata_max_age_ms="2000"))
        stage.start(rdkafka(stage, 12, bootstrap, linger_ms="500", reconnect_backoff_ms="500"))
        time.sleep(6)
        second.kill()
        time.sleep(5)


def _restarted(stage: Stage) -> None:
    first, second = _cluster(stage)
    bootstrap = f"{second.bootstrap()},{first.bootstrap()}"
    stage.run(rdkafka(stage, 1, bootstrap))
    with stage.recording(first.port(), second.port(), first.port("CONTROLLER")):
        stage.start(rdkafka(stage, 60, bootstrap, linger_ms="500", reconnect_backoff_ms="1000"))
        time.sleep(2)
        second.stop()
        time.sleep(1)
        second.start()
        time.sleep(2)


def _planned(stage: Stage) -> None:
    """The second of three brokers moves its leaders, stops, and starts again; its clients have moved on by then."""
    first, second = _cluster(stage)
    third = stage.broker(properties=QUICK, controller=first)
    bootstrap = f"{first.bootstrap()},{third.bootstrap()}"
    for topic, replicas in (("orders", "2,3"), ("payments", "2,1"), ("refunds", "2,3")):
        stage.run(java_waits("topic", bootstrap, topic, replicas))
    with stage.recording(*(broker.port() for broker in (first, second, third))):
        for topic in ("orders", "payments", "refunds"):
            stage.start(rdkafka(stage, 60, bootstrap, topic, linger_ms="0", client_id=f"writer-of-{topic}"))
        time.sleep(4)
        second.stop()
        second.start()
        time.sleep(2)


def _flapping(stage: Stage) -> None:
    first, second = _cluster(stage)
    stage.run(rdkafka(stage, 1, second.bootstrap()))
    with stage.recording(first.port(), second.port()):
        bootstrap = f"{second.bootstrap()},{first.bootstrap()}"
        stage.start(rdkafka(stage, 90, bootstrap, linger_ms="500", reconnect_backoff_ms="1000"))
        for _ in range(3):
            time.sleep(2)
            second.kill()
            second.start()
        time.sleep(2)


def _alone(stage: Stage) -> None:
    broker = stage.broker(properties={"auto.create.topics.enable": "true"})
    stage.run(rdkafka(stage, 1, broker.bootstrap()))
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 60, broker.bootstrap(), linger_ms="500", reconnect_backoff_ms="1000"))
        time.sleep(2)
        broker.stop()
        broker.start()
        time.sleep(3)


def _leaving(stage: Stage) -> None:
    broker = stage.broker(properties={"auto.create.topics.enable": "true"})
    stage.run(rdkafka(stage, 1, broker.bootstrap()))
    with stage.recording(broker.port()):
        stage.run(rdkafka(stage, 1, broker.bootstrap()))
        several = [greeted(stage, broker.port(), f"127.0.0.{number}") for number in (2, 3, 4)]
        for client in several:
            client.close()
        time.sleep(1)
        stage.run(rdkafka(stage, 1, broker.bootstrap()))


def _idle(stage: Stage) -> None:
    broker = stage.broker(properties={"connections.max.idle.ms": str(IDLE_MS)})
    with stage.recording(broker.port()):
        several = [greeted(stage, broker.port(), f"127.0.0.{number}") for number in (2, 3, 4, 5)]
        time.sleep(1.5 * IDLE_MS / 1000)
        for client in several:
            client.close()
        for number in (2, 3, 4, 5):
            greeted(stage, broker.port(), f"127.0.0.{number}").close()


def _before(stage: Stage) -> None:
    broker = stage.broker(start=False, properties={"auto.create.topics.enable": "true"})
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 60, broker.bootstrap(), reconnect_backoff_ms="500", linger_ms="500"))
        time.sleep(2)
        broker.start()
        time.sleep(4)


def _nowhere(*, beside: bool) -> Callable[[Stage], None]:
    """A client whose bootstrap.servers has a port at which nobody listens: alone, or `beside` a right one."""

    def play(stage: Stage) -> None:
        broker = stage.broker(properties={"auto.create.topics.enable": "true"})
        port = stage.free_port()
        wrong = f"127.0.0.1:{port}"
        stage.run(rdkafka(stage, 1, broker.bootstrap()))
        with stage.recording(broker.port(), port):
            stage.start(rdkafka(stage, 7, broker.bootstrap(), client_id="right"))
            places = f"{wrong},{broker.bootstrap()}" if beside else wrong
            for start in (rdkafka, java):
                stage.start(start(stage, 7, places, client_id=f"wrong-{start.__name__}"))
            time.sleep(7)

    return play


FAULTS = [
    Fault(
        "bootstrap-wrong.pcap",
        "two clients whose bootstrap.servers has a port at which nobody listens, beside one with the right port",
        _nowhere(beside=False),
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "bootstrap-one-wrong.pcap",
        "the same, but bootstrap.servers has the right port, too",
        _nowhere(beside=True),
        looks_like="bootstrap-wrong.pcap",
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "broker-killed.pcap",
        "the second of two brokers is killed and does not come back; its clients retry, the first leads its partitions",
        _killed,
    ),
    Fault(
        "broker-restarted.pcap",
        "the second of two brokers is stopped and started again; their clients, and the controller's listener",
        _restarted,
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "broker-restarted-as-planned.pcap",
        "a broker moves its leaders to the others, stops, and is started again (controlled shutdown); clients continue",
        _planned,
        looks_like="broker-killed.pcap",
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "broker-flaps.pcap",
        "the second of two brokers is killed and started again three times",
        _flapping,
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "broker-alone-restarted.pcap",
        "the only broker is stopped and started again, a client retries",
        _alone,
        sniff=SniffOptions(until_quiet=False),
    ),
    Fault(
        "clients-leave.pcap",
        "all clients of a broker end at about the same time, and one comes later",
        _leaving,
        looks_like="broker-restarted.pcap",
    ),
    Fault(
        "connections-idle.pcap",
        f"four clients say nothing after their greeting; the broker closes them (connections.max.idle.ms={IDLE_MS}), "
        "they reconnect",
        _idle,
        looks_like="broker-restarted.pcap",
    ),
    Fault(
        "client-before-broker.pcap",
        "a client that was started a few seconds before its broker",
        _before,
        looks_like="broker-killed.pcap",
        sniff=SniffOptions(until_quiet=False),
    ),
]
