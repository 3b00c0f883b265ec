"""kafka-python: topics, every codec, a classic group of two members, transactions and errors, all of them reported."""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from reporting import report
from sample_records import CODECS, RECORDS, Header, timestamp

GROUP = "python-group"
WRITER = "python-writer"
WAIT_S = 60.0
SILENCE_S = 1.5

bootstrap = sys.argv[1]
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.net.connection").setLevel(logging.DEBUG)


def producer_of(client_id: str, **settings: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, **settings)


def send(
    producer: KafkaProducer,
    topic: str,
    records: list[tuple[bytes | None, bytes | None, list[Header], int, int]],
    codec: str = "none",
) -> None:
    """Produce records (key, value, headers, partition, timestamp), wait for the responses and report them."""
    sent = [
        producer.send(topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=time_ms)
        for key, value, headers, partition, time_ms in records
    ]
    producer.flush()
    for future, (key, value, headers, _, _) in zip(sent, records, strict=True):
        done = future.get(WAIT_S)
        report(
            "produced",
            topic=done.topic,
            partition=done.partition,
            offset=done.offset,
            timestamp=done.timestamp,
            key=key,
            value=value,
            headers=headers,
            codec=codec,
        )


def consumed(client_id: str, message: Any) -> None:
    report(
        "consumed",
        client_id=client_id,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp,
        key=message.key,
        value=message.value,
        headers=list(message.headers),
    )


