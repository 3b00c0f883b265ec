"""Recordings of brokers that pause again and again, of slow links, and of firewalls that forget connections."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..broker import Listener
from ..programs import CLIENTS
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .mistakes import members
from .network import QUICK_SESSIONS
from .waits import java_waits, pause
from .wire import BROKERS, INTERFACE, Wire

PAUSE_S = 0.5
PAUSES = 8
DISK_S = 0.9
FAR_S = 0.2
"""How long a frame takes on a slow link, one way."""
NARROW = 16_000
"""Bytes per second of a narrow link."""
FORGETS_S = 2.5
"""A firewall forgets a connection that is silent for this long."""
_OPEN = SniffOptions(until_quiet=False)
_AT_WIRE = SniffOptions(interface=INTERFACE, until_quiet=False)
_CREATES = {"auto.create.topics.enable": "true"}


def _pauses(times: int) -> Callable[[Stage], None]:
    """The last of three brokers stands still for half a second, each second; the others serve their clients."""

    def play(stage: Stage) -> None:
        first = stage.broker(properties=QUICK_SESSIONS)
        brokers = [first, *(stage.broker(properties=QUICK_SESSIONS, controller=first) for _ in range(2))]
        bootstrap = first.bootstrap()
        for topic, replicas in (("paused", "3,1"), ("steady", "1,2")):
            stage.run(java_waits("topic", bootstrap, topic, replicas))
        with stage.recording(*(broker.port() for broker in brokers)):
            for topic in ("paused", "steady"):
                stage.start(rdkafka(stage, 60, bootstrap, topic, client_id=f"one-{topic}", acks="1", linger_ms="0"))
                stage.start(java(stage, 60, bootstrap, topic, client_id=f"two-{topic}", acks="1", linger_ms="0"))
            time.sleep(4)
            for _ in range(times):
                pause(brokers[2], PAUSE_S)
                time.sleep(PAUSE_S)
            time.sleep(2)

    return play


def _throttled(stopped_s: float) -> Callable[[Stage], None]:
    """The second of two brokers gets no CPU for a part of each 100 ms, for three seconds."""

    def play(stage: Stage) -> None:
        first = stage.broker(properties=QUICK_SESSIONS)
        second = stage.broker(properties=QUICK_SESSIONS, controller=first)
        for topic, replicas in (("throttled", "2"), ("free", "1")):
            stage.run(java_waits("topic", first.bootstrap(), topic, replicas))
        with stage.recording(first.port(), second.port()):
            for topic in ("throttled", "free"):
                for name in ("one", "two"):
                    writes = {"client_id": f"{name}-{topic}", "acks": "1", "linger_ms": "0", "every": ".04"}
                    stage.start(rdkafka(stage, 7, first.bootstrap(), topic, **writes))
            time.sleep(3)
            for _ in range(30):
                pause(second, stopped_s)
                time.sleep(0.1 - stopped_s)
            time.sleep(1)

    return play


def _slow_disk(*, flushes: bool = True, readers: int = 0) -> Callable[[Stage], None]:
    """For four seconds, whatever waits until data is on a broker's disk waits longer."""

    def play(stage: Stage) -> None:
        library, flag = stage.work / "slow_fsync.so", stage.work / "slow"
        stage.run(["cc", "-shared", "-fPIC", "-o", str(library), str(CLIENTS / "faults" / "slow_fsync.c"), "-ldl"])
        properties = {**_CREATES, "num.io.threads": "8"} | ({"log.flush.interval.messages": "1"} if flushes else {})
        broker = stage.broker(start=False, properties=properties)
        broker.environment = {"LD_PRELOAD": str(library), "SLOW_FSYNC": str(flag)}
        broker.environment["SLOW_FSYNC_US"] = f"{DISK_S * 1e6:.0f}"
        broker.start()
        for topic in ("orders", "bills"):
            stage.run(java_waits("topic", broker.bootstrap(), topic, "1"))
        with stage.recording(broker.port()):
            for topic in ("orders", "bills"):
                writes = {"client_id": f"{topic}-writer", "acks": "1", "linger_ms": "0"}
                stage.start(rdkafka(stage, 11, broker.bootstrap(), topic, **writes))
            stage.start(members("reads", broker, 11, 0, "client.id=reader", "auto.commit.interval.ms=500"))
            for number in range(readers):
                reads = ("group.id=others", f"client.id=other-{number}", "enable.auto.commit=false")
                stage.start(members("reads", broker, 11, number, *reads))
            time.sleep(5)
            flag.touch()
            time.sleep(4)
            flag.unlink()
            time.sleep(3)

    return play


def _slow_link(
    delay_s: float, bytes_per_s: float, *, at_clients: bool, size: int = 7, seconds: float = 9, every: str = ".2"
) -> Callable[[Stage], None]:
    """A producer and a consumer at the far end of a link."""

    def play(stage: Stage) -> None:
        with Wire() as wire:
            broker = stage.broker(listeners=(Listener(host=BROKERS),), properties=_CREATES)
            stage.run([*wire.clients, *rdkafka(stage, 1, broker.bootstrap())])
            wire.delay_s, wire.bytes_per_s = delay_s, bytes_per_s
            with stage.recording(broker.port(), within=wire.clients if at_clients else ()):
                writes = rdkafka(
                    stage, seconds, broker.bootstrap(), client_id="far", size=str(size), every=every, linger_ms="0"
                )
                stage.start([*wire.clients, *writes])
                stage.start([*wire.clients, *members("reads", broker, seconds, 0, "client.id=far-reader")])
                time.sleep(seconds)
            broker.stop()

    return play


