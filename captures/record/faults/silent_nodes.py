"""Recordings of brokers and followers that say nothing, of coordinators that cannot write, and of their look-alikes."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

from ..programs import CLIENTS
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import rdkafka
from .positions import groups
from .waits import java_waits, librdkafka, pause

_LIBRDKAFKA = "librdkafka (confluent-kafka 2.16.1)"
_OPEN = SniffOptions(until_quiet=False)
_TWO_REPLICAS = {
    "offsets.topic.replication.factor": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}


def _frozen_before(stage: Stage) -> None:
    """Whatever the broker said, it said before the capture."""
    broker = stage.broker()
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    stage.start(rdkafka(stage, 30, broker.bootstrap(), acks="1", linger_ms="0"))
    time.sleep(3)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(1)
    with stage.recording(broker.port()):
        time.sleep(8)
    os.kill(broker.pid, signal.SIGCONT)


def _patient(stage: Stage) -> None:
    """Two consumers let the broker wait for 20 s for a megabyte; the capture ends before that."""
    broker = stage.broker()
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    with stage.recording(broker.port()):
        for name in ("one", "other"):
            settings = (f"client.id={name}", "fetch.min.bytes=1000000", "fetch.wait.max.ms=20000")
            stage.start(librdkafka("read", broker.bootstrap(), "orders", "30", "0", *settings))
        time.sleep(10)
        socket.create_connection(("127.0.0.1", broker.port())).close()  # packets that show how long the capture lasts


def _follower(stands_s: float) -> Callable[[Stage], None]:
    """A producer with acks=all, and a follower whose process stands still, as its leader sees it."""

    def play(stage: Stage) -> None:
        leader = stage.broker()
        follower = stage.broker(controller=leader)
        stage.run(java_waits("topic", leader.bootstrap(), "orders", "1,2"))
        with stage.recording(leader.port(), leader.port("INTERNAL")):
            producer = stage.start(rdkafka(stage, 6 + stands_s, leader.bootstrap(), acks="all", linger_ms="0"))
            time.sleep(4)
            pause(follower, stands_s)
            producer.wait()

    return play


def _coordinator(stage: Stage) -> None:
    """A group whose coordinator needs two replicas for what it writes, and has one."""
    properties = {**_TWO_REPLICAS, "min.insync.replicas": "2"}
    broker = stage.broker(properties=properties)
    other = stage.broker(properties=properties, controller=broker)
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1", "min.insync.replicas=1"))
    stage.run(librdkafka("produce", broker.bootstrap(), "orders", "20", "10", "linger.ms=50"))
    stage.run(groups("takes-5", broker, 10))
    other.kill()
    time.sleep(6)
    with stage.recording(broker.port()):
        stage.run(groups("once", broker, 14))


def _slow_controller(stage: Stage, slow: bool) -> None:
    """Five topics are created, and the controller's disk is slow or not; captured at the broker."""
    library, flag = stage.work / "slow_fsync.so", stage.work / "slow"
    stage.run(["cc", "-shared", "-fPIC", "-o", str(library), str(CLIENTS / "faults" / "slow_fsync.c"), "-ldl"])
    controller = stage.broker(start=False, roles=("controller",))
    controller.environment = {"LD_PRELOAD": str(library), "SLOW_FSYNC": str(flag), "SLOW_FSYNC_US": "1500000"}
    controller.launch()
    broker = stage.broker(controller=controller)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "2"))
    with stage.recording(broker.port()):
        stage.start(rdkafka(stage, 30, broker.bootstrap(), every="1", client_id="writer"))
        if slow:
            flag.touch()
        stage.run(groups("creates-5", broker, 0, "client.id=deployer", topic="new"))
        flag.unlink(missing_ok=True)
        time.sleep(1)


FAULTS = [
    Fault(
        "controller-slow.pcap",
        "a program creates five topics, and the controller's disk takes 1.5 s for each write; captured at the broker",
        lambda stage: _slow_controller(stage, slow=True),
        sniff=_OPEN,
    ),
    Fault(
        "controller-quick.pcap",
        "the same with a disk that is not slow",
        lambda stage: _slow_controller(stage, slow=False),
        looks_like="controller-slow.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "broker-frozen-before.pcap",
        "a broker's process stands still from before the capture to its end; a producer sends on",
        _frozen_before,
        sniff=_OPEN,
    ),
    Fault(
        "fetches-wait-until-the-end.pcap",
        "two consumers let the broker wait for longer than the capture lasts",
        _patient,
        looks_like="broker-frozen-before.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "follower-stands-still.pcap",
        "the process of a follower stands still for 7 s; a producer with acks=all waits for it; with the leader's "
        "listener for brokers",
        _follower(7),
        sniff=_OPEN,
    ),
    Fault(
        "follower-pauses.pcap",
        "the same for 0.6 s",
        _follower(0.6),
        looks_like="follower-stands-still.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "coordinator-cannot-write.pcap",
        "the second of two brokers is gone, and __consumer_offsets has min.insync.replicas=2: no member gets its "
        "assignment",
        _coordinator,
    ),
]
