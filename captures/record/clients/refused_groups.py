"""librdkafka: members of one group, or clients of one topic, that a broker refuses for a reason.

refused_groups.py members BOOTSTRAP SECONDS NAME:SETTING=VALUE,… …
refused_groups.py topic BOOTSTRAP SECONDS deleted|created
refused_groups.py crowd BOOTSTRAP SECONDS COUNT
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

kind, bootstrap, seconds, *rest = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
admin = AdminClient({**common, "client.id": "setup"})


def consumer(name: str, **settings: str) -> Consumer:
    """A member of the group ``workers`` that reads ``orders``."""
    given = {key: value for key, value in settings.items() if value}
    found = Consumer({**common, "client.id": name, "group.id": "workers", "auto.offset.reset": "earliest", **given})
    found.subscribe(["orders"])
    return found


def create() -> None:
    """The topic ``orders``."""
    for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
        future.result()


def members() -> None:
    """Each joins a second after the one before."""
    create()
    running = []
    for one in rest:
        name, _, text = one.partition(":")
        settings = dict(setting.partition("=")[::2] for setting in text.split(",") if setting)
        running.append(consumer(name, **settings))
        until = time.monotonic() + 4
        while time.monotonic() < until:
            for member in running:
                member.poll(0.05)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        for member in running:
            member.poll(0.1)
    for member in running:
        member.close()


def topic() -> None:
    """A producer and a consumer; the topic is deleted after 3 seconds, or created only then."""
    if rest[0] == "deleted":
        create()
    # Few packets: the capture is about responses, not about how often a client asks.
    slow = {"retry.backoff.ms": 1000, "retry.backoff.max.ms": 2000, "topic.metadata.refresh.fast.interval.ms": 2000}
    writer = Producer({**common, "client.id": "writer", "linger.ms": 5, "message.timeout.ms": 60_000, **slow})
    reader = consumer("reader", **{"topic.metadata.refresh.fast.interval.ms": "2000", "fetch.wait.max.ms": "2000"})
    begun, changed = time.monotonic(), False
    while time.monotonic() < begun + float(seconds):
        try:
            writer.produce("orders", b"12.50")
        except KafkaException as error:
            print(error)
        writer.poll(0.5)
        reader.poll(0.5)
        if not changed and time.monotonic() > begun + 3:
            changed = True
            if rest[0] == "deleted":
                for future in admin.delete_topics(["orders"]).values():
                    future.result()
            else:
                create()
    writer.flush(1)
    reader.close()


def crowd() -> None:
    """More producers than the broker accepts connections from an address."""
    create()
    writers = [Producer({**common, "client.id": f"writer-{number}", "linger.ms": 5}) for number in range(int(rest[0]))]
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        for writer in writers:
            writer.produce("orders", b"12.50")
            writer.poll(0.05)
        time.sleep(0.2)


{"members": members, "topic": topic, "crowd": crowd}[kind]()
