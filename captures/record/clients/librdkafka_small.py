"""librdkafka: short scenarios, one per word on the command line."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from reporting import report
from sample_records import timestamp

scenario, bootstrap = sys.argv[1:3]
base: dict[str, Any] = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "any"}
base |= json.loads(os.environ.get("CLIENT_SETTINGS", "{}"))


def create(topic: str, partitions: int = 1) -> None:
    admin = AdminClient({**base, "client.id": "rdkafka-admin"})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    report("created", topic=topic, partitions=partitions)


def produce(topic: str, values: list[str], *, client_id: str = "rdkafka-producer", **settings: Any) -> None:
    def delivered(error: object, message: Message) -> None:
        fields: dict[str, Any] = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
        }
        fields |= {"timestamp": message.timestamp()[1], "key": message.key(), "value": message.value(), "headers": []}
        report("produced", **fields, codec=settings.get("compression.type", "none"), error=error and str(error))

    producer = Producer({**base, "client.id": client_id, "linger.ms": 20, **settings})
    for index, value in enumerate(values):
        producer.produce(topic, value, f"key-{index}", partition=0, timestamp=timestamp(index), on_delivery=delivered)
    producer.flush(20)


def consume(topic: str, records: int, *, client_id: str = "rdkafka-reader", **settings: Any) -> None:
    own = {"client.id": client_id, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
    consumer = Consumer({**base, **own, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for _ in range(records):
        message = consumer.poll(15)
        if message is None or message.error():
            sys.exit(f"not all records came back: {message and message.error()}")
        report("consumed", client_id=client_id, topic=message.topic(), partition=message.partition(),
               offset=message.offset(), timestamp=message.timestamp()[1], key=message.key(), value=message.value(),
               headers=message.headers() or [])  # fmt: skip
    consumer.close()


def acks_zero() -> None:
    create("fire-and-forget")
    produce("fire-and-forget", ["no answer wanted", "nor here"], acks=0)
    time.sleep(0.5)
    consume("fire-and-forget", 2)


def plain() -> None:
    create("simple", 2)
    produce("simple", ["one", "two", "three"], **{"compression.type": "lz4"})
    consume("simple", 3)


def large() -> None:
    create("large")
    produce("large", ["0123456789abcdef" * 3000, "tail " * 4000], client_id="rdkafka-large")
    consume("large", 2)


def transaction() -> None:
    create("transfers")
    producer = Producer({**base, "client.id": "rdkafka-txn", "transactional.id": "rd-transfers", "linger.ms": 5})
    producer.init_transactions(20)
    for result, values in (("commit", ["kept 1", "kept 2"]), ("abort", ["dropped"]), ("commit", ["kept 3"])):
        producer.begin_transaction()
        for value in values:
            producer.produce("transfers", value, "account", partition=0, timestamp=timestamp(0))
        producer.flush(20)
        if result == "commit":
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
        report("transaction", transactional_id="rd-transfers", result=result, values=values)
    consume("transfers", 3, client_id="rdkafka-committed", **{"isolation.level": "read_committed"})
    consume("transfers", 4, client_id="rdkafka-uncommitted", **{"isolation.level": "read_uncommitted"})


def sasl() -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for password in ("bob-secret", "wrong-secret"):
            client_id = f"rdkafka-{mechanism.lower()}"
            own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "bob"}
            own |= {"reconnect.backoff.ms": 1500, "reconnect.backoff.max.ms": 3000}  # few attempts
            admin = AdminClient({**base, **own, "sasl.password": password, "client.id": client_id})
            try:
                metadata = admin.list_topics(timeout=4)
            except KafkaException as error:
                report("failed", operation=f"log in with {password}", mechanism=mechanism, error=error.args[0].name())
            else:
                report("authenticated", client_id=client_id, mechanism=mechanism, user="bob", password=password,
                       cluster_id=metadata.cluster_id)  # fmt: skip


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
{"acks0": acks_zero, "plain": plain, "large": large, "transaction": transaction, "sasl": sasl}[scenario]()
