"""Recordings of programs and settings that do not fit each other, of data that disappears, and of what looks alike."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from ..broker import RealBroker
from ..distribution import DEFAULT_VERSION
from ..programs import QUICK_GROUPS, SHARE_GROUPS, java_program
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .network import QUICK_SESSIONS
from .positions import groups
from .waits import java_waits, librdkafka, pause

_JAVA = f"Apache Kafka's Java client {DEFAULT_VERSION}"
_OPEN = SniffOptions(until_quiet=False)
_QUICK_FAILURES = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
_FREEZE_S = 4
_CONSUMER = "group.protocol=consumer"
_LONG_WAIT = ("fetch.max.wait.ms=5000", "fetch.min.bytes=1000000")


def members(word: str, broker: RealBroker, seconds: float, number: int, *settings: str) -> Sequence[str]:
    """Command line of ``Members.java`` for the topic `orders`."""
    program = java_program("Members", version=DEFAULT_VERSION, sources="java-faults")()
    return [*program, word, broker.bootstrap(), "orders", str(seconds), str(number), *settings]


def _broker(stage: Stage, records: int = 40, properties: Mapping[str, str] | None = None) -> RealBroker:
    """A broker with a topic of one partition, and records of ten bytes in it."""
    stage.clients.append(_JAVA)
    broker = stage.broker(properties=properties)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    if records:
        stage.run(librdkafka("produce", broker.bootstrap(), "orders", str(records), "10", "linger.ms=50"))
    return broker


def _together(first: Sequence[str], second: Sequence[str], **properties: str) -> Callable[[Stage], None]:
    """Two programs, the second some seconds after the first, which continues; words and settings as for `members`."""

    def play(stage: Stage) -> None:
        broker = _broker(stage, properties=QUICK_GROUPS | properties)
        with stage.recording(broker.port()):
            one = stage.start(members(first[0], broker, 13, 100, *first[1:]))
            time.sleep(5)
            stage.run(members(second[0], broker, 5, 100, *second[1:]), fails=True)
            one.wait()

    return play


def _one(word: str, seconds: float, number: int, *settings: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        broker = _broker(stage, properties=QUICK_GROUPS)
        with stage.recording(broker.port()):
            stage.run(members(word, broker, seconds, number, *settings), fails=True)

    return play


def _still(seconds: float, work: int) -> Callable[[Stage], None]:
    """One of two members works this many ms on each record, and its process stands still for some seconds."""

    def play(stage: Stage) -> None:
        broker = _broker(stage, properties=QUICK_GROUPS)
        settings = ("heartbeat.interval.ms=500", "session.timeout.ms=10000", "max.poll.records=1")
        with stage.recording(broker.port()):
            stage.start(members("reads", broker, 60, 100, "client.id=steady", *settings))
            member = stage.start(members("reads", broker, 60, work, "client.id=sleepy", *settings))
            time.sleep(9)
            if seconds:
                member.send_signal(signal.SIGSTOP)
                time.sleep(seconds)
                member.send_signal(signal.SIGCONT)
            time.sleep(4)

    return play


def _taken_over(stage: Stage) -> None:
    """A program is killed and started again with its transactional id."""
    broker = _broker(stage)
    settings = ("transactional.id=ledger", "client.id=ledger")
    with stage.recording(broker.port()):
        first = stage.start(members("transacts", broker, 60, 200, *settings))
        time.sleep(5)
        first.kill()
        first.wait()
        stage.run(members("transacts", broker, 4, 200, *settings))


def _storage(stage: Stage) -> None:
    """One of two log directories disappears while clients write to partitions in both."""
    broker = stage.broker(start=False, properties=_QUICK_FAILURES)
    second = stage.work / "second-disk"
    broker.properties["log.dirs"] = f"{broker.data_directory},{second}"
    broker.start()
    for topic in ("orders", "payments"):
        stage.run(java_waits("topic", broker.bootstrap(), topic, "1"))
    held = next(topic for topic in ("orders", "payments") if (second / f"{topic}-0").exists())
    with stage.recording(broker.port()):
        settings = {
            "linger_ms": "0",
            "acks": "1",
            "retry_backoff_ms": "300",
            "topic_metadata_refresh_interval_ms": "3000",
        }
        writer = stage.start(rdkafka(stage, 14, broker.bootstrap(), held, client_id="writer", **settings))
        reader = stage.start(groups("once", broker, 14, "client.id=reader", topic=held))
        time.sleep(5)
        shutil.rmtree(second)
        writer.wait()
        reader.wait()


def _offsets(stage: Stage, deleted: bool) -> None:
    """A group commits, ends, and comes back; meanwhile records were written, and maybe its offsets deleted."""
    broker = _broker(stage)
    with stage.recording(broker.port()):
        stage.run(groups("once", broker, 4, "client.id=reader"))
        if deleted:
            stage.run(groups("forget", broker, 0, "client.id=admin"))
        stage.run(librdkafka("produce", broker.bootstrap(), "orders", "30", "10", "linger.ms=50"))
        stage.run(groups("once", broker, 4, "client.id=reader", "auto.offset.reset=latest"))


def _recreated(stage: Stage) -> None:
    """A topic is deleted and created again under a producer and a consumer."""
    broker = _broker(stage)
    with stage.recording(broker.port()):
        settings = ("client.id=reader", "topic.metadata.refresh.interval.ms=1000")
        reader = stage.start(groups("once", broker, 14, *settings))
        writer = stage.start(rdkafka(stage, 14, broker.bootstrap(), topic_metadata_refresh_interval_ms="1000"))
        time.sleep(5)
        stage.run(groups("drop", broker, 0, "client.id=admin"))
        time.sleep(1)
        stage.run(groups("create", broker, 0, "client.id=admin"))
        reader.wait()
        writer.wait()


def _internal_topic(stage: Stage, factor: str) -> None:
    """The topic of committed offsets, with this replication factor, in a cluster of one broker."""
    broker = _broker(stage, properties={"offsets.topic.replication.factor": factor})
    with stage.recording(broker.port()):
        stage.run(groups("once", broker, 9, "client.id=reader"))


def _sasl(stage: Stage) -> None:
    broker = _broker(stage)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "reconnect_backoff_ms": "500"}
    words = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";'
    with stage.recording(broker.port()):
        stage.run(java(stage, 4, broker.bootstrap(), sasl_jaas_config=words, **login))


def _locks(stage: Stage) -> None:
    """A member of a share group works for longer than it may hold the records."""
    limits = {"group.share.record.lock.duration.ms": "1000", "group.share.min.record.lock.duration.ms": "1000"}
    broker = _broker(stage, 20, SHARE_GROUPS | limits)
    worker = java_program("ShareWorker", version=DEFAULT_VERSION, sources="java-faults")()
    with stage.recording(broker.port()):
        stage.run([*worker, broker.bootstrap(), "orders", "10", "0", "0", "2500"])


def _restarts(crash: bool) -> Callable[[Stage], None]:
    """A consumer of the newer protocol that is started four times, and ends by itself or is killed."""

    def play(stage: Stage) -> None:
        broker = _broker(stage, properties=QUICK_GROUPS)
        with stage.recording(broker.port()):
            for _ in range(4):
                reads = members("reads", broker, 60 if crash else 2.5, 0, _CONSUMER, "client.id=reader")
                member = stage.start(reads)
                if crash:
                    time.sleep(3.5)
                    member.kill()
                member.wait()

    return play


def _state(factor: str) -> Callable[[Stage], None]:
    """A member of a share group and one broker, whose topic for the group's state needs this many replicas."""

    def play(stage: Stage) -> None:
        broker = _broker(stage, 20, SHARE_GROUPS | {"share.coordinator.state.topic.replication.factor": factor})
        worker = java_program("ShareWorker", version=DEFAULT_VERSION, sources="java-faults")()
        with stage.recording(broker.port()):
            stage.run([*worker, broker.bootstrap(), "orders", "9", "0", "0"])

    return play


