"""The topic that KRaft keeps its metadata in, and how to tell that bytes may hold records of it.

Its records hold credentials and sensitive configuration, so where they cannot be read one by one nothing of them is
shown. The name and the fixed id are `org.apache.kafka.common.internals.Topic.CLUSTER_METADATA_TOPIC_NAME` and
`org.apache.kafka.common.Uuid.METADATA_TOPIC_ID`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.uuids import uuid_bytes
from kafkasniff.model import Body, Direction

__all__ = ["TOPIC_ID", "TOPIC_NAME", "metadata_test", "names_metadata", "secret_marks"]

TOPIC_NAME: Final = "__cluster_metadata"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"

_FETCH: Final = 1
_FIRST_WITH_IDS: Final = 13
"""Fetch names topics by id from this version on (KIP-516)."""


def secret_marks(api_key: int, direction: Direction, version: int) -> tuple[bytes, ...]:
    """Bytes without which a message that broke off holds no metadata records; none where it cannot hold any.

    FetchSnapshot is not asked: it holds nothing else, which its definition says.
    """
    if api_key != _FETCH or direction != "response":
        return ()
    return (TOPIC_NAME.encode(),) if version < _FIRST_WITH_IDS else (uuid_bytes(TOPIC_ID),)


def names_metadata(topic: Body) -> bool:
    """Whether this is the topic that a topic's struct in a Fetch response is about: up to v12 by name, then by id."""
    return topic.get("topic_id") == TOPIC_ID or topic.get("topic") == TOPIC_NAME


def metadata_test(api_key: int, direction: Direction) -> Callable[[Body], bool] | None:
    """What tells whether a body holds records of the metadata log; None where none of the API does."""
    if api_key == _FETCH and direction == "response":
        return _is_of_metadata
    found = api(api_key)
    if found is None:
        return None
    message = found.definition.request if direction == "request" else found.definition.response
    return _is_there if message.has_secret_records else None


def _is_of_metadata(body: Body) -> bool:
    for topic in body.get("responses") or ():  # noqa: SIM110 - hot: asked for every Fetch response, most of one topic
        if names_metadata(topic):
            return True
    return False


def _is_there(body: Body) -> bool:
    return bool(body)
