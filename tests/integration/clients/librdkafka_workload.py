"""librdkafka: topics, every codec, a classic group of two members, transactions and errors, all of them reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from reporting import report
from sample_records import CODECS, RECORDS, Header, timestamp

GROUP = "rd-group"
WRITER = "rd-writer"
WAIT_S = 60.0
SILENCE_S = 2.0
"""librdkafka looks for idle connections once per second."""

bootstrap = sys.argv[1]
base: dict[str, Any] = {"bootstrap.servers": bootstrap, "debug": "protocol,broker"}


def send(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    *,
    headers: list[Header] | None = None,
    partition: int = 0,
    time_ms: int = timestamp(0),
    codec: str = "none",
    acks: bool = True,
) -> None:
    """Queue a record; the result is reported when the producer is flushed."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            report("failed", operation=f"produce to {topic}", error_code=error.code(), error=error.name())
            return
        report(
            "produced",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset() if acks else None,
            timestamp=message.timestamp()[1],
            key=key,
            value=value,
            headers=headers or [],
            codec=codec,
        )

    producer.produce(topic, value, key, partition=partition, headers=headers, timestamp=time_ms, on_delivery=delivered)


def consumed(client_id: str, message: Message) -> None:
    report(
        "consumed",
        client_id=client_id,
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )


def read(client_id: str, partitions: list[tuple[str, int]], records: int, **settings: Any) -> None:
    """Read partitions from their beginning until this many records have arrived."""
    own = {"client.id": client_id, "group.id": "rd-unused", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
    consumer = Consumer({**base, **own, **settings})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in partitions])
    for _ in range(records):
        message = consumer.poll(WAIT_S)
        if message is None or message.error():
            sys.exit(f"not all records came back: {message and message.error()}")
        consumed(client_id, message)
    consumer.close()


def create(admin: AdminClient, *topics: NewTopic) -> None:
    for topic, future in admin.create_topics(list(topics)).items():
        future.result()
        report("created", topic=topic, partitions=next(one.num_partitions for one in topics if one.topic == topic))


def samples() -> None:
    for codec in CODECS:
        own = {"client.id": f"rdkafka-{codec}", "compression.type": codec, "linger.ms": 50, "acks": "all"}
        producer = Producer({**base, **own})
        for index, (key, value, headers) in enumerate(RECORDS):
            number = 0 if index < 5 else 1
            send(producer, "rd-samples", value, key, headers=headers, partition=number, time_ms=timestamp(index),
                 codec=codec)  # fmt: skip
        producer.flush(WAIT_S)
    producer = Producer({**base, "client.id": "rdkafka-acks0", "acks": 0})
    for number in range(2):
        send(producer, "rd-samples", f"no answer wanted {number}".encode(), None, partition=1, acks=False)
        producer.flush(WAIT_S)
    read("rdkafka-reader", [("rd-samples", 0), ("rd-samples", 1)], len(CODECS) * len(RECORDS) + 2)


