"""Adds names to bodies that were already rendered as JSON when the names became known."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.enrich.catalog import Catalog
from kafkasniff.enrich.enricher import INTERNAL, Enricher
from kafkasniff.enrich.plan import NamePlan, message_plan
from kafkasniff.model import Direction

__all__ = ["RenderedBodies"]


_ID: Final = re.compile(r'"topic_id":"([\w-]{22})"(?:,"_topic_name":"(?:[^"\\]|\\.)*")?', re.ASCII)
"""A topic id as a field, with its name if it has one. Quotes within strings are escaped, so none of them match."""
_ADDED: Final = re.compile(r'"_(?!topic_name":)')
"""A field that is not in the message, or a string that looks like one."""


class RenderedBodies(Enricher):
    """An `Enricher` for bodies with bytes as in JSON lines: text if they are UTF-8, else `{"base64"}`."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        super().__init__(Catalog(topics), sessions=False)
        # These names are final: a message that gives an id another name changes none.
        self.catalog.most_topics = 0

    def name_text(self, api_key: int, api_version: int | None, direction: Direction, text: str) -> str | None:
        """The text with names; None if the body has to be read (`name_body`)."""
        if api_version is None or not _has_ids_alone(api_key, api_version, direction) or _ADDED.search(text):
            return None
        added = {one: self.catalog.topic(one) for one in {found[1] for found in _ID.finditer(text)}}
        if any(name is not None and name.startswith(INTERNAL) for name in added.values()):
            return None
        fields = {
            one: f'"topic_id":"{one}","_topic_name":{msgspec.json.encode(name).decode()}'
            for one, name in added.items()
            if name is not None
        }
        return _ID.sub(lambda found: fields.get(found[1], found[0]), text)

    def _records(self, topic: str, records: object) -> None:
        if isinstance(records, dict):
            for batch in records["batches"]:
                for record in batch.get("records", ()):
                    # The interpretation needs the bytes.
                    for field in ("key", "value"):
                        record[field] = _bytes(record.get(field))
        super()._records(topic, records)


@lru_cache(maxsize=4096)  # keys and versions come from the wire
def _has_ids_alone(api_key: int, version: int, direction: Direction) -> bool:
    """Whether all topics of such a body that have an id are named by it alone."""
    found = message_plan(api_key, version, direction)
    return found is None or all(
        plan.topic_id is None or (plan.topic_id == "topic_id" and plan.topic is None) for plan in _structs(found[0])
    )


def _structs(plan: NamePlan) -> Iterator[NamePlan]:
    yield plan
    for _, child in plan.children:
        yield from _structs(child)


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and "base64" in value:
        return b64decode(value["base64"])
    return value
