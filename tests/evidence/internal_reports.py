"""Records of the coordinators' own topics: what their classes read (`internal_record`), and what the lines say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.evidence.compare import differences
from tests.evidence.decoded import Decoded, Entry, Record


def internal_differences(entry: Entry, record: dict[str, Any]) -> Iterator[str]:
    """Where `_key` and `_value` of a record depart from what Kafka's classes read of it, each with its path."""
    wanted = {"key": (entry["key_class"], entry["type"], entry["key"])}
    if entry["value_class"] is not None:
        wanted["value"] = (entry["value_class"], entry["version"], entry["value"])
    elif "_value" not in record or record["_value"] is not None or record["value"] is not None:
        yield f"value: {record['value']!r}, {record.get('_value')!r}, for Kafka this record deletes"
    for part, (name, version, fields) in wanted.items():
        ours = record.get(f"_{part}")
        if not isinstance(ours, dict) or ours.keys() != {"type", "version", "value"}:
            yield f"{part}: {ours!r}, Kafka has a {name}"
            continue
        if (ours["type"], ours["version"]) != (name, version):
            yield f"{part}: {ours['type']} version {ours['version']}, Kafka has {name} version {version}"
        yield from differences(ours["value"], fields, part)


def internal_records(seen: Decoded) -> list[Record]:
    """Records of fetched topics whose names begin as those of Kafka's own do, without the markers of transactions."""
    return [one for one in seen.consumed if (one.topic or "").startswith("__") and "_control" not in one.record]


def internal_record(seen: Decoded, entry: Entry) -> bool:
    """Whether a record of the lines is what the classes read."""
    place = (entry["topic"], entry["partition"], entry["offset"])
    found = [one for one in internal_records(seen) if (one.topic, one.partition, one.offset) == place]
    return bool(found) and not any(list(internal_differences(entry, one.record)) for one in found)
