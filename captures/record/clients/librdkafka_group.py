"""librdkafka: a group of the classic (eager) or the KIP-848 protocol with a second member that joins and leaves."""

from __future__ import annotations

import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from reporting import report
from sample_records import timestamp

protocol, bootstrap = sys.argv[1:3]
GROUP = "rd-group"
report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
base = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "any"}

admin = AdminClient({**base, "client.id": "rdkafka-admin"})
admin.create_topics([NewTopic("stock", 4, 1)])["stock"].result()
report("created", topic="stock", partitions=4)
producer = Producer({**base, "client.id": "rdkafka-producer", "acks": 1})
for number in range(4):
    producer.produce("stock", f"item {number}", f"k{number}", partition=number, timestamp=timestamp(number))
producer.flush(20)
del producer


class Member:
    """A consumer that counts the partitions it was given."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.partitions: set[str] = set()
        own: dict[str, Any] = {"client.id": client_id, "group.id": GROUP, "group.protocol": protocol}
        own |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 500}
        if protocol == "classic":
            own |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "partition.assignment.strategy": "range"}
        self.consumer = Consumer({**base, **own})
        self.consumer.subscribe(["stock"], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changed("assigned", {f"{one.topic}-{one.partition}" for one in partitions})

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changed("revoked", {f"{one.topic}-{one.partition}" for one in partitions})

    def changed(self, what: str, names: set[str]) -> None:
        self.partitions = self.partitions | names if what == "assigned" else self.partitions - names
        report(what, client_id=self.client_id, group=GROUP, partitions=sorted(names))

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is None or message.error():
            return
        report(
            "consumed",
            client_id=self.client_id,
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=message.headers() or [],
        )
        self.consumer.commit(message, asynchronous=False)
        report("committed", client_id=self.client_id, group=GROUP, topic=message.topic(), partition=message.partition(),
               offset=message.offset() + 1)  # fmt: skip

    def leave(self) -> None:
        self.consumer.close()
        report("left", client_id=self.client_id, group=GROUP)


def wait(members: list[Member], counts: list[int]) -> None:
    deadline = time.monotonic() + 40
    while [len(member.partitions) for member in members] != counts:
        for member in members:
            member.poll()
        if time.monotonic() > deadline:
            sys.exit("the group did not settle")


first = Member("rdkafka-member-1")
wait([first], [4])
for _ in range(8):
    first.poll()
second = Member("rdkafka-member-2")
wait([first, second], [2, 2])
described = admin.describe_consumer_groups([GROUP])[GROUP].result()
members = sorted((member.client_id, member.member_id) for member in described.members)
report(
    "described_group", group=GROUP, state=described.state.name, assignor=described.partition_assignor, members=members
)
second.leave()
wait([first], [4])
first.leave()
listed = admin.list_consumer_groups().result()
report("listed_groups", groups=sorted((group.group_id, group.state.name) for group in listed.valid))
admin.delete_consumer_groups([GROUP])[GROUP].result()
report("deleted_group", group=GROUP)