def _forgets(stage: Stage, after_s: float = FORGETS_S) -> None:
    """A firewall forgets connections on which nothing was sent for a while, and drops what comes later."""
    with Wire() as wire:
        broker = stage.broker(listeners=(Listener(host=BROKERS),), properties=_CREATES)
        stage.run([*wire.clients, *rdkafka(stage, 1, broker.bootstrap())])
        seen: dict[bytes, float] = {}

        def known(frame: bytes, to_broker: bool) -> bool:
            ports = frame[34:38] if to_broker else frame[36:38] + frame[34:36]
            now, is_tcp = time.monotonic(), frame[23] == 6
            if is_tcp and frame[47] & 2:
                seen[ports] = now
            if is_tcp and now - seen.get(ports, 0) > after_s:
                return False
            seen[ports] = now
            return True

        with stage.recording(broker.port()):
            wire.passes = known
            settings = {"socket_timeout_ms": "2000", "linger_ms": "0", "every": "4"}
            settings |= {"enable_idempotence": "true"}
            stage.start([*wire.clients, *rdkafka(stage, 30, broker.bootstrap(), client_id="rare", **settings)])
            stage.start([*wire.clients, *rdkafka(stage, 30, broker.bootstrap(), client_id="busy", every=".5")])
            time.sleep(25)
        broker.stop()


FAULTS = [
    Fault(
        "broker-pauses.pcap",
        f"the process of one of three brokers stands still for {PAUSE_S} s, each second; four producers",
        _pauses(PAUSES),
        sniff=_OPEN,
    ),
    Fault(
        "broker-pauses-once.pcap",
        f"the same, once for {PAUSE_S} s",
        _pauses(1),
        looks_like="broker-pauses.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "broker-throttled.pcap",
        "the process of one of two brokers stands still for 80 of each 100 ms, as with a limit of CPU; four producers",
        _throttled(0.08),
        sniff=_OPEN,
    ),
    Fault(
        "broker-throttled-little.pcap",
        "the same for 5 of each 100 ms",
        _throttled(0.005),
        looks_like="broker-throttled.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "disk-slow.pcap",
        f"for 4 s, each fsync of a broker that flushes all records takes {DISK_S} s; two producers with acks=1, and a "
        "consumer that commits",
        _slow_disk(),
        sniff=_OPEN,
    ),
    Fault(
        "disk-slow-for-writes.pcap",
        "the same, and a consumer that does not commit",
        _slow_disk(readers=1),
        sniff=_OPEN,
    ),
    Fault(
        "disk-slow-unnoticed.pcap",
        "the same, and the broker leaves it to its kernel when records reach the disk (Kafka's default)",
        _slow_disk(flushes=False),
        looks_like="disk-slow.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "link-slow.pcap",
        f"frames take {FAR_S} s each way between a broker and its clients; captured at the clients",
        _slow_link(FAR_S, 0, at_clients=True),
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-slow-at-broker.pcap",
        "the same, captured at the broker",
        _slow_link(FAR_S, 0, at_clients=False),
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-narrow.pcap",
        f"{NARROW} bytes/s pass in each direction between a broker and its clients, which need more; captured at the "
        "clients",
        _slow_link(0.001, NARROW, at_clients=True, size=4000),
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-narrow-at-broker.pcap",
        "the same, captured at the broker",
        _slow_link(0.001, NARROW, at_clients=False, size=4000, seconds=7),
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-narrow-large.pcap",
        f"records of 30 kB on a link of {NARROW} bytes/s in each direction; captured at the clients",
        _slow_link(0.001, NARROW, at_clients=True, size=30_000, every="1"),
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-wide-large.pcap",
        "the same clients at a link that carries what they need",
        _slow_link(0.001, 1_000_000, at_clients=True, size=30_000, every="1", seconds=3),
        looks_like="link-narrow-large.pcap",
        sniff=_AT_WIRE,
    ),
    Fault(
        "link-wide.pcap",
        "the same clients at a link that carries what they need",
        _slow_link(0.001, 1_000_000, at_clients=True, size=4000, seconds=4),
        looks_like="link-narrow.pcap",
        sniff=_AT_WIRE,
    ),
    Fault(
        "firewall-forgets.pcap",
        f"a firewall forgets connections that are silent for {FORGETS_S} s and drops what comes later; captured at the "
        "broker",
        _forgets,
        sniff=_AT_WIRE,
    ),
    Fault(
        "firewall-remembers.pcap",
        "the same clients, and a firewall that forgets after 60 s",
        lambda stage: _forgets(stage, 60),
        looks_like="firewall-forgets.pcap",
        sniff=_AT_WIRE,
    ),
]
