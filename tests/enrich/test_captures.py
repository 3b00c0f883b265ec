"""Real captures against what their clients logged about topics, versions and assignments."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.library import learn
from kafkasniff.model import Exchange, Message
from tests.choice import in_turn, one_in
from tests.conftest import shipped_captures
from tests.craft import damage
from tests.craft.batches import batch
from tests.craft.outcome import output
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.enrich.talks import exchanges, messages, of_capture

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
MANIFEST = {entry["file"]: entry for entry in json.loads((CAPTURES / "manifest.json").read_text())["captures"]}
LOGGED = sorted(name for name, entry in MANIFEST.items() if entry.get("sidecar"))
TOPICS_ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,249}")


def log(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CAPTURES / MANIFEST[name]["sidecar"]).read_text().splitlines()]


def pairs(value: Any) -> Iterator[tuple[str, Any, str | None]]:
    """(id, name beside it, `_topic_name`) of every struct of a body that has a topic id."""
    if isinstance(value, dict):
        if isinstance(value.get("topic_id"), str):
            name = value.get("name", value.get("topic", value.get("topic_name")))
            yield value["topic_id"], name, value.get("_topic_name")
        for one in value.values():
            yield from pairs(one)
    elif isinstance(value, list):
        for one in value:
            yield from pairs(one)


def found(events: list[Any]) -> Iterator[tuple[str, Any, str | None]]:
    for one in events:
        if isinstance(one, Message):
            yield from pairs(one.body)


def as_kafka_prints(topic_id: str) -> str:
    """The clients log ids in three forms."""
    if len(topic_id) == 22:
        return topic_id
    return base64.urlsafe_b64encode(UUID(topic_id).bytes).decode().rstrip("=")


def logged_ids(entries: list[dict[str, Any]]) -> dict[str, str]:
    ids = {}
    for entry in entries:
        known = entry.get("description", entry)
        if "topic_id" in known:
            ids[as_kafka_prints(known["topic_id"])] = known.get("name") or known["topic"]
    return ids


@pytest.mark.parametrize("name", [name for name in LOGGED if logged_ids(log(name))])
def test_ids_have_the_names_that_the_client_logged(name: str) -> None:
    ids = logged_ids(log(name))
    seen = {topic_id: added for topic_id, _, added in found(of_capture(CAPTURES / name)) if added is not None}
    assert {topic_id: added for topic_id, added in seen.items() if topic_id in ids} == {
        topic_id: ids[topic_id] for topic_id in seen if topic_id in ids
    }
    if name == "franz-go.pcap":
        assert seen == ids


# The coordinator of a streams group makes topics by itself, and nobody logs them.
@pytest.mark.parametrize("name", [name for name in LOGGED if name != "java-streams-group.pcap"])
def test_names_that_were_added_are_topics_of_the_client(name: str) -> None:
    text = (CAPTURES / MANIFEST[name]["sidecar"]).read_text()
    events = of_capture(CAPTURES / name)
    # Streams and Connect make topics that they do not log.
    made = {topic["name"] for one in messages(events, "request", "CreateTopics") for topic in one.body["topics"]}  # type: ignore[index]
    for _, _, added in found(events):
        if added is not None and not added.startswith("__"):
            assert added in text or added in made


@pytest.mark.parametrize("capture", one_in(3, shipped_captures()), ids=lambda path: path.name)
def test_all_names_are_known_to_the_second_of_two_passes(capture: Path) -> None:
    known = {topic_id: name for topic_id, name, _ in found(of_capture(capture)) if name}
    catalog = Catalog()
    learn(catalog, lambda: open_captures([str(capture)]), {})
    for topic_id, name, added in found(of_capture(capture, catalog)):
        if name is None and topic_id in known:
            assert added == known[topic_id]
        if added is not None:
            assert TOPICS_ALLOWED.fullmatch(added)


def test_software_is_that_of_every_exchange_of_a_client() -> None:
    (version,) = {one["version"] for one in log("java-codecs.pcap") if one["kind"] == "client"}
    exchanged = [one for one in of_capture(CAPTURES / "java-codecs.pcap") if isinstance(one, Exchange)]
    assert {(one.software_name, one.software_version) for one in exchanged} == {("apache-kafka-java", version)}


def test_brokers_of_a_cluster_have_their_numbers() -> None:
    known = {one.broker_id for one in of_capture(CAPTURES / "kraft-two-brokers.pcap") if isinstance(one, Exchange)}
    assert known == {None, 1, 2}, "no message in this capture has the controller's address"
    (broker,) = {one.broker_id for one in exchanges(of_capture(CAPTURES / "java-codecs.pcap"), "Produce")}
    assert broker == MANIFEST["java-codecs.pcap"].get("broker_id", 1)


def test_a_session_holds_what_the_member_was_assigned() -> None:
    """Both clients log what they were assigned; they fetch that, and after it was taken from them, less."""
    for name in ("java-group-classic.pcap", "kafka-python-group.pcap"):
        assigned: dict[str, list[int]] = {}
        for one in log(name):
            if one["kind"] == "assigned":
                assigned.setdefault(one["client_id"], []).append(len(one["partitions"]))
        held: dict[str, list[int]] = {}
        for message in messages(of_capture(CAPTURES / name), "request", "Fetch"):
            assert message.body is not None
            if "_session" in message.body:
                held.setdefault(str(message.client_id), []).append(message.body["_session"]["partitions"])
        assert held
        for client_id, sizes in held.items():
            assert sizes[0] == assigned[client_id][0], client_id
            assert set(sizes) <= set(assigned[client_id]), client_id


def test_sessions_name_their_topics() -> None:
    for message in messages(of_capture(CAPTURES / "franz-go.pcap"), "request", "Fetch"):
        assert message.body is not None
        if "_session" in message.body:
            assert sorted(message.session_topics) == ["go-gzip", "go-lz4", "go-none", "go-snappy", "go-zstd"]


def corrupted(packets: Sequence[Packet], rng: Random) -> list[Packet]:
    """Bytes within messages are others than were sent."""
    found = []
    for packet in packets:
        data = bytearray(packet.payload)
        if len(data) > 40 and rng.random() < 0.5:
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(20, len(data))] = rng.randrange(256)
        found.append(packet.but(payload=bytes(data)))
    return found


UNREST = [damage.snapped, damage.lossy, damage.late, damage.responses_only, corrupted]


@pytest.mark.parametrize(
    ("unrest", "name"), in_turn(UNREST, ["kraft-two-brokers.pcap", "java-group-share.pcap", "java-admin.pcap"], 3)
)
def test_damaged_messages_pass(name: str, unrest: Callable[[Sequence[Packet], Random], list[Packet]]) -> None:
    packets = read_packets(CAPTURES / name)
    for seed in range(3):
        broken = unrest(packets, Random(seed))
        whole = output([batch(broken)], enriched=True)
        first, second = batch(broken).split(len(broken) // 2)
        assert output([first, second], enriched=True) == whole