def _unclean(stage: Stage) -> None:
    """A follower is down, its leader dies, and the follower comes back with an older log (acks=1)."""
    first = stage.broker(properties=QUICK_SESSIONS)
    second = stage.broker(properties=QUICK_SESSIONS, controller=first)
    third = stage.broker(properties=QUICK_SESSIONS, controller=first)
    bootstrap = ",".join(one.bootstrap() for one in (first, second, third))
    stage.run(java_waits("topic", first.bootstrap(), "orders", "3,2", "unclean.leader.election.enable=true"))
    with stage.recording(first.port(), second.port(), third.port()):
        settings = {"acks": "1", "linger_ms": "0", "enable_idempotence": "false"}
        stage.start(rdkafka(stage, 40, bootstrap, topic_metadata_refresh_interval_ms="1000", **settings))
        time.sleep(3)
        second.kill()
        time.sleep(4)
        third.kill()
        second.start()
        time.sleep(5)


def _patient(stage: Stage) -> None:
    """As `request-timeout-short`, with the usual timeouts."""
    leader = stage.broker(properties=QUICK_SESSIONS | {"broker.session.timeout.ms": "60000"})
    follower = stage.broker(properties=QUICK_SESSIONS | {"broker.session.timeout.ms": "60000"}, controller=leader)
    stage.run(java_waits("topic", leader.bootstrap(), "orders", "1,2"))
    with stage.recording(leader.port()):
        stage.start(java(stage, 11, leader.bootstrap(), client_id="hasty", acks="all", linger_ms="0"))
        stage.start(rdkafka(stage, 11, leader.bootstrap(), client_id="patient", acks="1"))
        time.sleep(4)
        pause(follower, _FREEZE_S)
        time.sleep(3)


