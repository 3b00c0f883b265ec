"""Names in bodies that are JSON: in the text itself, as if the body had been read."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich.rendered import RenderedBodies
from kafkasniff.model import Direction

KNOWN, OWN, OTHER = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw", "ICEiIyQlJicoKSorLC0uLw"
NAMES = {KNOWN: 'orders "é\\\n', OWN: "__consumer_offsets"}


def both(key: int, version: int, direction: Direction, body: Any) -> tuple[str | None, str]:
    """The text with names, and that of the body that was read for them."""
    text = orjson.dumps(body).decode()
    read = orjson.loads(text)
    RenderedBodies(NAMES).name_body(key, version, direction, read)
    return RenderedBodies(NAMES).name_text(key, version, direction, text), orjson.dumps(read).decode()


texts = st.sampled_from(["", "x", f'"topic_id":"{KNOWN}"', "_x", "\\", '{"topic_id":', "é"])
topics = st.lists(
    st.tuples(st.sampled_from([KNOWN, OTHER, "AAAAAAAAAAAAAAAAAAAAAA"]), st.booleans(), st.integers(-1, 9), texts),
    max_size=4,
)


@given(topics, texts)
def test_a_text_gets_the_names_that_its_body_would_get(found: Any, rack: str) -> None:
    asked = [
        {
            "topic_id": one,
            **({"_topic_name": NAMES[KNOWN]} if named and one == KNOWN else {}),
            "partitions": [{"partition": number, "note": text}],
        }
        for one, named, number, text in found
    ]
    named, read = both(1, 13, "request", {"session_id": 0, "topics": asked, "rack_id": rack})
    assert named in {None, read}
    assert named is not None or "_x" in {rack, *(text for *_, text in found)}


def test_a_name_is_escaped() -> None:
    named, read = both(1, 13, "response", {"responses": [{"topic_id": KNOWN, "partitions": []}]})
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
    assert both(*kind, body)[0] is None
