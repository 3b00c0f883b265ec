"""Recordings of consumers without a group that stand still, of Streams groups that cannot start, and of deployments."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from ..distribution import APPLICATIONS_POM, CLIENT_VERSION, DEFAULT_VERSION
from ..programs import CONFLUENT, java_program
from . import Fault, Stage
from .clients import rdkafka
from .positions import groups
from .waits import java_waits

STILL_S = 7.0


def _assigned(works_s: int) -> Callable[[Stage], None]:
    """A consumer with partitions but no group. It works on each batch of records, or its process stands still."""

    def play(stage: Stage) -> None:
        stage.clients.append(f"Apache Kafka's Java client {DEFAULT_VERSION}")
        broker = stage.broker()
        stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
        with stage.recording(broker.port()):
            reader = stage.start(java_waits("assigned", broker.bootstrap(), "orders", "18", str(1000 * works_s)))
            time.sleep(6)
            if works_s:
                for _ in range(2):
                    stage.run(rdkafka(stage, 0.5, broker.bootstrap()))
                    time.sleep(works_s)
            else:
                os.kill(reader.pid, signal.SIGSTOP)
                time.sleep(STILL_S)
                os.kill(reader.pid, signal.SIGCONT)
            reader.wait()

    return play


def _partitions_differ(stage: Stage) -> None:
    stage.clients.append(f"Kafka Streams {CLIENT_VERSION}")
    broker = stage.broker()
    program = java_program("JoinedTopics", "2", "4", "8", sources="java-applications", pom=APPLICATIONS_POM)()
    with stage.recording(broker.port()):
        stage.run([*program, broker.bootstrap()], fails=True)


def _threads(failures: int) -> Callable[[Stage], None]:
    """A Streams application whose thread dies at one record, so often, and is replaced."""

    def play(stage: Stage) -> None:
        stage.clients.append(f"Kafka Streams {CLIENT_VERSION}")
        broker = stage.broker()
        words = (str(failures), "45")
        program = java_program("ReplacedThreads", *words, sources="java-applications", pom=APPLICATIONS_POM)()
        with stage.recording(broker.port()):
            stage.run([*program, broker.bootstrap()])

    return play


def _members(lives_s: Sequence[tuple[str, float, float]]) -> Callable[[Stage], None]:
    """Members of a group: the name of each, when it starts and for how long it stays. All of them leave the group."""

    def play(stage: Stage) -> None:
        stage.clients.append(f"librdkafka (confluent-kafka {CONFLUENT[0].rpartition('=')[2]})")
        broker = stage.broker()
        stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
        with stage.recording(broker.port()):
            started = time.monotonic()
            running = []
            for name, start, lasts in lives_s:
                time.sleep(max(started + start - time.monotonic(), 0))
                running.append(stage.start(groups("once", broker, lasts, f"client.id={name}")))
            for one in running:
                one.wait()

    return play


def _looked_at(stage: Stage) -> None:
    """A tool looks at topics, offsets and groups, a hundred times."""
    stage.clients.append(f"librdkafka (confluent-kafka {CONFLUENT[0].rpartition('=')[2]})")
    broker = stage.broker()
    stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
    stage.run(groups("once", broker, 2))
    with stage.recording(broker.port()):
        stage.run(groups("looks-100", broker, 10, "client.id=cluster-ui"))


FAULTS = [
    Fault(
        "consumer-stands-still.pcap",
        "the process of a consumer without a group stands still for 7 s while there are no records",
        _assigned(0),
    ),
    Fault(
        "consumer-works-long.pcap",
        "a consumer without a group works for 4 s on each batch of records, and does not fetch meanwhile",
        _assigned(4),
        looks_like="consumer-stands-still.pcap",
    ),
    Fault(
        "streams-partitions-differ.pcap",
        "a Streams group (KIP-1071) joins two topics that have 2 and 4 partitions",
        _partitions_differ,
    ),
    Fault(
        "streams-threads-replaced.pcap",
        "a Streams application whose thread dies at the same record, again and again, and is replaced (REPLACE_THREAD)",
        _threads(1000),
    ),
    Fault(
        "streams-thread-replaced-once.pcap",
        "the same, and the second attempt at the record succeeds",
        _threads(1),
        looks_like="streams-threads-replaced.pcap",
    ),
    Fault(
        "member-comes-and-goes.pcap",
        "a member of a group ends and is started again four times, beside one that stays",
        _members([("stays", 0, 26), *(("restarts", 2 + 5 * place, 3) for place in range(4))]),
    ),
    Fault(
        "members-replaced.pcap",
        "a rolling deployment: the three members of a group are replaced, one after the other",
        _members(
            [
                *((f"worker-{place}", 0, 8 + 4 * place) for place in range(3)),
                *((f"worker-{place}", 9 + 4 * place, 16 - 4 * place) for place in range(3)),
            ]
        ),
        looks_like="member-comes-and-goes.pcap",
    ),
    Fault(
        "cluster-looked-at.pcap",
        "a user interface for clusters asks for topics, offsets and groups, ten times a second",
        _looked_at,
        looks_like="topic-missing.pcap",
    ),
    Fault(
        "members-without-partitions.pcap",
        "three members of a group whose topic has one partition",
        _members([(f"worker-{place}", 0, 9) for place in range(3)]),
    ),
]
