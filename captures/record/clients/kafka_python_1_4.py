"""kafka-python 1.4: it finds out what the broker speaks, then produces, reads in a group, and administers."""

from __future__ import annotations

import logging
import sys
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from reporting import report
from sample_records import RECORDS, timestamp

bootstrap = sys.argv[1]
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.conn").setLevel(logging.DEBUG)
CODECS = ("none", "gzip", "snappy", "lz4")
GROUP = "python-1.4-group"


def tell(client_id: str, message: Any) -> None:
    place = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    content = {"timestamp": message.timestamp, "key": message.key, "value": message.value}
    report("consumed", client_id=client_id, **place, **content, headers=list(message.headers or []))


report("client", name="kafka-python", version=kafka.__version__)
admin = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="python-1.4-admin")
topics = [f"python-1.4-{codec}" for codec in CODECS]
admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
for topic in topics:
    report("created", topic=topic, partitions=1)
admin.create_partitions({topics[0]: NewPartitions(2)})
report("created_partitions", topic=topics[0], count=2)
admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topics[0], {"retention.ms": None})])
try:
    admin.delete_topics(["no-such-topic"])
except KafkaError as error:
    report("failed", operation="delete an unknown topic", error_code=error.errno, error=error.message)
else:
    sys.exit("an unknown topic was deleted")

sent = 0
for codec, topic in zip(CODECS, topics, strict=True):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=f"python-1.4-{codec}",
        compression_type=None if codec == "none" else codec,
        linger_ms=100,
    )
    waiting = []
    for index, (key, value, headers) in enumerate(RECORDS):
        named = [pair for pair in headers if pair[1] is not None]  # it takes no null headers
        waiting.append((key, value, named, producer.send(topic, value, key, named, 0, timestamp(index))))
    producer.flush()
    for key, value, named, future in waiting:
        done = future.get(10)
        report("produced", topic=topic, partition=0, offset=done.offset, timestamp=done.timestamp, key=key, value=value,
               headers=named, codec=codec, error=None)  # fmt: skip
        sent += 1
    producer.close()

consumer = KafkaConsumer(
    bootstrap_servers=bootstrap,
    client_id="python-1.4-member",
    group_id=GROUP,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    heartbeat_interval_ms=1000,
    fetch_max_wait_ms=200,
    consumer_timeout_ms=15000,
)
consumer.subscribe(topics)
positions: dict[TopicPartition, int] = {}
for _ in range(sent):
    message = next(consumer)
    tell("python-1.4-member", message)
    positions[TopicPartition(message.topic, message.partition)] = message.offset + 1
names = sorted(f"{one.topic}-{one.partition}" for one in consumer.assignment())
report("assigned", client_id="python-1.4-member", group=GROUP, partitions=names)
consumer.commit({place: OffsetAndMetadata(offset, "read") for place, offset in positions.items()})
for place, offset in positions.items():
    report("committed", client_id="python-1.4-member", group=GROUP, topic=place.topic, partition=place.partition,
           offset=offset, metadata="read")  # fmt: skip
consumer.close(autocommit=False)
report("left", client_id="python-1.4-member", group=GROUP)
offsets = {
    f"{one.topic}-{one.partition}": told.offset for one, told in admin.list_consumer_group_offsets(GROUP).items()
}
report("offsets", group=GROUP, offsets=offsets)
admin.close()