class Member:
    """A consumer that reports its partitions, reads and commits."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.owned: set[str] = set()
        self.handled = 0
        own: dict[str, Any] = {"client.id": client_id, "group.id": GROUP, "group.protocol": "classic"}
        own |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 200}
        own |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300, "partition.assignment.strategy": "range"}
        self.consumer = Consumer({**base, **own})
        self.consumer.subscribe(["rd-events"], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changed("assigned", partitions, self.owned.update)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changed("revoked", partitions, self.owned.difference_update)

    def changed(self, what: str, partitions: list[TopicPartition], change: Callable[[set[str]], None]) -> None:
        names = {f"{one.topic}-{one.partition}" for one in partitions}
        change(names)
        report(what, client_id=self.client_id, group=GROUP, member_id=self.consumer.memberid(),
               partitions=sorted(names), owned=sorted(self.owned))  # fmt: skip

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None or message.error():
            return
        consumed(self.client_id, message)
        self.consumer.commit(message, asynchronous=False)
        position = {f"{message.topic()}-{message.partition()}": message.offset() + 1}
        report("committed", client_id=self.client_id, group=GROUP, offsets=position)
        self.handled += 1

    def leave(self) -> None:
        self.consumer.close()
        report("left", client_id=self.client_id, group=GROUP)


def wait(members: list[Member], done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        for member in members:
            member.poll()
        if time.monotonic() > deadline:
            sys.exit(f"timed out waiting for {what}")


def group() -> None:
    """One member, two, one again; each change is followed by one record per partition, which must arrive."""
    producer = Producer({**base, "client.id": "rdkafka-events", "acks": 1})

    def settled(members: list[Member], number: int) -> None:
        share = [2 // len(members)] * len(members)
        wait(members, lambda: [len(member.owned) for member in members] == share, "partitions")
        wanted = sum(member.handled for member in members) + 2
        for partition in range(2):
            send(producer, "rd-events", f"round {number}".encode(), b"event", partition=partition)
        producer.flush(WAIT_S)
        wait(members, lambda: sum(member.handled for member in members) == wanted, "a round's records")

    first = Member("rdkafka-member-1")
    settled([first], 1)
    second = Member("rdkafka-member-2")
    settled([first, second], 2)
    second.leave()
    settled([first], 3)
    first.leave()


def transactions() -> None:
    own = {"client.id": "rdkafka-txn", "transactional.id": WRITER, "linger.ms": 5, "debug": "protocol,broker,eos"}
    producer = Producer({**base, **own})
    producer.init_transactions(WAIT_S)
    for result, values in (("commit", ["kept 1"]), ("abort", ["dropped 1", "dropped 2"]), ("commit", ["kept 2"])):
        producer.begin_transaction()
        for value in values:
            send(producer, "rd-ledger", value.encode(), b"account")
        producer.flush(WAIT_S)
        (producer.commit_transaction if result == "commit" else producer.abort_transaction)(WAIT_S)
        report("transaction", transactional_id=WRITER, result=result, values=values)
    for isolation, records in (("read_committed", 2), ("read_uncommitted", 4)):
        read(f"rdkafka-{isolation}", [("rd-ledger", 0)], records, **{"isolation.level": isolation})


def errors(admin: AdminClient) -> None:
    producer = Producer({**base, "client.id": "rdkafka-errors"})
    send(producer, "rd-small", b"large " * 200, b"k")
    producer.flush(WAIT_S)
    send(producer, "rd-small", b"small enough", b"k")
    producer.flush(WAIT_S)
    for operation, futures in (
        ("create a topic that exists", admin.create_topics([NewTopic("rd-events", 1, 1)])),
        ("delete an unknown topic", admin.delete_topics(["rd-nowhere"])),
        ("delete an unknown group", admin.delete_consumer_groups(["rd-nobody"])),
    ):
        for future in futures.values():
            try:
                future.result()
            except KafkaException as error:
                report("failed", operation=operation, error_code=error.args[0].code(), error=error.args[0].name())
            else:
                sys.exit(f"{operation} did not fail")


def reconnect() -> None:
    """A producer that is silent for longer than it keeps a connection, and reconnects for the second record."""
    producer = Producer({**base, "client.id": "rdkafka-idle", "connections.max.idle.ms": 500})
    send(producer, "rd-small", b"before a silence", b"k")
    producer.flush(WAIT_S)
    time.sleep(SILENCE_S)
    send(producer, "rd-small", b"after a silence", b"k")
    producer.flush(WAIT_S)


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
admin = AdminClient({**base, "client.id": "rdkafka-admin"})
create(
    admin,
    NewTopic("rd-samples", 2, 1),
    NewTopic("rd-events", 2, 1),
    NewTopic("rd-ledger", 1, 1),
    NewTopic("rd-small", 1, 1, config={"max.message.bytes": "500"}),
)
samples()
group()
transactions()
errors(admin)
reconnect()
