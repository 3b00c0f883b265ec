"""Adds names to bodies that were already rendered as JSON when the names became known."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from kafkasniff.enrich.catalog import Catalog
from kafkasniff.enrich.enricher import Enricher

__all__ = ["RenderedBodies"]


class RenderedBodies(Enricher):
    """An `Enricher` for bodies with bytes as in JSON lines: text if they are UTF-8, else `{"base64"}`."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        super().__init__(Catalog(topics), sessions=False)
        # These names are final: a message that gives an id another name changes none.
        self.catalog.most_topics = 0

    def _records(self, topic: str, records: object) -> None:
        if isinstance(records, dict):
            for batch in records["batches"]:
                for record in batch.get("records", ()):
                    # The interpretation needs the bytes.
                    for field in ("key", "value"):
                        record[field] = _bytes(record.get(field))
        super()._records(topic, records)


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and "base64" in value:
        return b64decode(value["base64"])
    return value