def read(client_id: str, partitions: list[tuple[str, int]], records: int, **settings: Any) -> None:
    """Read partitions from their beginning until this many records have arrived."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
        **settings,
    )
    consumer.assign([TopicPartition(topic, number) for topic, number in partitions])
    try:
        for _ in range(records):
            consumed(client_id, next(consumer))
    except StopIteration:
        sys.exit("not all records came back")
    consumer.close()


def samples() -> None:
    for codec in CODECS:
        kind = None if codec == "none" else codec
        producer = producer_of(f"python-{codec}", compression_type=kind, linger_ms=50, enable_idempotence=False)
        records = [
            # kafka-python accepts no null headers.
            (key, value, [pair for pair in headers if pair[1] is not None], 0 if index < 5 else 1, timestamp(index))
            for index, (key, value, headers) in enumerate(RECORDS)
        ]
        send(producer, "python-samples", records, codec)
        producer.close()
    read("python-reader", [("python-samples", 0), ("python-samples", 1)], len(CODECS) * len(RECORDS))


class Member(threading.Thread, ConsumerRebalanceListener):
    """A consumer on a thread of its own that reports its partitions, reads and commits, until it is asked to leave."""

    def __init__(self, client_id: str) -> None:
        super().__init__(name=client_id)
        self.client_id = client_id
        self.owned: set[str] = set()
        self.partitions = 0
        self.handled = 0
        self.leaving = threading.Event()
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=200,
        )

    def run(self) -> None:
        self.consumer.partitions_for_topic("python-events")  # otherwise it may join before it knows the partitions
        self.consumer.subscribe(["python-events"], listener=self)
        while not self.leaving.is_set():
            # Long, because kafka-python 3.0 may miss the end of a rebalance if a poll returns in the middle of it.
            for partition, messages in self.consumer.poll(1000).items():
                for message in messages:
                    consumed(self.client_id, message)
                position = messages[-1].offset + 1
                self.consumer.commit({partition: OffsetAndMetadata(position, f"by {self.client_id}", -1)})
                report("committed", client_id=self.client_id, group=GROUP, metadata=f"by {self.client_id}",
                       offsets={f"{partition.topic}-{partition.partition}": position})  # fmt: skip
                self.handled += len(messages)
        self.consumer.close()
        report("left", client_id=self.client_id, group=GROUP)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.changed("assigned", assigned, self.owned.update)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.changed("revoked", revoked, self.owned.difference_update)

    def changed(self, what: str, partitions: list[TopicPartition], change: Callable[[set[str]], None]) -> None:
        names = {f"{one.topic}-{one.partition}" for one in partitions}
        change(names)
        if not names and not self.owned:
            return  # before it joins, it is called with nothing revoked
        of = self.consumer.group_metadata()
        report(what, client_id=self.client_id, group=GROUP, member_id=of.member_id, generation=of.generation_id,
               partitions=sorted(names), owned=sorted(self.owned))  # fmt: skip
        self.partitions = len(self.owned)


def wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            faulthandler.dump_traceback(all_threads=True)
            sys.exit(f"timed out waiting for {what}")
        time.sleep(0.02)


def group() -> None:
    """One member, two, one again; each change is followed by one record per partition, which must arrive."""
    producer = producer_of("python-events", acks=1, enable_idempotence=False)

    def settled(members: list[Member], number: int) -> None:
        share = [2 // len(members)] * len(members)
        wait(lambda: [member.partitions for member in members] == share, "partitions")
        wanted = sum(member.handled for member in members) + 2
        send(
            producer,
            "python-events",
            [(b"event", f"round {number}".encode(), [], partition, timestamp(number)) for partition in range(2)],
        )
        wait(lambda: sum(member.handled for member in members) == wanted, "a round's records")

    first, second = Member("python-member-1"), Member("python-member-2")
    for member in (first, second):
        member.daemon = True
    first.start()
    settled([first], 1)
    second.start()
    settled([first, second], 2)
    second.leaving.set()
    second.join(WAIT_S)
    settled([first], 3)
    first.leaving.set()
    first.join(WAIT_S)
    producer.close()


def transactions() -> None:
    producer = producer_of("python-txn", transactional_id=WRITER)
    producer.init_transactions()
    for result, values in (("commit", ["kept 1"]), ("abort", ["dropped 1", "dropped 2"]), ("commit", ["kept 2"])):
        producer.begin_transaction()
        for value in values:
            send(producer, "python-ledger", [(b"account", value.encode(), [], 0, timestamp(0))])
        (producer.commit_transaction if result == "commit" else producer.abort_transaction)()
        report("transaction", transactional_id=WRITER, result=result, values=values)
    producer.close()
    for isolation, records in (("read_committed", 2), ("read_uncommitted", 4)):
        read(f"python-{isolation}", [("python-ledger", 0)], records, isolation_level=isolation)


def errors(admin: KafkaAdminClient) -> None:
    producer = producer_of("python-errors", enable_idempotence=False)

    def too_large() -> None:
        producer.send("python-small", b"large " * 200, partition=0, timestamp_ms=timestamp(0)).get(WAIT_S)

    for operation, attempt in (
        ("produce a too large record", too_large),
        ("create a topic that exists", lambda: admin.create_topics([NewTopic("python-events", 1, 1)])),
        ("delete an unknown topic", lambda: admin.delete_topics(["python-nowhere"])),
    ):
        try:
            attempt()
        except KafkaError as error:
            report("failed", operation=operation, error_code=error.errno, error=error.message)
        else:
            sys.exit(f"{operation} did not fail")
    send(producer, "python-small", [(b"k", b"small enough", [], 0, timestamp(0))])
    producer.close()


def reconnect() -> None:
    """A producer that is silent for longer than it keeps a connection, and reconnects for the second record."""
    producer = producer_of("python-idle", enable_idempotence=False, connections_max_idle_ms=500)
    send(producer, "python-small", [(b"k", b"before a silence", [], 0, timestamp(0))])
    time.sleep(SILENCE_S)
    send(producer, "python-small", [(b"k", b"after a silence", [], 0, timestamp(0))])
    producer.close()


report("client", name="kafka-python", version=kafka.__version__)
admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="python-admin")
topics = {"python-samples": 2, "python-events": 2, "python-ledger": 1}
admin.create_topics(
    [NewTopic(topic, partitions, 1) for topic, partitions in topics.items()]
    + [NewTopic("python-small", 1, 1, topic_configs={"max.message.bytes": "500"})]
)
for topic, partitions in {**topics, "python-small": 1}.items():
    report("created", topic=topic, partitions=partitions)
samples()
group()
transactions()
errors(admin)
reconnect()
admin.close()
