"""Names in messages, forward and with what is known before."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.enricher import MAX_KINDS, RenderedBodies
from kafkasniff.model import Direction, Message, Summary
from tests.craft.batches import batch
from tests.enrich.talks import ORDERS, both, events, exchanges, messages


def topics(message: Message, field: str) -> list[tuple[str, str | None]]:
    assert message.body is not None
    return [(one["topic_id"], one.get("_topic_name")) for one in message.body[field]]


def test_names_from_a_first_pass_are_known_before() -> None:
    """As `--two-pass` does it."""
    catalog = Catalog(retroactive=True)
    inspector = Inspector(records="skip", exchanges=False)
    learner = Enricher(catalog, adds=False)
    seen = [*learner.feed(inspector.feed(batch(both()))), *learner.feed(inspector.close())]
    assert "_topic_name" not in repr(seen)
    assert "_session" not in repr(seen)
    assert not learner.wants_metadata_log
    catalog.retroactive = False
    found = events(both(), catalog)
    assert topics(messages(found, "request", "Fetch")[0], "topics") == [(ORDERS[1], "orders")]
    assert {one.broker_id for one in exchanges(found, "Fetch")} == {3}
    assert messages(found, "request", "Fetch")[1].session_topics == ("orders",)


def test_the_metadata_log_is_wanted_where_ids_are_left() -> None:
    log = {"topic": "__cluster_metadata", "partitions": [{"partition_index": 0, "records": None}]}
    by_name = Message("response", 9, api_key=1, api="Fetch", api_version=12, body={"responses": [log]})
    by_id = Message(
        "response", 9, api_key=1, api="Fetch", api_version=13, body={"responses": [{"topic_id": ORDERS[1]}]}
    )
    learner = Enricher(adds=False)
    learner.feed([by_id])
    assert not learner.wants_metadata_log
    learner.feed([by_name])
    assert learner.wants_metadata_log
    learner.catalog.learn_topic(ORDERS[1], "orders")
    assert not learner.wants_metadata_log


@pytest.mark.parametrize("topics", [None, [], [None], [{}], [{"topic": None}], [{"topic": b"__\xff"}], [{"topic": 5}]])
def test_topics_that_are_odd(topics: Any) -> None:
    for version in (0, 3, 12, 13):
        body = {"responses": copy.deepcopy(topics)}
        message = Message("response", 9, api_key=1, api="Fetch", api_version=version, body=body)
        assert Enricher().feed([message])[0].body == {"responses": topics}


def test_truncated_and_wrong_bodies() -> None:
    enricher = Enricher(Catalog({ORDERS[1]: "orders"}), summary=Summary())
    for body in (
        {}, {"topics": None}, {"topics": [None, 7, {}]}, {"topics": [{"topic_id": None}]},
        {"topics": [{"topic_id": ORDERS[1]}], "session_id": 3}, {"topics": {"topic_id": ORDERS[1]}},
        {"forgotten_topics_data": [{"topic_id": b"\xff", "partitions": None}]},
    ):  # fmt: skip
        enricher.feed([Message("request", 9, api_key=1, api="Fetch", api_version=13, body=body)])
    enricher.feed([Message("response", 9, api_key=1, api="Fetch", api_version=13, body=None)])
    enricher.feed(
        [Message("request", 9, api_key=18, api="ApiVersions", api_version=3, body={"client_software_name": "x"})]
    )
    enricher.feed([Message("request", 9, api_key=999, api_version=0, body={})])
    enricher.feed([Message("response", 9)])
    # A client's message gives no name, nor does one that is not UTF-8.
    unknown = Enricher()
    for kind, name in (("request", "orders"), ("response", b"\xff")):
        body = {"topics": [{"name": name, "topic_id": ORDERS[1]}]}
        unknown.feed([Message(kind, 9, api_key=3, api="Metadata", api_version=12, body=body)])  # type: ignore[arg-type]
    assert unknown.catalog.topic(ORDERS[1]) is None
    # Kinds of messages are bounded.
    unknown.feed([Message("request", 9, api_key=key, api_version=0, body={}) for key in range(MAX_KINDS + 10)])
    assert len(unknown._plans) <= MAX_KINDS
    nothing: list[Message] = []
    assert enricher.feed(nothing) is nothing


KNOWN, OWN, OTHER = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw", "ICEiIyQlJicoKSorLC0uLw"
NAMES = {KNOWN: 'orders "é\\\n', OWN: "__consumer_offsets"}


def rendered_and_read(key: int, version: int, direction: Direction, body: Any) -> tuple[str | None, str]:
    """The text with names, and that of the body that was read for them."""
    text = orjson.dumps(body).decode()
    read = orjson.loads(text)
    RenderedBodies(NAMES).name_body(key, version, direction, read)
    return RenderedBodies(NAMES).name_text(key, version, direction, text), orjson.dumps(read).decode()


texts = st.sampled_from(["", "x", f'"topic_id":"{KNOWN}"', "_x", "\\", '{"topic_id":', "é"])
TOPICS = st.lists(
    st.tuples(st.sampled_from([KNOWN, OTHER, "AAAAAAAAAAAAAAAAAAAAAA"]), st.booleans(), st.integers(-1, 9), texts),
    max_size=4,
)


@given(TOPICS, texts)
def test_a_text_gets_the_names_that_its_body_would_get(found: Any, rack: str) -> None:
    asked = [
        {
            "topic_id": one,
            **({"_topic_name": NAMES[KNOWN]} if named and one == KNOWN else {}),
            "partitions": [{"partition": number, "note": text}],
        }
        for one, named, number, text in found
    ]
    named, read = rendered_and_read(1, 13, "request", {"session_id": 0, "topics": asked, "rack_id": rack})
    assert named in {None, read}
    assert named is not None or "_x" in {rack, *(text for *_, text in found)}


def test_a_name_is_escaped() -> None:
    named, read = rendered_and_read(1, 13, "response", {"responses": [{"topic_id": KNOWN, "partitions": []}]})
    assert named == read
    assert json.loads(named or "")["responses"][0]["_topic_name"] == NAMES[KNOWN]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ((1, 13, "request"), {"topics": [{"topic_id": OWN, "partitions": []}]}),
        ((1, 13, "request"), {"topics": [{"topic_id": KNOWN}], "_session": {}}),
        ((3, 12, "response"), {"topics": [{"name": "orders", "topic_id": KNOWN}]}),
        ((1, None, "request"), {"topics": [{"topic_id": KNOWN}]}),
    ],
)
def test_a_body_that_has_to_be_read(kind: tuple[int, int, Direction], body: Any) -> None:
    """The brokers' own topics have records with a meaning; other fields may name the topic already."""
    assert rendered_and_read(*kind, body)[0] is None
