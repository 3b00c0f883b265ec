"""librdkafka: a group member with long polls. Arguments: `BOOTSTRAP TOPIC CLIENT_ID WAIT_MS GROUP`.

It creates the topic with two partitions. For each line of stdin, it produces one record to each partition with the
line as its value. It runs until stdin ends.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from reporting import report

WAIT_S = 60.0

bootstrap, topic, client_id, wait_ms, group = sys.argv[1:]
base: dict[str, Any] = {"bootstrap.servers": bootstrap, "debug": "protocol,broker"}
base |= {"reconnect.backoff.ms": 300, "reconnect.backoff.max.ms": 600}
ended = threading.Event()


def create() -> None:
    """Create the topic with a client that exits afterwards."""
    admin = AdminClient({**base, "client.id": f"{client_id}-admin"})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result()
    report("created", topic=topic, partitions=2)


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is None:
        report("produced", partition=message.partition(), offset=message.offset(), value=message.value())
    else:
        report("failed", operation="produce", error_code=error.code(), error=error.name())


def produce() -> None:
    for line in sys.stdin:
        for partition in range(2):
            producer.produce(topic, line.strip(), partition=partition, on_delivery=delivered)
        producer.flush(WAIT_S)
    ended.set()


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    report("assigned", client_id=client_id, group=group, member_id=consumer.memberid(),
           partitions=sorted(one.partition for one in partitions))  # fmt: skip


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
create()
producer = Producer({**base, "client.id": f"{client_id}-producer", "linger.ms": 0})
threading.Thread(target=produce, daemon=True).start()
own: dict[str, Any] = {"client.id": client_id, "group.id": group, "enable.auto.commit": False}
own |= {"auto.offset.reset": "earliest", "fetch.wait.max.ms": int(wait_ms), "session.timeout.ms": 30_000}
own |= {"heartbeat.interval.ms": 300, "partition.assignment.strategy": "range", "group.protocol": "classic"}
consumer = Consumer({**base, **own})
consumer.subscribe([topic], on_assign=assigned)
while not ended.is_set():
    message = consumer.poll(0.05)
    if message is not None and not message.error():
        report("consumed", client_id=client_id, partition=message.partition(), value=message.value())
