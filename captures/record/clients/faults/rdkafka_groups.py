"""librdkafka's consumers and transactions where something goes wrong: WORD BOOTSTRAP TOPIC SECONDS [NAME=VALUE…].

once: consume and commit each record until SECONDS are over. stops-at-N: the same, but the program fails at the record
`N`, without a commit. takes-N: the same, but the program ends after N records. slow-N: process N records a second and
commit once a second. commit-N: commit offset N and end. again: as once, and start again after a fatal error. begun: a
transaction of one record that is committed after SECONDS, whatever comes of it; then another one by the same program.
deleted-N: delete the records before N. forget: delete the group's offsets. drop, create: delete or create the topic.
creates-N: create N topics with 10 partitions each, one request after the other, on one connection.
looks-N: look at topics, offsets and groups N times, as a user interface for clusters does.
"""

from __future__ import annotations

import contextlib
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

word, bootstrap, topic, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
settings = {"bootstrap.servers": bootstrap, "client.id": "rdkafka", "broker.address.family": "v4"}
settings |= dict(one.split("=", 1) for one in sys.argv[5:])
verb, _, number = word.partition("-")
count = int(number.removeprefix("at-") or 0)
deadline = time.monotonic() + seconds


def consume() -> bool:
    """Whether it ended with a fatal error."""
    consumer = Consumer(
        {
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            **settings,
        }
    )
    consumer.subscribe([topic])
    done, committed = 0, time.monotonic()
    try:
        while time.monotonic() < deadline and not (verb == "takes" and done == count):
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                if message.error().fatal() or message.error().code() == KafkaError._FATAL:
                    return True
                continue
            if verb == "stops" and message.offset() == count:
                raise ValueError(f"record {count} cannot be processed")
            done += 1
            if verb == "slow":
                time.sleep(1 / count)
            if verb != "slow" or time.monotonic() - committed >= 1:
                committed = time.monotonic()
                try:
                    consumer.commit(message=message, asynchronous=False)
                except KafkaException as error:
                    if error.args[0].fatal():
                        return True
        return False
    finally:
        consumer.close()


def transaction(producer: Producer, lasting: float) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"made up")
    producer.flush(5)
    time.sleep(lasting)
    producer.commit_transaction(10)


def look() -> None:
    admin.list_topics(timeout=5)
    for offset in admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values():
        offset.result(5)
    admin.list_consumer_groups().result(5)
    for group in admin.describe_consumer_groups(["readers", "writers"]).values():
        group.result(5)


admin = AdminClient(settings) if verb in {"deleted", "drop", "create", "creates", "forget", "looks"} else None
match verb:
    case "once" | "stops" | "takes" | "slow":
        consume()
    case "again":
        while time.monotonic() < deadline:
            if consume():
                time.sleep(1)
    case "commit":
        place = TopicPartition(topic, 0, count)
        Consumer({"group.id": "readers", **settings}).commit(offsets=[place], asynchronous=False)
    case "begun":
        producer = Producer({"transactional.id": "ledger", **settings})
        producer.init_transactions(10)
        try:
            transaction(producer, seconds)
            transaction(producer, 0.1)
        except KafkaException as error:
            print(error.args[0].name())
    case "deleted":
        places = [TopicPartition(topic, 0, count)]
        admin.delete_records(places)[places[0]].result(10)
    case "forget":
        admin.delete_consumer_groups(["readers"])["readers"].result(10)
    case "drop":
        admin.delete_topics([topic])[topic].result(10)
    case "create":
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    case "creates":
        for place in range(count):
            wanted = [NewTopic(f"{topic}-{place}", 10, 1)]
            (made,) = admin.create_topics(wanted, operation_timeout=2, request_timeout=3).values()
            with contextlib.suppress(KafkaException):
                made.result(4)
    case "looks":
        for _ in range(count):
            look()
            time.sleep(seconds / count)
    case _:
        raise ValueError(word)
