"""Recordings of leaders that move, and of controllers that nobody reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..broker import RealBroker
from ..distribution import DEFAULT_VERSION, POM, class_path
from ..distribution import java as java_launcher
from ..programs import java_classes
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .network import QUICK_SESSIONS
from .positions import groups
from .waits import java_waits, pause

_OPEN = SniffOptions(until_quiet=False)
_OLD = "2.0.1"
_QUICK_QUORUM = {
    **QUICK_SESSIONS,
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
    "controller.quorum.request.timeout.ms": "800",
    "metadata.max.idle.interval.ms": "0",
}


def _moves(times: int) -> Callable[[Stage], None]:
    """The leaders of two topics move between the second and the third broker, once a second."""

    def play(stage: Stage) -> None:
        first = stage.broker(properties=QUICK_SESSIONS)
        brokers = [first, *(stage.broker(properties=QUICK_SESSIONS, controller=first) for _ in range(2))]
        for topic in ("orders", "payments"):
            stage.run(java_waits("topic", first.bootstrap(), topic, "2,3"))
        with stage.recording(*(broker.port() for broker in brokers)):
            for topic in ("orders", "payments"):
                settings = {"client_id": f"writer-of-{topic}", "acks": "1", "linger_ms": "0"}
                stage.start(rdkafka(stage, 30, first.bootstrap(), topic, **settings))
            stage.start(java(stage, 30, first.bootstrap(), client_id="java-writer", acks="1"))
            time.sleep(3)
            stage.run(java_waits("moves", first.bootstrap(), "orders,payments", str(times), "2,3"))
            time.sleep(2)

    return play


def _moves_unseen(stage: Stage) -> None:
    """Leaders move while a client asks for metadata without leader epochs; who moves them is not recorded."""
    first = stage.broker(properties=QUICK_SESSIONS)
    brokers = [first, *(stage.broker(properties=QUICK_SESSIONS, controller=first) for _ in range(2))]
    stage.run(java_waits("topic", first.bootstrap(), "orders", "2,3"))
    stage.clients.append(f"Apache Kafka's Java client {_OLD}")
    classes = java_classes(DEFAULT_VERSION, "java-faults")
    jars = class_path(_OLD, POM.with_name("kafka-zookeeper-pom.xml"))
    program = [java_launcher(), "-cp", f"{classes}:{jars}", "Tries"]
    settings = ("client.id=old-writer", "acks=1", "retries=5", "max.block.ms=2000", "metadata.max.age.ms=1000")
    with stage.recording(*(broker.port() for broker in brokers)):
        stage.start([*program, "25", first.bootstrap(), "orders", *settings])
        time.sleep(3)
        stage.run(java_waits("moves", f"127.0.0.1:{first.port('INTERNAL')}", "orders", "8", "2,3"))
        time.sleep(2)


def _controller(stage: Stage, reached: bool) -> None:
    """Brokers find the quorum at one port; its leader advertises another one, at which nothing listens."""
    controller = stage.broker(start=False, roles=("controller",))
    port = controller.choose_ports()["CONTROLLER"]
    other = stage.free_port()
    if not reached:
        controller.properties["advertised.listeners"] = f"CONTROLLER://127.0.0.1:{other}"
    controller.launch()
    stage.clients.append("brokers among themselves")
    broker = stage.broker(start=False, controller=controller)
    with stage.recording(port, other):
        broker.launch()
        time.sleep(12)


def _unserved(stage: Stage, killed: bool) -> None:
    """A client creates topics at a broker; its only controller may be gone."""
    controller = stage.broker(start=False, properties={"metadata.max.idle.interval.ms": "0"}, roles=("controller",))
    controller.launch()
    broker = stage.broker(properties={"broker.session.timeout.ms": "60000"}, controller=controller)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "2"))
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 60, broker.bootstrap(), every="1", client_id="writer"))
        if killed:
            controller.kill()
        for topic in ("payments", "refunds"):
            stage.run(groups("create", broker, 0, "client.id=deployer", topic=topic), fails=True)
        time.sleep(4)


def _quorum(times: int) -> Callable[[Stage], None]:
    """Three controllers, captured at two; the active one stands still until another one is, this many times."""

    def play(stage: Stage) -> None:
        quorum: list[RealBroker] = []
        options = {"roles": ("controller",), "quorum": quorum, "properties": _QUICK_QUORUM}
        quorum += [stage.broker(start=False, **options) for _ in range(3)]
        for node in quorum:
            node.launch()
        broker = stage.broker(quorum=quorum, roles=("broker",), properties=_QUICK_QUORUM)
        stage.clients.append("brokers among themselves")
        with stage.recording(*(node.port("CONTROLLER") for node in quorum[:2])):
            for _ in range(times):
                time.sleep(1)
                active = int(stage.run(java_waits("active", f"127.0.0.1:{broker.port('INTERNAL')}")))
                pause(quorum[active - 1], 1.5)
            time.sleep(1)

    return play


def _at_controller(stage: Stage) -> None:
    """Producers whose bootstrap server is the listener of the controller."""
    broker = stage.broker()
    controller = f"127.0.0.1:{broker.port('CONTROLLER')}"
    with stage.recording(broker.port("CONTROLLER")):
        stage.start(rdkafka(stage, 8, controller, client_id="shop"))
        stage.run(java(stage, 6, controller, client_id="billing"))


def _tool_at_controller(stage: Stage) -> None:
    broker = stage.broker()
    stage.clients.append(f"Apache Kafka's Java client {DEFAULT_VERSION}")
    with stage.recording(broker.port("CONTROLLER")):
        stage.run(java_waits("quorum", f"127.0.0.1:{broker.port('CONTROLLER')}"))


FAULTS = [
    Fault(
        "client-at-controller.pcap",
        "two producers whose bootstrap.servers is the listener of the controller",
        _at_controller,
        sniff=_OPEN,
    ),
    Fault(
        "tool-at-controller.pcap",
        "a tool that asks the controller for the state of the quorum (bootstrap.controllers)",
        _tool_at_controller,
        looks_like="client-at-controller.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "leaders-move.pcap",
        "the leaders of two topics move between two brokers, once a second",
        _moves(8),
        sniff=_OPEN,
    ),
    Fault(
        "leaders-move-old-client.pcap",
        "the leader of a topic moves between two brokers, once a second; its writer asks for metadata without leader "
        "epochs (Metadata v6)",
        _moves_unseen,
        sniff=_OPEN,
    ),
    Fault(
        "leaders-move-once.pcap",
        "the same, once",
        _moves(1),
        looks_like="leaders-move.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "controllers-change.pcap",
        "the process of the active one of three controllers stands still until another one is active, four times; "
        "captured at two of them",
        _quorum(4),
        sniff=_OPEN,
    ),
    Fault(
        "controllers-change-once.pcap",
        "the same, once",
        _quorum(1),
        looks_like="controllers-change.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "controller-gone.pcap",
        "topics are created at a broker whose only controller is gone: no answer (captured at the broker)",
        lambda stage: _unserved(stage, killed=True),
        sniff=_OPEN,
    ),
    Fault(
        "controller-there.pcap",
        "the same with the controller",
        lambda stage: _unserved(stage, killed=False),
        looks_like="controller-gone.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "controller-unreached.pcap",
        "the controller advertises a port at which nothing listens; a broker finds it by its other port",
        lambda stage: _controller(stage, reached=False),
        sniff=_OPEN,
    ),
    Fault(
        "controller-reached.pcap",
        "the same with the right port",
        lambda stage: _controller(stage, reached=True),
        looks_like="controller-unreached.pcap",
        sniff=_OPEN,
    ),
]
