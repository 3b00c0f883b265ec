"""Recordings of networks that lose packets, of brokers that freeze, and of what only looks like them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..broker import Listener, RealBroker
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .waits import java_waits, pause
from .wire import BROKERS, INTERFACE, Wire

OUTAGE_S = 4.0
LARGEST_FRAME = 1000
_AT_WIRE = SniffOptions(interface=INTERFACE, until_quiet=False)
_OPEN = SniffOptions(until_quiet=False)
BIG = 6_000
"""Bytes of records that need several frames."""


def _on_wire(stage: Stage) -> RealBroker:
    listener = Listener(host=BROKERS)
    return stage.broker(listeners=(listener,), properties={"auto.create.topics.enable": "true"})


def _writes(stage: Stage, wire: Wire, broker: RealBroker, client_id: str, every: str, **settings: str) -> None:
    """A producer at the clients' end."""
    tries = rdkafka(stage, 14, broker.bootstrap(), client_id=client_id, every=every, **settings)
    stage.start([*wire.clients, *tries])


def _outage(lost: Callable[[bytes, bool], bool], at_clients: bool, *, busy: bool = True) -> Callable[[Stage], None]:
    """An outage of some seconds for frames that are `lost`, captured at one end."""

    def play(stage: Stage) -> None:
        with Wire() as wire:
            broker = _on_wire(stage)
            stage.run([*wire.clients, *rdkafka(stage, 1, broker.bootstrap())])
            with stage.recording(broker.port(), within=wire.clients if at_clients else ()):
                _writes(stage, wire, broker, *(("busy", ".01") if busy else ("idle", "9")))
                time.sleep(3)
                wire.passes = lambda frame, to_broker: not lost(frame, to_broker)
                time.sleep(OUTAGE_S)
                wire.passes = lambda _frame, _to_broker: True
                time.sleep(4)
            broker.stop()

    return play


def _large(frame: bytes, _to_broker: bool) -> bool:
    return len(frame) > LARGEST_FRAME


def _black_hole(at_clients: bool) -> Callable[[Stage], None]:
    """Frames above a size never arrive, without any notice (no ICMP)."""

    def play(stage: Stage) -> None:
        with Wire() as wire:
            broker = _on_wire(stage)
            stage.run([*wire.clients, *rdkafka(stage, 1, broker.bootstrap())])
            wire.passes = lambda frame, to_broker: not _large(frame, to_broker)
            with stage.recording(broker.port(), within=wire.clients if at_clients else ()):
                settings = {"size": str(BIG), "socket_timeout_ms": "3000", "linger_ms": "0"}
                _writes(stage, wire, broker, "large", "1", **settings)
                time.sleep(12)
            broker.stop()

    return play


def _lossy(every: int, larger_than: int = 0) -> Callable[[Stage], None]:
    """Frames above a size are lost now and then, in both directions, and repaired at once."""

    def play(stage: Stage) -> None:
        with Wire() as wire:
            broker = _on_wire(stage)
            stage.run([*wire.clients, *rdkafka(stage, 1, broker.bootstrap())])
            with stage.recording(broker.port()):
                _writes(stage, wire, broker, "steady", ".1", size="3000", linger_ms="0")
                time.sleep(1)
                count = 0

                def some(frame: bytes, _to_broker: bool) -> bool:
                    nonlocal count
                    count += len(frame) > larger_than
                    return len(frame) <= larger_than or count % every > 0

                wire.passes = some
                time.sleep(5)
            broker.stop()

    return play


def _three(stage: Stage) -> Sequence[RealBroker]:
    first = stage.broker(properties=_SLOW_SESSIONS)
    return [first, *(stage.broker(properties=_SLOW_SESSIONS, controller=first) for _ in range(2))]


_SLOW_SESSIONS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "3",
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "metadata.max.idle.interval.ms": "0",
    "min.insync.replicas": "1",
}

