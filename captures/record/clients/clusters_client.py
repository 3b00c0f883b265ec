"""librdkafka: records, a group and a transaction on each of the clusters whose bootstrap servers are given, in turn."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROUNDS = 3
LARGE = 1200
"""Records of the topic with one partition: many for the partition, if the other cluster's partitions counted too."""

partitions = {bootstrap: int(count) for bootstrap, _, count in (one.rpartition("/") for one in sys.argv[1:])}
common = {"broker.address.family": "v4"}

for bootstrap, count in partitions.items():
    admin = AdminClient({**common, "bootstrap.servers": bootstrap, "client.id": "cluster-admin"})
    leaders = 1 if len(partitions) > 1 else 2
    topic = NewTopic("orders", count, replica_assignment=[[1 + place % leaders] for place in range(count)])
    admin.create_topics([topic])["orders"].result()

producers = {
    bootstrap: Producer(
        {
            **common,
            "bootstrap.servers": bootstrap,
            "client.id": "shop",
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": "lz4",
        }
    )
    for bootstrap in partitions
}
for turn in range(ROUNDS):
    for bootstrap, producer in producers.items():
        count = partitions[bootstrap]
        for number in range(LARGE // ROUNDS if count == 1 else 10 * count):
            producer.produce("orders", b"order", partition=number % count)
        producer.flush(20)
    for bootstrap in partitions:
        member = Consumer(
            {
                **common,
                "bootstrap.servers": bootstrap,
                "client.id": f"reader-{turn}",
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        member.subscribe(["orders"])
        if len(member.consume(1, timeout=20)) != 1:
            sys.exit("no record came")
        member.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        member.close()
for bootstrap in partitions:
    producer = Producer({**common, "bootstrap.servers": bootstrap, "client.id": "ledger", "transactional.id": "ledger"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"order", partition=0)
    producer.commit_transaction(20)
