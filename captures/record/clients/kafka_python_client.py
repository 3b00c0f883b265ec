"""kafka-python: every codec produced and read back; a group of two members; what an administrator does."""

from __future__ import annotations

import logging
import sys
import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from reporting import report
from sample_records import CODECS, RECORDS, timestamp

bootstrap = sys.argv[2]
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.net.connection").setLevel(logging.DEBUG)


def tell(client_id: str, message: object) -> None:
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


def codecs() -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="python-admin")
    topics = [f"codec-{codec}" for codec in CODECS]
    admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])
    admin.close()
    for codec, topic in zip(CODECS, topics, strict=True):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=f"python-{codec}",
            compression_type=None if codec == "none" else codec,
            linger_ms=100,
            enable_idempotence=False,
        )
        sent = []
        for index, (key, value, headers) in enumerate(RECORDS):
            sent.append(
                producer.send(
                    topic,
                    value=value,
                    key=key,
                    headers=[pair for pair in headers if pair[1] is not None],  # it takes no null headers
                    partition=0 if index < 5 else 1,
                    timestamp_ms=timestamp(index),
                )
            )
        producer.flush()
        for future, (key, value, headers) in zip(sent, RECORDS, strict=True):
            done = future.get(10)
            report(
                "produced",
                topic=done.topic,
                partition=done.partition,
                offset=done.offset,
                timestamp=done.timestamp,
                key=key,
                value=value,
                headers=[pair for pair in headers if pair[1] is not None],
                codec=codec,
                error=None,
            )
        producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, client_id="python-reader", auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for topic in topics for number in (0, 1)])
    for _ in range(len(CODECS) * len(RECORDS)):
        tell("python-reader", next(consumer))
    consumer.close()


def group() -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="python-admin")
    admin.create_topics([NewTopic("group-topic", 2, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="python-producer", acks=1, enable_idempotence=False)
    for number in (0, 1):
        done = producer.send(
            "group-topic", b"for the group", b"k", partition=number, timestamp_ms=timestamp(number)
        ).get(10)
        report(
            "produced", topic=done.topic, partition=done.partition, offset=done.offset, key="k", value="for the group"
        )
    producer.close()

    joined = [threading.Event(), threading.Event()]
    leave = [threading.Event(), threading.Event()]

    def member(number: int) -> None:
        client_id = f"python-member-{number}"
        consumer = KafkaConsumer(
            "group-topic",
            bootstrap_servers=bootstrap,
            client_id=client_id,
            group_id="python-group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=1000,
        )
        owned: set[TopicPartition] = set()
        while not leave[number].is_set():
            for partition, messages in consumer.poll(200).items():
                for message in messages:
                    tell(client_id, message)
                position = messages[-1].offset + 1
                consumer.commit({partition: OffsetAndMetadata(position, f"by {client_id}", -1)})
                report("committed", client_id=client_id, group="python-group", topic=partition.topic,
                       partition=partition.partition, offset=position, metadata=f"by {client_id}")  # fmt: skip
            if consumer.assignment() != owned:
                owned = set(consumer.assignment())
                names = sorted(f"{one.topic}-{one.partition}" for one in owned)
                report("assigned", client_id=client_id, group="python-group", partitions=names)
                if owned:
                    joined[number].set()
        consumer.close()
        report("left", client_id=client_id, group="python-group")

    threads = [threading.Thread(target=member, args=(number,)) for number in (0, 1)]
    for thread, event in zip(threads, joined, strict=True):
        thread.start()
        if not event.wait(30):
            sys.exit("a member got no partitions")
    time.sleep(1)
    for number in (1, 0):
        leave[number].set()
        threads[number].join(20)
    admin.close()


def administration() -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="python-admin")
    admin.create_topics([NewTopic("settings", 1, 1, topic_configs={"retention.ms": "60000"})])
    for description in admin.describe_topics(["settings"]):
        report("described_topic", description=description)
    settings = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "settings", {"retention.ms": None})])
    report("described_settings", settings=str(settings)[:2000])
    report("described_cluster", cluster=admin.describe_cluster())
    report("listed_topics", topics=sorted(admin.list_topics()))
    for operation, attempt in (
        ("create a topic that exists", lambda: admin.create_topics([NewTopic("settings", 1, 1)])),
        ("delete an unknown topic", lambda: admin.delete_topics(["no-such-topic"])),
    ):
        try:
            attempt()
        except KafkaError as error:
            report(
                "failed",
                operation=operation,
                error_code=getattr(error, "errno", None),
                error=getattr(error, "message", None),
            )
        else:
            sys.exit(f"{operation} did not fail")
    admin.delete_topics(["settings"])
    report("deleted", topic="settings")
    admin.close()


report("client", name="kafka-python", version=kafka.__version__)
{"codecs": codecs, "group": group, "admin": administration}[sys.argv[1]]()
