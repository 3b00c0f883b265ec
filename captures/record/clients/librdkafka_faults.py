"""librdkafka where something goes wrong: `WORD BOOTSTRAP TOPIC COUNT SIZE [KEY=VALUE …]`.

produce: COUNT records of SIZE bytes, each delivery on stdout, until all are delivered or given up. burst: as produce,
with 10 ms between records. again: as produce, and two more, each flushed, after a line on stdin each. read: consume for
COUNT seconds from the topic's beginning. stay: as produce, and four seconds more.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

word, bootstrap, topic, count, size, *rest = sys.argv[1:]
settings: dict[str, Any] = {
    "bootstrap.servers": bootstrap,
    "broker.address.family": "v4",
    **dict(one.split("=", 1) for one in rest),
}


def delivered(error: Any, message: Any) -> None:
    print("offset", message.offset() if error is None else error.name(), flush=True)


if word == "read":
    consumer = Consumer({"group.id": "unused", "enable.auto.commit": "false", **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    deadline = time.monotonic() + float(count)
    while time.monotonic() < deadline:
        consumer.poll(0.2)
    consumer.close()
else:
    producer = Producer(settings)
    for _ in range(int(count)):
        producer.produce(topic, bytes(int(size)), partition=0, on_delivery=delivered)
        if word == "burst":
            producer.poll(0.01)
            time.sleep(0.01)
    producer.flush(30)
    if word == "stay":
        producer.poll(4)
    for value in (b"next", b"last the longer") if word == "again" else ():
        if sys.stdin.readline():
            producer.produce(topic, value, partition=0, on_delivery=delivered)
            producer.flush(60)
