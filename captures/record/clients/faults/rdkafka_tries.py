"""librdkafka that sends a record every 200 ms: SECONDS BOOTSTRAP TOPIC [NAME=VALUE…]. Failures do not end it.

`every=SECONDS` and `size=BYTES` are the records' pace and size, all other names are settings.
"""

from __future__ import annotations

import contextlib
import sys
import time

from confluent_kafka import KafkaException, Producer

seconds, bootstrap, topic = float(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = dict(one.split("=", 1) for one in sys.argv[4:])
every, size = float(settings.pop("every", ".2")), int(settings.pop("size", "7"))
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "client.id": "rdkafka",
        "broker.address.family": "v4",
        "message.timeout.ms": 60_000,
        "logger": None,
        **settings,
    }
)
deadline = time.monotonic() + seconds
while time.monotonic() < deadline:
    # What goes wrong is in the packets.
    with contextlib.suppress(BufferError, KafkaException):
        producer.produce(topic, (b"made up" * size)[:size])
    producer.poll(0)
    time.sleep(every)
