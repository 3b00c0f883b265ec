"""Names of topic ids from a user's file: JSON, lines, or the output of `kafka-topics.sh --describe`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kafkasniff.enrich.catalog import MAX_TOPICS
from kafkasniff.errors import UsageError
from kafkasniff.kafka.schema.uuids import ZERO_UUID

__all__ = ["parse_topic_ids"]

_ID: Final = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
"""16 bytes as Kafka prints them; the last character has two bits."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that Kafka allows for a topic (`org.apache.kafka.common.internals.Topic`)."""
_DESCRIBED: Final = re.compile(r"Topic:\s*(\S+)\s+TopicId:\s*(\S+)")
_PARTITION: Final = re.compile(r"Topic:\s*\S+\s+Partition:\s*\d+")
_Entry = tuple[int, str, str]
"""Line number, topic id and name."""


def parse_topic_ids(text: str, source: str) -> dict[str, str]:
    """Names by topic id, from a text in one of these forms, which its content identifies.

    - a JSON object, `{id: name}` or `{name: id}`;
    - lines `id name`, in either order; empty lines and those that begin with `#` are skipped;
    - the output of `kafka-topics.sh --describe`.

    If both words of a line can be ids, the first is the id. Raises UsageError, one line with `source` and the line
    number, for anything else, for an id with two names, and for more than MAX_TOPICS ids.
    """
    entries = _from_json(text, source) if text.lstrip().startswith("{") else _from_lines(text, source)
    found: dict[str, str] = {}
    for line, topic_id, name in entries:
        if topic_id == ZERO_UUID:
            raise UsageError(f"{source}:{line}: {topic_id} is the zero id, which no topic has")
        if found.setdefault(topic_id, name) != name:
            raise UsageError(f"{source}:{line}: {topic_id} is {found[topic_id]} before, {name} here")
        if len(found) > MAX_TOPICS:
            raise UsageError(f"{source}:{line}: more than {MAX_TOPICS} topic ids")
    return found


def _from_lines(text: str, source: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        described = _DESCRIBED.match(line.strip())
        if described is not None:
            words = [described[2], described[1]]
        elif _PARTITION.match(line.strip()):
            continue
        if len(words) != 2:
            raise UsageError(f"{source}:{number}: not a topic id and a name")
        yield _entry(source, number, *words)


def _from_json(text: str, source: str) -> Iterator[_Entry]:
    import json  # noqa: PLC0415 - few runs have a file of topic ids

    try:
        pairs: Any = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise UsageError(f"{source}:{error.lineno}: {error.msg}") from None
    except RecursionError:
        raise UsageError(f"{source}:1: nested too deep") from None
    line, at = 1, 0
    for key, value in pairs:
        # The parser does not report positions; entries come in order, so the key follows the previous one.
        quoted = json.dumps(key, ensure_ascii=False)
        place = text.find(quoted, at)
        if place >= 0:
            line += text.count("\n", at, place)
            at = place + len(quoted)
        if not isinstance(value, str):
            raise UsageError(f"{source}:{line}: {key!r} has no string for a value")
        yield _entry(source, line, key, value)


class _Pairs(list[tuple[str, Any]]):
    """All members of a JSON object, in order, duplicates included."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__(pairs)


def _entry(source: str, line: int, one: str, other: str) -> _Entry:
    topic_id, name = (one, other) if _ID.fullmatch(one) else (other, one)
    if not _ID.fullmatch(topic_id):
        raise UsageError(f"{source}:{line}: neither {one!r} nor {other!r} is a topic id as Kafka prints it")
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageError(f"{source}:{line}: {name!r} cannot be a topic's name")
    return (line, topic_id, name)