QUICK_SESSIONS = {**_SLOW_SESSIONS, "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""A broker that is killed is known to be gone after two seconds."""


def _frozen(stage: Stage) -> None:
    """The last broker stands still; it leads a topic, and follows in another whose producer has acks=all."""
    brokers = _three(stage)
    bootstrap = ",".join(broker.bootstrap() for broker in brokers)
    for topic, replicas in (("led", "3,1"), ("followed", "2,3"), ("elsewhere", "1,2")):
        stage.run(java_waits("topic", bootstrap, topic, replicas))
    with stage.recording(*(broker.port() for broker in brokers)):
        for topic, acks in (("led", "1"), ("followed", "all"), ("elsewhere", "1")):
            settings = {"client_id": f"writer-of-{topic}", "acks": acks, "linger_ms": "0"}
            stage.start(rdkafka(stage, 14, bootstrap, topic, **settings))
        stage.start(java(stage, 14, bootstrap, "led", client_id="other-writer", acks="1", linger_ms="0"))
        time.sleep(4)
        pause(brokers[2], OUTAGE_S)
        time.sleep(3)


def _gives_up(stage: Stage) -> None:
    """Produce requests with acks=all wait for a follower that stands still, longer than their client waits."""
    leader = stage.broker(properties=_SLOW_SESSIONS)
    follower = stage.broker(properties=_SLOW_SESSIONS, controller=leader)
    stage.run(java_waits("topic", leader.bootstrap(), "orders", "1,2"))
    settings = {"request_timeout_ms": "1000", "delivery_timeout_ms": "2000", "linger_ms": "0"}
    with stage.recording(leader.port()):
        stage.start(java(stage, 14, leader.bootstrap(), client_id="hasty", acks="all", **settings))
        stage.start(rdkafka(stage, 14, leader.bootstrap(), client_id="patient", acks="1"))
        time.sleep(4)
        pause(follower, 6)
        time.sleep(3)


def _unmet(stage: Stage) -> None:
    first = stage.broker(properties=QUICK_SESSIONS | {"min.insync.replicas": "2"})
    second = stage.broker(properties=QUICK_SESSIONS, controller=first)
    stage.run(java_waits("topic", first.bootstrap(), "orders", "1,2"))
    with stage.recording(first.port(), second.port()):
        settings = {"acks": "all", "request_timeout_ms": "1500", "topic_metadata_refresh_interval_ms": "2000"}
        stage.start(rdkafka(stage, 14, f"{first.bootstrap()},{second.bootstrap()}", **settings))
        time.sleep(3)
        second.kill()
        time.sleep(7)


def _unreached_name(stage: Stage) -> None:
    broker = stage.broker(start=False, properties={"auto.create.topics.enable": "true"})
    port = broker.choose_ports()["CLIENT"]
    internal = broker.ports["INTERNAL"]
    broker.properties["advertised.listeners"] = (
        f"INTERNAL://127.0.0.1:{internal},CLIENT://kafka-1.example.invalid:{port}"
    )
    broker.start()
    bootstrap = f"127.0.0.1:{port}"
    with stage.recording(port):
        stage.start(java(stage, 8, bootstrap, linger_ms="0"))
        stage.start(rdkafka(stage, 8, bootstrap))
        time.sleep(8)


def _unknown_topic(stage: Stage) -> None:
    broker = stage.broker()
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 8, broker.bootstrap(), topic="nobody-made-it"))
        stage.start(java(stage, 8, broker.bootstrap(), topic="nobody-made-it"))
        time.sleep(8)


