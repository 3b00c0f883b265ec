"""aiokafka: every codec produced and read back, or a group of two members and transactions that commit its offsets."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata
from reporting import report
from sample_records import CODECS, RECORDS, timestamp

scenario, bootstrap = sys.argv[1:3]
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
logging.getLogger("aiokafka.conn").setLevel(logging.DEBUG)

GROUP = "aio-group"
SETTLED_S = 40


def tell(client_id: str, message: Any) -> None:
    place = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    content = {"timestamp": message.timestamp, "key": message.key, "value": message.value}
    report("consumed", client_id=client_id, **place, **content, headers=list(message.headers))


async def create(*topics: str, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="aio-admin")
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    for topic in topics:
        report("created", topic=topic, partitions=partitions)
    await admin.close()


async def produce(producer: AIOKafkaProducer, topic: str, codec: str, records: Any) -> None:
    """Produce records in one batch where the client makes one of them."""
    waiting = [
        await producer.send(topic, value, key, 0, timestamp(index), headers)
        for index, (key, value, headers) in enumerate(records)
    ]
    for index, ((key, value, headers), future) in enumerate(zip(records, waiting, strict=True)):
        done = await future
        asked = timestamp(index)  # the client reports the batch's
        report("produced", topic=topic, partition=done.partition, offset=done.offset, timestamp=asked, key=key,
               value=value, headers=headers, codec=codec, error=None)  # fmt: skip


async def codecs() -> None:
    topics = {codec: f"aio-{codec}" for codec in CODECS}
    await create(*topics.values())
    for codec, topic in topics.items():
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=f"aio-{codec}",
            compression_type=None if codec == "none" else codec,
            linger_ms=100,
            enable_idempotence=codec == "zstd",
        )
        await producer.start()
        await produce(producer, topic, codec, RECORDS)
        await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, client_id="aio-reader", auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0) for topic in topics.values()])
    for _ in range(len(CODECS) * len(RECORDS)):
        tell("aio-reader", await asyncio.wait_for(consumer.getone(), 20))
    await consumer.stop()


class Member(ConsumerRebalanceListener):
    """A consumer of the group, and the partitions that it has."""

    def __init__(self, number: int) -> None:
        self.client_id = f"aio-member-{number}"
        self.partitions: set[str] = set()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=self.client_id,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=1000,
            isolation_level="read_committed",
        )

    async def start(self) -> None:
        self.consumer.subscribe(["stock"], listener=self)
        await self.consumer.start()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        names = sorted(f"{one.topic}-{one.partition}" for one in revoked)
        if names:
            report("revoked", client_id=self.client_id, group=GROUP, partitions=names)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.partitions = {f"{one.topic}-{one.partition}" for one in assigned}
        report("assigned", client_id=self.client_id, group=GROUP, partitions=sorted(self.partitions))

    async def read(self, records: int) -> dict[TopicPartition, int]:
        """Read this many records; the offsets to be committed."""
        positions = {}
        for _ in range(records):
            message = await asyncio.wait_for(self.consumer.getone(), SETTLED_S)
            tell(self.client_id, message)
            positions[TopicPartition(message.topic, message.partition)] = message.offset + 1
        return positions

    async def commit(self, positions: dict[TopicPartition, int]) -> None:
        await self.consumer.commit(
            {place: OffsetAndMetadata(offset, self.client_id) for place, offset in positions.items()}
        )
        for place, offset in positions.items():
            report("committed", client_id=self.client_id, group=GROUP, topic=place.topic, partition=place.partition,
                   offset=offset, metadata=self.client_id)  # fmt: skip

    async def leave(self) -> None:
        await self.consumer.stop()
        report("left", client_id=self.client_id, group=GROUP)


async def settled(*members: Member, partitions: int) -> None:
    async with asyncio.timeout(SETTLED_S):
        while any(len(member.partitions) != partitions for member in members):
            await asyncio.sleep(0.1)


async def group() -> None:
    await create("stock", partitions=2)
    await create("sold")
    plain = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="aio-producer", acks=1)
    await plain.start()
    for partition in (0, 1):
        value = f"item {partition}".encode()
        done = await plain.send_and_wait("stock", value, b"k", partition, timestamp(partition))
        report("produced", topic="stock", partition=partition, offset=done.offset, timestamp=done.timestamp, key="k",
               value=value, headers=[], codec="none", error=None)  # fmt: skip
    await plain.stop()
    first, second = Member(1), Member(2)
    await first.start()
    await settled(first, partitions=2)
    await first.commit(await first.read(2))
    await second.start()
    await settled(first, second, partitions=1)

    writer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="aio-writer", transactional_id="aio-transfers")
    await writer.start()
    for result, offset in (("commit", 1), ("abort", 0)):
        await writer.begin_transaction()
        value = f"sold, then {result}".encode()
        await produce(writer, "sold", "none", [(b"account", value, [])])
        await writer.send_offsets_to_transaction({TopicPartition("stock", 0): offset}, GROUP)
        await (writer.commit_transaction() if result == "commit" else writer.abort_transaction())
        report("transaction", transactional_id="aio-transfers", result=result, values=[value], group=GROUP,
               partition=0, committed_offset=offset)  # fmt: skip
    await writer.stop()
    await second.leave()
    await settled(first, partitions=2)
    await first.leave()


report("client", name="aiokafka", version=aiokafka.__version__)
asyncio.run({"codecs": codecs, "group": group}[scenario]())
