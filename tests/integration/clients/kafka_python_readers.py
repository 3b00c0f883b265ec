"""kafka-python: readers with long polls. Arguments: `BOOTSTRAP TOPIC CLIENT_ID:WAIT_MS[:GROUP] …`, one per reader.

A reader with a group joins it, the others read partition 0. All run until the program is killed.
"""

from __future__ import annotations

import logging
import sys
import threading

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from reporting import report

SESSION_MS = 3000
POLL_MS = 5000

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.net.connection").setLevel(logging.DEBUG)


class Reader(threading.Thread, ConsumerRebalanceListener):
    """A consumer on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, wait_ms: str, group: str | None = None) -> None:
        super().__init__(name=client_id)
        self.client_id = client_id
        self.group = group
        self.topic = topic
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=int(wait_ms),
            request_timeout_ms=int(wait_ms) + 30_000,
            reconnect_backoff_ms=300,
            reconnect_backoff_max_ms=600,
        )

    def run(self) -> None:
        self.consumer.partitions_for_topic(self.topic)  # otherwise it may join before it knows the partitions
        if self.group is None:
            self.consumer.assign([TopicPartition(self.topic, 0)])
        else:
            self.consumer.subscribe([self.topic], listener=self)
        while True:
            for messages in self.consumer.poll(POLL_MS).values():
                for one in messages:
                    report("consumed", client_id=self.client_id, partition=one.partition, value=one.value)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        of = self.consumer.group_metadata()
        report("assigned", client_id=self.client_id, group=self.group, member_id=of.member_id,
               partitions=sorted(one.partition for one in assigned))  # fmt: skip

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Nothing is reported: no reader has to give up a partition."""


report("client", name="kafka-python", version=kafka.__version__)
readers = [Reader(sys.argv[1], sys.argv[2], *words.split(":")) for words in sys.argv[3:]]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
