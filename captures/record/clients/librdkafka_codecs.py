"""librdkafka: every codec, keys, null values, headers; then everything read back."""

from __future__ import annotations

import sys
from functools import partial

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from reporting import report
from sample_records import CODECS, RECORDS, Header, timestamp


def delivered(codec: str, headers: list[Header], error: KafkaError | None, message: Message) -> None:
    report(
        "produced",
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=headers,  # delivery reports come without them
        codec=codec,
        error=error and error.name(),
    )


bootstrap = sys.argv[1]
report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
base = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "any"}

admin = AdminClient({**base, "client.id": "rdkafka-admin"})
for topic, future in admin.create_topics([NewTopic(f"codec-{codec}", 2, 1) for codec in CODECS]).items():
    future.result()
    report("created", topic=topic, partitions=2)
del admin

for codec in CODECS:
    producer = Producer(
        {**base, "client.id": f"rdkafka-{codec}", "compression.type": codec, "linger.ms": 100, "acks": "all"}
    )
    for index, (key, value, headers) in enumerate(RECORDS):
        producer.produce(
            f"codec-{codec}",
            key=key,
            value=value,
            headers=headers,
            partition=0 if index < 5 else 1,
            timestamp=timestamp(index),
            on_delivery=partial(delivered, codec, headers),
        )
    producer.flush(20)

consumer = Consumer(
    {**base, "client.id": "rdkafka-reader", "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
)
consumer.assign([TopicPartition(f"codec-{codec}", number, OFFSET_BEGINNING) for codec in CODECS for number in (0, 1)])
seen = 0
while seen < len(CODECS) * len(RECORDS):
    message = consumer.poll(10)
    if message is None:
        sys.exit("not all records came back")
    if message.error():
        sys.exit(str(message.error()))
    seen += 1
    report(
        "consumed",
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )
consumer.close()
