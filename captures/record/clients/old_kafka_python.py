"""kafka-python 2.0 as if brokers were old: message formats 0 and 1, early versions of requests, raw SASL tokens."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from reporting import report
from sample_records import RECORDS, timestamp

scenario, bootstrap = sys.argv[1:3]
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.conn").setLevel(logging.DEBUG)

# What each release made of records: 0.8 and 0.9 format 0, 0.10 format 1, 0.11 batches with headers.
RELEASES = ((0, 8, 2), (0, 9), (0, 10), (0, 11))
CODECS = ("none", "gzip", "snappy", "lz4")


def create(topics: list[str], partitions: int = 1, **settings: Any) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="old-admin", api_version=(0, 11), **settings)
    admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    report("created", topics=topics, partitions=partitions)
    time.sleep(1)  # until the broker leads them: early clients do not repeat what failed
    admin.close()


def tell(client_id: str, message: Any) -> None:
    place = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    content = {"timestamp": message.timestamp, "key": message.key, "value": message.value}
    report("consumed", client_id=client_id, **place, **content, headers=list(message.headers or []))


def formats() -> None:
    topics = {release: [f"old-{'.'.join(map(str, release))}-{codec}" for codec in CODECS] for release in RELEASES}
    create([topic for names in topics.values() for topic in names])
    for release, names in topics.items():
        for codec, topic in zip(CODECS, names, strict=True):
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                client_id=f"writer-{topic}",
                api_version=release,
                compression_type=None if codec == "none" else codec,
                linger_ms=100,
            )
            sent = []
            for index, (key, value, headers) in enumerate(RECORDS[:4]):
                with_headers = [pair for pair in headers if pair[1] is not None] if release >= (0, 11) else None
                times = timestamp(index) if release >= (0, 10) else None
                sent.append((key, value, with_headers, producer.send(topic, value, key, with_headers, 0, times)))
            producer.flush()
            for key, value, with_headers, future in sent:
                done = future.get(10)
                report("produced", topic=topic, partition=0, offset=done.offset, timestamp=done.timestamp, key=key,
                       value=value, headers=with_headers or [], codec=codec, api_release=release)  # fmt: skip
            producer.close()
    for release, names in topics.items():
        client_id = f"reader-{'.'.join(map(str, release))}"
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            api_version=release,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=200,
            consumer_timeout_ms=15000,
        )
        consumer.assign([TopicPartition(topic, 0) for topic in names])
        for _ in range(4 * len(names)):
            tell(client_id, next(consumer))
        consumer.close(autocommit=False)


def group() -> None:
    create(["old-group-topic"], 2)
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="old-writer", api_version=(0, 9), acks=0)
    for number in (0, 1):
        producer.send("old-group-topic", f"value {number}".encode(), b"k", partition=number)
    producer.flush()
    producer.close()
    for release in ((0, 8, 2), (0, 9), (0, 10), (0, 11)):
        name = ".".join(map(str, release))
        consumer = KafkaConsumer(
            "old-group-topic",
            bootstrap_servers=bootstrap,
            client_id=f"old-member-{name}",
            group_id=f"old-group-{name}",
            api_version=release,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=200,
            consumer_timeout_ms=15000,
        )
        for _ in (0, 1):
            tell(f"old-member-{name}", next(consumer))
        consumer.commit()
        committed = {one.partition: consumer.committed(one) for one in sorted(consumer.assignment())}
        report(
            "committed",
            client_id=f"old-member-{name}",
            group=f"old-group-{name}",
            topic="old-group-topic",
            offsets=committed,
        )
        consumer.close(autocommit=False)


def sasl() -> None:
    for mechanism, password in (("PLAIN", "bob-secret"), ("SCRAM-SHA-256", "bob-secret"), ("PLAIN", "wrong-secret")):
        settings = {
            "bootstrap_servers": bootstrap,
            "client_id": f"raw-{mechanism.lower()}",
            "api_version": (0, 10),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "bob",
            "sasl_plain_password": password,
        }
        try:
            producer = KafkaProducer(**settings, max_block_ms=1500, retries=0, reconnect_backoff_ms=1000)
            done = producer.send("raw-sasl", mechanism.encode(), partition=0, timestamp_ms=timestamp(0)).get(3)
        except KafkaError as error:
            report(
                "failed", operation=f"produce after logging in with {password}", mechanism=mechanism, error=str(error)
            )
            continue
        report("authenticated", client_id=settings["client_id"], mechanism=mechanism, user="bob", password=password)
        report("produced", topic="raw-sasl", partition=0, offset=done.offset, timestamp=done.timestamp, key=None,
               value=mechanism, headers=[])  # fmt: skip
        producer.close()


report("client", name="kafka-python", version=kafka.__version__)
{"formats": formats, "group": group, "sasl": sasl}[scenario]()
