"""Shared by the tests of embedded formats: messages of shipped captures, and their clients' own accounts."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Message, SaslToken

CAPTURES = Path(__file__).resolve().parents[3] / "captures"


@functools.cache
def reported(name: str, show_secrets: bool = False) -> tuple[Message | SaslToken, ...]:
    """The messages and raw tokens of a capture."""
    inspector = Inspector(show_secrets=show_secrets)
    out = []
    with open_captures([str(CAPTURES / name)]) as source:
        for part in source:
            out += inspector.feed(part)
    out += inspector.close()
    return tuple(event for event in out if isinstance(event, Message | SaslToken))


def messages(name: str, api: str, kind: str) -> list[Message]:
    """The requests or responses of one API with a body, in order."""
    return [
        one for one in reported(name) if isinstance(one, Message) and (one.api, one.type) == (api, kind) and one.body
    ]


def account(name: str, kind: str) -> list[dict[str, Any]]:
    """The client program's reports of this kind, in order."""
    lines = (CAPTURES / name).with_suffix("").with_suffix(".log.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def partitions(topics: Iterable[dict[str, Any]]) -> list[str]:
    """`orders-0`, `orders-1` … of topics with their partitions."""
    return sorted(f"{topic['topic']}-{number}" for topic in topics for number in topic["partitions"])


def task(one: dict[str, Any]) -> str:
    """A task of Kafka Streams as it prints them: `0_1`, in a named topology `name__0_1`."""
    name = "".join(map(chr, one.get("named_topology", ())))
    return (
        f"{name}__{one['topic_group_id']}_{one['partition']}" if name else f"{one['topic_group_id']}_{one['partition']}"
    )


def connectors(items: list[dict[str, Any]] | None) -> tuple[list[str], list[str]]:
    """Connectors and tasks (`copy-0`) assigned to a Connect worker."""
    found = items or []
    return (
        sorted(one["connector"] for one in found if -1 in one["tasks"]),
        sorted(f"{one['connector']}-{number}" for one in found for number in one["tasks"] if number != -1),
    )
