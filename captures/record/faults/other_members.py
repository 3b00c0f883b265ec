"""Recordings of groups whose members omit fields that Kafka's own consumers write."""

from __future__ import annotations

from ..distribution import OLD_VERSION, go_program, node_modules
from ..programs import CLIENTS
from . import Fault, Stage


def _groups(stage: Stage) -> None:
    broker = stage.broker(version=OLD_VERSION)  # kafka-go joins groups with versions that 4.0 removed
    kafka_go = go_program(CLIENTS / "kafka_go")
    modules = node_modules(CLIENTS / "platformatic")
    stage.clients += ["segmentio/kafka-go 0.4.47", "@platformatic/kafka 1.35.0"]
    with stage.recording(broker.port()):
        stage.run([kafka_go, broker.bootstrap()])
        node = ["node", str(CLIENTS / "platformatic" / "group.mjs"), broker.bootstrap()]
        stage.run(["env", f"NODE_PATH={modules}", *node])


FAULTS = [
    Fault(
        "groups-with-fields-missing.pcap",
        "members of two groups omit the last fields of their subscriptions and assignments; the groups work",
        _groups,
    ),
]