def _met_again(stage: Stage) -> None:
    """The follower of a topic with min.insync.replicas=2 stands still until it is out of sync, and catches up."""
    quick = {**QUICK_SESSIONS, "broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "1500"}
    leader = stage.broker(properties=quick)
    follower = stage.broker(properties=quick, controller=leader)
    stage.run(java_waits("topic", leader.bootstrap(), "orders", "1,2", "min.insync.replicas=2"))
    with stage.recording(leader.port(), follower.port()):
        bootstrap = f"{leader.bootstrap()},{follower.bootstrap()}"
        stage.start(rdkafka(stage, 12, bootstrap, acks="all", linger_ms="0", retry_backoff_ms="200"))
        time.sleep(4)
        pause(follower, _FREEZE_S)
        time.sleep(4)


def _other_port(stage: Stage) -> None:
    """The broker advertises a port at which something accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])
        broker = stage.broker(start=False, properties={"auto.create.topics.enable": "true"})
        broker.choose_ports()
        broker.advertised_ports["CLIENT"] = port
        broker.start()
        bootstrap = f"127.0.0.1:{broker.port()}"
        with stage.recording(broker.port(), port):
            stage.start(java(stage, 9, bootstrap, linger_ms="0"))
            stage.start(rdkafka(stage, 9, bootstrap))
            time.sleep(9)


def _same_address(stage: Stage) -> None:
    """The second broker advertises the address of the first."""
    first = stage.broker(properties=QUICK_SESSIONS)
    second = stage.broker(start=False, properties=QUICK_SESSIONS, controller=first)
    second.choose_ports()
    second.advertised_ports["CLIENT"] = first.port()
    second.start()
    stage.run(java_waits("topic", first.bootstrap(), "orders", "2"))
    with stage.recording(first.port(), second.port()):
        quiet = {"reconnect_backoff_ms": "500", "retry_backoff_ms": "500", "linger_ms": "0"}
        stage.start(java(stage, 8, first.bootstrap(), **quiet))
        stage.start(rdkafka(stage, 8, first.bootstrap(), **quiet))
        time.sleep(8)


def _same_node(stage: Stage) -> None:
    """A broker is started with the node id of another one that runs."""
    first = stage.broker(properties=QUICK_SESSIONS)
    stage.broker(properties=QUICK_SESSIONS, controller=first)
    late = RealBroker(stage.work / "late", properties=QUICK_SESSIONS, node_id=2, controller=first)
    late.choose_ports()
    stage.clients.append("brokers among themselves")
    with stage.recording(first.port("CONTROLLER")):
        late.launch()
        try:
            time.sleep(9)
        finally:
            late.kill()


FAULTS = [
    Fault(
        "assignor-unknown.pcap",
        "a consumer of the newer protocol (KIP-848) with a group.remote.assignor that no broker has",
        _one("reads", 4, 100, _CONSUMER, "group.remote.assignor=sticky"),
    ),
    Fault(
        "instance-unreleased.pcap",
        "two programs with one group.instance.id, in the newer protocol (KIP-848): the second is refused",
        _together(
            ("reads", _CONSUMER, "group.instance.id=one", "client.id=first"),
            ("reads", _CONSUMER, "group.instance.id=one", "client.id=second"),
        ),
    ),
    Fault(
        "group-of-other-type.pcap",
        "a consumer of the newer protocol joins a group that has a static member of the classic one; its assignor does "
        "not let the group change",
        _together(
            ("reads", "group.protocol=classic", "client.id=old"),
            ("reads", _CONSUMER, "client.id=new"),
            **{"group.consumer.migration.policy": "disabled"},
        ),
    ),
    Fault(
        "poll-too-late.pcap",
        "a consumer of the newer protocol works on each record for longer than max.poll.interval.ms",
        _one("reads", 14, 4000, _CONSUMER, "max.poll.interval.ms=2000", "max.poll.records=1", "client.id=slow"),
    ),
    Fault(
        "record-retried.pcap",
        "a consumer fails at the record 5 and seeks back to it, again and again",
        _one("returns", 7, 99, "client.id=poisoned"),
    ),
    Fault(
        "record-retried-once.pcap",
        "the same, which succeeds at the second attempt",
        _one("returns", 7, 1, "client.id=poisoned"),
        looks_like="record-retried.pcap",
    ),
    Fault(
        "consumer-crashes.pcap",
        "a consumer of the newer protocol (KIP-848) is killed and started again, three times",
        _restarts(crash=True),
        sniff=_OPEN,
    ),
    Fault(
        "consumer-ends-often.pcap",
        "the same, but it ends by itself each time and leaves its group",
        _restarts(crash=False),
        looks_like="consumer-crashes.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "share-group-without-state.pcap",
        "a member of a share group, and a cluster of one broker, where __share_group_state must have three replicas",
        _state("3"),
    ),
    Fault(
        "share-group-with-state.pcap",
        "the same with one replica",
        _state("1"),
        looks_like="share-group-without-state.pcap",
    ),
    Fault(
        "transactional-id-shared.pcap",
        "two programs with one transactional.id: the second fences the first",
        _together(
            ("transacts", "transactional.id=ledger", "client.id=first"),
            ("transacts", "transactional.id=ledger", "client.id=second"),
        ),
    ),
    Fault(
        "transactional-id-returns.pcap",
        "a program is killed and started again with the same transactional.id",
        _taken_over,
        looks_like="transactional-id-shared.pcap",
    ),
    Fault(
        "log-directory-lost.pcap",
        "one of a broker's two log directories disappears while clients use a partition in it (KAFKA_STORAGE_ERROR)",
        _storage,
        sniff=_OPEN,
    ),
    Fault(
        "offsets-deleted.pcap",
        "the committed offsets of a group are deleted while it is stopped; it continues at the end of the log",
        lambda stage: _offsets(stage, deleted=True),
    ),
    Fault(
        "offsets-kept.pcap",
        "the same without the deletion: it continues where it was",
        lambda stage: _offsets(stage, deleted=False),
        looks_like="offsets-deleted.pcap",
    ),
    Fault(
        "topic-recreated.pcap",
        "a topic is deleted and created again while a producer and a consumer use it",
        _recreated,
    ),
    Fault(
        "offsets-topic-impossible.pcap",
        "offsets.topic.replication.factor=3 with one broker: no group ever finds its coordinator",
        lambda stage: _internal_topic(stage, "3"),
    ),
    Fault(
        "offsets-topic-created.pcap",
        "the same with a factor of 1: the first group waits until the topic is created",
        lambda stage: _internal_topic(stage, "1"),
        looks_like="offsets-topic-impossible.pcap",
    ),
    Fault("sasl-at-plaintext.pcap", "a client with SASL at a listener without", _sasl),
    Fault(
        "share-group-locks-expire.pcap",
        "a member of a share group works for longer than group.share.record.lock.duration.ms",
        _locks,
    ),
    Fault(
        "unclean-election.pcap",
        "a follower that was down becomes leader after the leader died (unclean election, acks=1): acknowledged "
        "records are lost",
        _unclean,
        sniff=_OPEN,
    ),
    Fault(
        "request-timeout-long.pcap",
        f"a producer with acks=all and the usual timeouts; the follower stands still for {_FREEZE_S} seconds",
        _patient,
        looks_like="request-timeout-short.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "member-stands-still.pcap",
        "the process of a member of a group stands still for 6 s, less than the session timeout",
        _still(6, 100),
        sniff=_OPEN,
    ),
    Fault(
        "member-works-long.pcap",
        "the same, and the member works on each record for 4 s instead",
        _still(0, 4000),
        looks_like="member-stands-still.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "fetch-wait-long.pcap",
        "a consumer at the end of a log lets the broker wait for 5 s (fetch.max.wait.ms), and itself waits for 2 s "
        "(request.timeout.ms)",
        _one("reads", 14, 0, "client.id=hasty", *_LONG_WAIT, "request.timeout.ms=2000"),
        sniff=_OPEN,
    ),
    Fault(
        "fetch-wait-allowed.pcap",
        "the same with request.timeout.ms=8000",
        _one("reads", 14, 0, "client.id=hasty", *_LONG_WAIT, "request.timeout.ms=8000"),
        looks_like="fetch-wait-long.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "min-isr-met-again.pcap",
        f"the follower of a topic with min.insync.replicas=2 stands still for {_FREEZE_S} seconds, and catches up",
        _met_again,
        looks_like="min-isr-unmet.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "advertised-port-silent.pcap",
        "the broker advertises a port at which something accepts connections and never says anything",
        _other_port,
        sniff=_OPEN,
    ),
    Fault(
        "advertised-twice.pcap",
        "two brokers advertise the same address",
        _same_address,
        sniff=_OPEN,
    ),
    Fault(
        "node-id-twice.pcap",
        "a broker is started with the node id of another one that runs; captured at the controller",
        _same_node,
        sniff=_OPEN,
    ),
]
