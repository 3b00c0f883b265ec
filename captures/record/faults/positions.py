"""Recordings of consumers, groups, transactions and sessions that make no progress, and of such as do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..broker import Listener, RealBroker
from ..distribution import DEFAULT_VERSION, python_with
from ..programs import CLIENTS, CONFLUENT, SASL, SHARE_GROUPS, java_program
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import go, greeted_session, kafkajs, rdkafka
from .waits import java_waits, librdkafka

_LIBRDKAFKA = "librdkafka (confluent-kafka 2.16.1)"
_SESSIONS = Listener(SASL.name, SASL.protocol, properties={**SASL.properties, "connections.max.reauth.ms": "3000"})
_QUICK_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_OPEN = SniffOptions(until_quiet=False)
_SMALL_QUEUE = ("queued.min.messages=100", "queued.max.messages.kbytes=8", "fetch.message.max.bytes=4000")
"""librdkafka otherwise reads far ahead of the program."""


def groups(word: str, broker: RealBroker, seconds: float = 0, *settings: str, topic: str = "orders") -> Sequence[str]:
    """Command line of ``rdkafka_groups.py``."""
    program = [python_with(*CONFLUENT), str(CLIENTS / "faults" / "rdkafka_groups.py")]
    return [*program, word, broker.bootstrap(), topic, str(seconds), *settings]


def _broker(stage: Stage, records: int = 0, topic: str = "orders", **properties: str) -> RealBroker:
    """A broker with a topic of one partition and records of ten bytes in it."""
    broker = stage.broker(properties={name.replace("_", "."): value for name, value in properties.items()})
    stage.clients.append(_LIBRDKAFKA)
    if topic:
        stage.run(java_waits("topic", broker.bootstrap(), topic, "1"))
    if records:
        stage.run(librdkafka("produce", broker.bootstrap(), topic, str(records), "10", "linger.ms=50"))
    return broker


def _session(stage: Stage, renewed: bool) -> None:
    """Sessions of three seconds; a client that authenticates once per connection, or one that does so in time."""
    broker = stage.broker(listeners=(_SESSIONS,))
    stage.run(java_waits("topic", f"127.0.0.1:{broker.port('INTERNAL')}", "orders", "1"))
    with stage.recording(broker.port(SASL.name)):
        if renewed:
            login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "PLAIN"}
            login |= {"sasl_username": "alice", "sasl_password": "alice-secret", "allow_auto_create_topics": "false"}
            stage.run(rdkafka(stage, 9, broker.bootstrap(SASL.name), **login))
        else:
            for _ in range(3):
                greeted_session(stage, broker.port(SASL.name), "alice", "alice-secret", seconds=8)


def _shared_instance(stage: Stage) -> None:
    """Two programs, started a few seconds apart, that both call themselves `one`."""
    broker = _broker(stage, 20)
    settings = ("group.instance.id=one",)
    with stage.recording(broker.port()):
        first = stage.start(groups("again", broker, 14, *settings, "client.id=first"))
        time.sleep(4)
        second = stage.start(groups("again", broker, 10, *settings, "client.id=second"))
        first.wait()
        second.wait()


def _returning_instance(stage: Stage) -> None:
    """A program is killed and started again."""
    broker = _broker(stage, 20)
    settings = ("group.instance.id=one", "client.id=first")
    with stage.recording(broker.port()):
        first = stage.start(groups("once", broker, 60, *settings))
        time.sleep(5)
        first.kill()
        first.wait()
        stage.run(groups("once", broker, 5, *settings))


def _restarts(*words: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        broker = _broker(stage, 40)
        with stage.recording(broker.port()):
            for word in words:
                stage.run(groups(word, broker, 10), fails=True)

    return play


def _stops(stage: Stage, word: str, *, early: bool) -> None:
    """The only member of a group ends and is not started again, while records are written: `early`, also before."""
    broker = _broker(stage, 40)
    writer = rdkafka(stage, 25 if early else 15, broker.bootstrap(), client_id="writer")
    with stage.recording(broker.port()):
        if early:
            stage.start(writer)
        stage.run(groups(word, broker, 10 if early else 40, "client.id=reader"), fails=True)
        if not early:
            stage.start(writer)
        time.sleep(15)


def _share(stage: Stage, records: int, times: int) -> None:
    broker = _broker(stage, 20, **{name.replace(".", "_"): value for name, value in SHARE_GROUPS.items()})
    stage.clients.append(f"Apache Kafka's Java client {DEFAULT_VERSION}")
    worker = java_program("ShareWorker", version=DEFAULT_VERSION, sources="java-faults")()
    with stage.recording(broker.port()):
        stage.run([*worker, broker.bootstrap(), "orders", "8", str(records), str(times)])


def _lag(stage: Stage, backlog: int, word: str) -> None:
    """A producer of some 100 records a second for half a minute, and a consumer that is slower or faster."""
    broker = _broker(stage, backlog)
    with stage.recording(broker.port()):
        reader = stage.start(groups(word, broker, 30, *_SMALL_QUEUE))
        command = ("burst", broker.bootstrap(), "orders", "2500", "10", "client.id=shop", "linger.ms=500")
        stage.run(librdkafka(*command))
        reader.wait()


def _missing(stage: Stage) -> None:
    broker = _broker(stage, topic="")
    with stage.recording(broker.port()):
        producer = stage.start(rdkafka(stage, 9, broker.bootstrap(), "misspelt"))
        stage.run(groups("once", broker, 9, "client.id=reader", topic="misspelt"))
        producer.wait()


def _others(stage: Stage, created: bool) -> None:
    """sarama that ends with its first record, then franz-go and kafkajs, and a topic that is created by use, or not."""
    broker = stage.broker(properties={"auto.create.topics.enable": "true"} if created else {})
    with stage.recording(broker.port()):
        stage.run(go(stage, "sarama-once", 0, broker.bootstrap()))
        stage.run(go(stage, "franz-go", 2, broker.bootstrap(), "payments"))
        stage.run(kafkajs(stage, 2, broker.bootstrap(), "invoices"))


def _created(stage: Stage) -> None:
    """The topic is there before anybody gives up."""
    broker = _broker(stage, topic="")
    with stage.recording(broker.port()):
        producer = stage.start(rdkafka(stage, 8, broker.bootstrap()))
        time.sleep(3)
        stage.run(groups("create", broker, 0, "client.id=admin"))
        producer.wait()


def _deleted(stage: Stage) -> None:
    broker = _broker(stage)
    with stage.recording(broker.port()):
        producer = stage.start(rdkafka(stage, 14, broker.bootstrap(), topic_metadata_refresh_interval_ms="1000"))
        reader = stage.start(groups("once", broker, 14, "client.id=reader"))
        time.sleep(5)
        stage.run(groups("drop", broker, 0, "client.id=admin"))
        producer.wait()
        reader.wait()


def _transaction(stage: Stage, timeout_ms: int) -> None:
    """A transaction of five seconds, read meanwhile."""
    broker = stage.broker(properties=_QUICK_TIMEOUTS)
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    with stage.recording(broker.port()):
        reader = stage.start(groups("once", broker, 9, "client.id=reader"))
        stage.run(groups("begun", broker, 5, f"transaction.timeout.ms={timeout_ms}", "client.id=writer"))
        reader.wait()


def _held_back(stage: Stage, killed: bool) -> None:
    """A transaction that nobody ends, or of 7 seconds, with records of another producer after its first one."""
    broker = stage.broker()
    stage.clients.append(_LIBRDKAFKA)
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    with stage.recording(broker.port()):
        reader = stage.start(groups("once", broker, 15, "client.id=reader", "isolation.level=read_committed"))
        writer = stage.start(groups("begun", broker, 7, "transaction.timeout.ms=60000", "client.id=ledger"))
        time.sleep(4)
        if killed:
            writer.kill()
        stage.run(rdkafka(stage, 8, broker.bootstrap()))
        reader.wait()
        writer.wait()


def _out_of_range(stage: Stage, committed: int, deleted: int, reset: str) -> None:
    """A group that returns to a log of 100 records."""
    broker = _broker(stage, 100)
    stage.run(groups(f"commit-{committed}", broker))
    if deleted:
        stage.run(groups(f"deleted-{deleted}", broker))
    with stage.recording(broker.port()):
        stage.run(groups("once", broker, 4, "client.id=reader", f"auto.offset.reset={reset}"))


FAULTS = [
    Fault(
        "sasl-session-over.pcap",
        "sessions of 3 seconds (connections.max.reauth.ms); the client does not authenticate again, and the broker "
        "closes its connection at the next request",
        lambda stage: _session(stage, renewed=False),
    ),
    Fault(
        "sasl-session-renewed.pcap",
        "the same with a client that authenticates again in time (KIP-368)",
        lambda stage: _session(stage, renewed=True),
        looks_like="sasl-session-over.pcap",
    ),
    Fault(
        "instance-shared.pcap",
        "two programs with one group.instance.id: each fences the other, is fenced, and starts again",
        _shared_instance,
    ),
    Fault(
        "instance-returns.pcap",
        "a static member is killed and started again with the same group.instance.id",
        _returning_instance,
        looks_like="instance-shared.pcap",
    ),
    Fault(
        "poison-record.pcap",
        "a consumer commits each record, fails at record 7, and is started again, five times",
        _restarts(*["stops-at-7"] * 5),
    ),
    Fault(
        "consumer-restarts.pcap",
        "the same consumer, which ends after five records each time and continues where it was",
        _restarts(*["takes-5"] * 5),
        looks_like="poison-record.pcap",
    ),
    Fault(
        "poison-record-twice.pcap",
        "a consumer fails at the first record without a commit, is started again, and fails again",
        _restarts("stops-at-0", "stops-at-0"),
    ),
    Fault(
        "record-fails-once.pcap",
        "a consumer fails at the first record without a commit, is started again, and continues",
        _restarts("stops-at-0", "once"),
        looks_like="poison-record-twice.pcap",
    ),
    Fault(
        "poison-record-once.pcap",
        "a consumer fails at record 7, leaves its group, and is not started again; records are still written",
        lambda stage: _stops(stage, "stops-at-7", early=True),
        sniff=_OPEN,
    ),
    Fault(
        "group-done.pcap",
        "a consumer reads the 40 records that are there, leaves its group, and is not started again; then others are "
        "written",
        lambda stage: _stops(stage, "takes-40", early=False),
        looks_like="poison-record-once.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "share-group-archives.pcap",
        "a member of a share group releases three records each time, until the broker archives them after 5 deliveries",
        lambda stage: _share(stage, 3, 99),
    ),
    Fault(
        "share-group-releases-once.pcap",
        "the same with one record that is released once and accepted then",
        lambda stage: _share(stage, 1, 1),
        looks_like="share-group-archives.pcap",
    ),
    Fault(
        "lag-grows.pcap",
        "100 records a second for a consumer that processes 25 a second",
        lambda stage: _lag(stage, 0, "slow-25"),
    ),
    Fault(
        "lag-drains.pcap",
        "the same producer, a consumer with a backlog of 2,000 records that processes 250 a second",
        lambda stage: _lag(stage, 2000, "slow-250"),
        looks_like="lag-grows.pcap",
    ),
    Fault("topic-missing.pcap", "a producer and a consumer of a topic that does not exist", _missing),
    Fault(
        "topic-created.pcap",
        "a producer of a topic that is created three seconds later",
        _created,
        looks_like="topic-missing.pcap",
    ),
    Fault(
        "topic-missing-others.pcap",
        "sarama, franz-go and kafkajs produce to topics that do not exist; sarama gives up within a second",
        lambda stage: _others(stage, created=False),
    ),
    Fault(
        "topic-created-by-use.pcap",
        "the same with auto.create.topics.enable",
        lambda stage: _others(stage, created=True),
        looks_like="topic-missing-others.pcap",
    ),
    Fault("topic-deleted.pcap", "a topic is deleted while a producer and a consumer use it", _deleted),
    Fault(
        "transaction-timed-out.pcap",
        "a transaction is open for 5 seconds with a timeout of 2: the coordinator aborts it and fences the producer",
        lambda stage: _transaction(stage, 2000),
    ),
    Fault(
        "transaction-long.pcap",
        "the same with a timeout of 60 seconds: committed",
        lambda stage: _transaction(stage, 60_000),
        looks_like="transaction-timed-out.pcap",
    ),
    Fault(
        "transaction-left-open.pcap",
        "a transactional producer is killed before it commits; a read_committed consumer gets nothing of what another "
        "producer writes",
        lambda stage: _held_back(stage, True),
    ),
    Fault(
        "transaction-ended-late.pcap",
        "the same, but the producer commits after seven seconds",
        lambda stage: _held_back(stage, False),
        looks_like="transaction-left-open.pcap",
    ),
    Fault(
        "offset-out-of-range.pcap",
        "a group's offset 10 was deleted from the log, which begins at 60 now: 50 records are skipped",
        lambda stage: _out_of_range(stage, 10, 60, "earliest"),
    ),
    Fault(
        "offset-beyond-end-replayed.pcap",
        "a group's offset 500 is beyond the log's end, 100: it starts over at 0, and reads all records again",
        lambda stage: _out_of_range(stage, 500, 0, "earliest"),
    ),
    Fault(
        "offset-beyond-end.pcap",
        "the same, but it continues at the end, and nothing is skipped or read again",
        lambda stage: _out_of_range(stage, 500, 0, "latest"),
        looks_like="offset-beyond-end-replayed.pcap",
    ),
]
