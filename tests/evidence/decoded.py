"""The golden lines of a capture, in a form that can be asked what a client says it did."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tests.evidence.compare import Line

Entry = dict[str, Any]
"""A line of a sidecar: what a client reports."""


class Record(NamedTuple):
    topic: str | None
    partition: int
    offset: int | None
    batch: dict[str, Any]
    record: dict[str, Any]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a body, the body first."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def has(one: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(name in one and one[name] == value for name, value in fields.items())


def to_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


class Decoded:
    def __init__(self, lines: tuple[Line, ...], open_lines: tuple[Line, ...]) -> None:
        self.lines = lines
        self.open_lines = open_lines
        """The same with secrets shown."""

    def messages(self, apis: str, kind: str, client_id: str | None = None, *, shown: bool = False) -> list[Line]:
        """Lines of `apis` (separated by blanks) with a body."""
        return [
            line
            for line in (self.open_lines if shown else self.lines)
            if line["type"] == kind and line["api"] in apis.split() and line["body"] is not None
            if client_id in {None, line["client_id"]}
        ]

    def found(self, apis: str, kind: str, client_id: str | None = None, **fields: Any) -> bool:
        """Whether a body of those has an object with these fields."""
        lines = self.messages(apis, kind, client_id)
        return any(has(one, fields) for line in lines for one in objects(line["body"]))

    @cached_property
    def topics(self) -> dict[str, str]:
        """Topic ids to names, of all messages that have both."""
        return {
            one["topic_id"]: one.get("name") or one["topic_name"]
            for line in self.lines
            if line["type"] in {"request", "response"}
            for one in objects(line["body"])
            if isinstance(one.get("topic_id"), str) and (one.get("name") or one.get("topic_name"))
        }

    def _topic(self, one: Mapping[str, Any]) -> str | None:
        name = one.get("name") or one.get("topic")
        return name if name is not None else self.topics.get(one.get("topic_id", ""))

    @cached_property
    def produced(self) -> list[Record]:
        """Records of all Produce requests, with the offsets that the responses gave them."""
        answers: dict[tuple[int, str | None, int], int] = {}
        for line in self.messages("Produce", "response"):
            for topic in line["body"]["responses"]:
                for one in topic["partition_responses"]:
                    answers[line["exchange"], self._topic(topic), one["index"]] = one["base_offset"]
        found = []
        for line in self.messages("Produce", "request"):
            for topic in line["body"]["topic_data"]:
                name = self._topic(topic)
                for one in topic["partition_data"]:
                    base = answers.get((line["exchange"], name, one["index"]))
                    records = [
                        (batch, record)
                        for batch in (one.get("records") or {"batches": []})["batches"]
                        for record in batch["records"]
                    ]
                    for ordinal, (batch, record) in enumerate(records):
                        offset = None if base is None else base + ordinal
                        found.append(Record(name, one["index"], offset, batch, record))
        return found

    @cached_property
    def consumed(self) -> list[Record]:
        """Records of all Fetch and ShareFetch responses; the same one may come several times."""
        return [
            Record(self._topic(topic), one["partition_index"], record["offset"], batch, record)
            for line in self.messages("Fetch ShareFetch", "response")
            for topic in line["body"]["responses"]
            for one in topic["partitions"]
            for batch in (one.get("records") or {"batches": []})["batches"]
            for record in batch["records"]
        ]

    def offsets(self, apis: str, kind: str, field: str, group: str) -> dict[str, set[int]]:
        """All values of an offset field by partition, within bodies that name the group."""
        found: dict[str, set[int]] = {}
        for line in self.messages(apis, kind):
            whole = [one for one in objects(line["body"]) if "group_id" in one]
            # A response of the older versions names no group: its request does.
            if whole and all(one["group_id"] != group for one in whole):
                continue
            for topic in objects(line["body"]):
                for one in topic.get("partitions") or ():
                    if isinstance(one, dict) and field in one:
                        name = f"{self._topic(topic) or topic.get('topic_name')}-{one['partition_index']}"
                        found.setdefault(name, set()).add(one[field])
        return found