def _controller_killed(stage: Stage) -> None:
    quick = {
        **_SLOW_SESSIONS,
        "controller.quorum.fetch.timeout.ms": "4000",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    controller = stage.broker(start=False, properties={"metadata.max.idle.interval.ms": "0"}, roles=("controller",))
    controller.launch()
    first = stage.broker(properties=quick, controller=controller)
    second = stage.broker(properties=quick, controller=controller)
    stage.run(java_waits("topic", first.bootstrap(), "orders", "2,3"))
    with stage.recording(first.port(), second.port(), controller.port("CONTROLLER")):
        bootstrap = f"{first.bootstrap()},{second.bootstrap()}"
        stage.start(rdkafka(stage, 12, bootstrap, topic_metadata_refresh_interval_ms="1000"))
        time.sleep(4)
        controller.kill()
        time.sleep(5)


def _quorum_lost(stage: Stage) -> None:
    """Three nodes are broker and controller; the active controller and another one are killed."""
    quorum: list[RealBroker] = []
    nodes = [
        stage.broker(start=False, quorum=quorum, properties=QUICK_SESSIONS, java_options=["-Xmx256m"]) for _ in range(3)
    ]
    quorum += nodes
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()
    one, *others = nodes
    stage.run(java_waits("topic", one.bootstrap(), "orders", "1"))
    with stage.recording(one.port(), *(node.port("CONTROLLER") for node in nodes)):
        stage.start(rdkafka(stage, 16, one.bootstrap(), linger_ms="0"))
        time.sleep(3)
        for node in others:
            node.kill()
        time.sleep(13)


FAULTS = [
    Fault(
        "network-outage.pcap",
        f"nothing passes between a busy producer and its broker for {OUTAGE_S:.0f} s; captured at the producer",
        _outage(lambda _frame, _to_broker: True, at_clients=True),
        sniff=_AT_WIRE,
    ),
    Fault(
        "network-outage-at-broker.pcap",
        "the same, captured at the broker",
        _outage(lambda _frame, _to_broker: True, at_clients=False),
        sniff=_AT_WIRE,
    ),
    Fault(
        "network-outage-one-way.pcap",
        f"frames of the broker to a busy producer are lost for {OUTAGE_S:.0f} s, the others pass; captured at the "
        "producer",
        _outage(lambda _frame, to_broker: not to_broker, at_clients=True),
        sniff=_AT_WIRE,
    ),
    Fault(
        "network-outage-one-way-at-broker.pcap",
        "the same, captured at the broker",
        _outage(lambda _frame, to_broker: not to_broker, at_clients=False),
        sniff=_AT_WIRE,
    ),
    Fault(
        "network-outage-idle.pcap",
        f"nothing passes for {OUTAGE_S:.0f} s, and nobody sends anything in that time",
        _outage(lambda _frame, _to_broker: True, at_clients=True, busy=False),
        looks_like="network-outage.pcap",
        sniff=_AT_WIRE,
    ),
    Fault(
        "mtu-black-hole.pcap",
        f"frames of more than {LARGEST_FRAME} bytes are lost in both directions; captured at the producer",
        _black_hole(at_clients=True),
        sniff=_AT_WIRE,
    ),
    Fault(
        "mtu-black-hole-at-broker.pcap",
        "the same, captured at the broker",
        _black_hole(at_clients=False),
        sniff=_AT_WIRE,
    ),
    Fault(
        "losses-at-broker.pcap",
        "each 25th frame between a busy producer and its broker is lost; captured at the broker",
        _lossy(25),
        sniff=_AT_WIRE,
    ),
    Fault(
        "large-frames-lost.pcap",
        f"each 8th frame of more than {LARGEST_FRAME} bytes is lost, and repaired; captured at the broker",
        _lossy(8, LARGEST_FRAME),
        looks_like="mtu-black-hole-at-broker.pcap",
        sniff=_AT_WIRE,
    ),
    Fault(
        "broker-frozen.pcap",
        f"the process of one of three brokers stands still for {OUTAGE_S:.0f} s; producers with acks=1 and acks=all",
        _frozen,
        sniff=_OPEN,
    ),
    Fault(
        "request-timeout-short.pcap",
        "a producer with acks=all and request.timeout.ms=1000 gives up while the leader waits for a follower that "
        "stands still; another client of the leader is served",
        _gives_up,
        sniff=_OPEN,
    ),
    Fault(
        "min-isr-unmet.pcap",
        "a topic of two replicas and min.insync.replicas=2; the follower is killed",
        _unmet,
        sniff=_OPEN,
    ),
    Fault(
        "advertised-name.pcap",
        "the broker advertises a host name that does not exist",
        _unreached_name,
        sniff=_OPEN,
    ),
    Fault(
        "topic-unknown.pcap",
        "producers of a topic that does not exist ask for it again and again, and connect nowhere else",
        _unknown_topic,
        looks_like="advertised-name.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "controller-killed.pcap",
        "the only controller is killed; two brokers stay, and their metadata stays as it was",
        _controller_killed,
        sniff=_OPEN,
    ),
    Fault(
        "quorum-lost.pcap",
        "two of three controllers are killed: the third finds no majority",
        _quorum_lost,
        sniff=_OPEN,
    ),
]
