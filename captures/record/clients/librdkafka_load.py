"""Producers and consumers of librdkafka for the benchmarks' form "mixed".

`librdkafka_load.py TOPICS RATE SECONDS BOOTSTRAP` produces RATE small records a second, batches of larger ones besides,
and reads everything in a classic group and in one of KIP-848. It ends after SECONDS, or when stdin ends.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer
from reporting import report

TICK_S = 0.02
LARGE_EACH = 25
"""After this many small records, as many larger ones follow."""

topics, rate, seconds, bootstrap = sys.argv[1].split(","), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
over = threading.Event()
rng = random.Random(2)


def wait_for_stdin() -> None:
    sys.stdin.read()
    over.set()


def record(number: int, size: int) -> dict[str, Any]:
    text = f"{rng.getrandbits(4 * size):x}"
    value = f'{{"id":{number},"amount":{rng.random()},"text":"{text}"}}'
    return {"topic": rng.choice(topics), "key": f"rdkafka-{rng.randrange(100_000)}", "value": value}


def read(client_id: str, protocol: str) -> None:
    settings = {"client.id": client_id, "group.id": f"rdkafka-{protocol}", "group.protocol": protocol}
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": "500"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            **settings,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe(topics)
    while not over.is_set():
        messages = consumer.consume(50, timeout=0.1)
        if any(message.error() is None for message in messages):
            consumer.commit(asynchronous=True)
    consumer.close()


threading.Thread(target=wait_for_stdin, daemon=True).start()
readers = [
    threading.Thread(target=read, args=(f"rdkafka-{protocol}-{member}", protocol))
    for protocol in ("classic", "consumer")
    for member in (0, 1)
]
for reader in readers:
    reader.start()
common = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
quick = Producer({**common, "client.id": "rdkafka-small", "linger.ms": 0, "batch.num.messages": 1})
bulk = Producer({**common, "client.id": "rdkafka-large", "linger.ms": 50, "compression.type": "zstd"})
begin = time.monotonic()
small = large = 0
while not over.is_set() and (now := time.monotonic()) < begin + seconds:
    while small < (now - begin) * rate:
        quick.produce(**record(small, rng.randrange(20, 100)))
        if small % LARGE_EACH == 0:
            for _ in range(LARGE_EACH):
                bulk.produce(**record(large, rng.randrange(150, 350)))
                large += 1
        small += 1
    quick.poll(0)
    bulk.poll(0)
    time.sleep(TICK_S)
over.set()
quick.flush(10)
bulk.flush(10)
for reader in readers:
    reader.join()
report("produced", client="librdkafka", records=small + large)
