"""Scenes with brokers of one or two clusters: what is kept separate by cluster."""

from __future__ import annotations

from collections.abc import Sequence

from tests.analysis.detectors.network_scenes import Attempt
from tests.analysis.detectors.scenes import produce, records
from tests.analysis.detectors.talks import Talk
from tests.craft.conversation import Conversation

A, B, C = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)


def cluster(talk: Talk, name: str | None) -> None:
    """Metadata that names a cluster, if there is a name."""
    if name is not None:
        talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name})


def sequences(*clusters: str | None) -> list[Conversation]:
    """An idempotent producer at two brokers, with the same producer id and sequence numbers."""
    talks: list[Conversation] = []
    for number, (broker, name) in enumerate(zip((A, B), clusters, strict=True)):
        talk = Talk(port=50_000 + number, after=number, broker=broker)
        cluster(talk, name)
        for base in (0, 10):
            produce(talk, records(10, producer=(1000, 0, base)))
        talks.append(talk.ended())
    return talks


def transactions(other: str) -> list[Conversation]:
    """A transaction that begins in the cluster `one`, and the end of one with the same id in `other`."""
    asked = {"transactional_id": "ledger", "producer_id": 1, "producer_epoch": 0}
    begun, ended, later = (
        Talk(port=50_001 + number, after=after, broker=broker)
        for number, (after, broker) in enumerate(((0, A), (30, B), (100, A)))
    )
    for talk, name in ((begun, "one"), (ended, other), (later, "one")):
        cluster(talk, name)
    begun.ask("AddPartitionsToTxn", 1, {f"v3_and_below_{name}": value for name, value in asked.items()}, {})
    ended.ask("EndTxn", 1, {**asked, "committed": True}, {})
    return [talk.ended() for talk in (begun, ended, later)]


def peers(other: str) -> list[Conversation]:
    """Two fast brokers of the cluster `one`, and a slow one of `other`."""
    talks: list[Conversation] = []
    places: Sequence[tuple[tuple[str, int], str, float]] = ((A, "one", 0.001), (B, "one", 0.001), (C, other, 0.2))
    for number, (broker, name, wait) in enumerate(places):
        talk = Talk(port=50_001 + number, broker=broker)
        for _ in range(25):
            talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name}, wait=wait)
        talks.append(talk.ended())
    return talks


def leads(talk: Talk, name: str, broker: tuple[str, int], node: int) -> None:
    brokers = [{"node_id": node, "host": broker[0], "port": broker[1]}]
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "leader_id": node}]}]
    talk.ask("Metadata", 2, {"topics": []}, {"brokers": brokers, "topics": topics, "cluster_id": name}, then=1)


def moved_leader(other: str) -> list[Conversation]:
    """A leader of the cluster `one` dies; a broker of `other` leads a partition of the same name afterwards."""
    dying = Talk(port=50_001, broker=A)
    leads(dying, "one", A, 1)
    dying.reset()
    refused = [Attempt(after, refused=True, broker=A) for after in (2, 3, 4)]
    later = Talk(port=50_002, after=6, broker=B)
    leads(later, other, B, 2)
    return [dying, *refused, later.ended()]
