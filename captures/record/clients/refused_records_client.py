"""librdkafka: records without keys for two compacted topics, or with keys; then a group that is not there."""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, keys = sys.argv[1:3]
common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
admin = AdminClient({**common, "client.id": "ledger-admin"})
topics = ["balances", "limits"]
settings = {"cleanup.policy": "compact"}
for future in admin.create_topics([NewTopic(topic, 1, 1, config=settings) for topic in topics]).values():
    future.result()
producer = Producer({**common, "client.id": "ledger", "linger.ms": 20})
errors = []
for _ in range(3):
    for topic in topics:
        key = "account" if keys == "keys" else None
        producer.produce(topic, b"12.50", key, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
if (keys == "keys") != all(error is None for error in errors):
    sys.exit(f"not what was wanted: {errors}")
for group, future in admin.delete_consumer_groups(["no-such-group"]).items():
    try:
        future.result()
        sys.exit(f"{group} was there")
    except KafkaException:
        pass
