"""Recordings of members, topics and connections that a broker refuses."""

from __future__ import annotations

from collections.abc import Sequence

from ..distribution import python_with
from ..programs import CLIENTS, CONFLUENT
from . import Fault, Stage


def _play(stage: Stage, kind: str, seconds: int, arguments: Sequence[str], **properties: str) -> None:
    broker = stage.broker(
        version="4.4.0", properties={name.replace("_", "."): value for name, value in properties.items()}
    )
    stage.clients.append("librdkafka (confluent-kafka 2.16.1)")
    with stage.recording(broker.port()):
        client = [python_with(*CONFLUENT), str(CLIENTS / "refused_groups.py"), kind, broker.bootstrap(), str(seconds)]
        stage.run([*client, *arguments])


FAULTS = [
    Fault(
        "group-full.pcap",
        "two members join a group that may have one (group.max.size=1): the second is refused again and again",
        lambda stage: _play(stage, "members", 4, ["first", "second"], group_max_size="1"),
    ),
    Fault(
        "session-timeout-refused.pcap",
        "a member asks for a session timeout of 1 s, and the broker accepts no less than 6 s",
        lambda stage: _play(stage, "members", 2, ["hasty:session.timeout.ms=1000,heartbeat.interval.ms=300"]),
    ),
    Fault(
        "group-protocols-differ.pcap",
        "the second member of a group has no assignor in common with the first",
        lambda stage: _play(
            stage,
            "members",
            4,
            ["first:partition.assignment.strategy=range", "second:partition.assignment.strategy=roundrobin"],
        ),
    ),
    Fault(
        "group-joins.pcap",
        "two members join a group one after the other, as usual",
        lambda stage: _play(stage, "members", 2, ["first", "second"]),
        looks_like="group-protocols-differ.pcap",
    ),
    Fault(
        "topic-created-late.pcap",
        "a producer and a consumer start 3 s before their topic is created",
        lambda stage: _play(stage, "topic", 5, ["created"]),
        looks_like="topic-deleted.pcap",
    ),
    Fault(
        "connection-limit.pcap",
        "six producers at an address that may have four connections (max.connections.per.ip)",
        lambda stage: _play(stage, "crowd", 4, ["6"], max_connections_per_ip="4"),
    ),
]
