"""Captures written without payload or secrets, and what is to be compared of what they decode to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkasniff.capture import open_captures
from kafkasniff.capture.write.capture_writer import CaptureWriter, form_of
from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.engine.inspector import Inspector, packed
from kafkasniff.model import Connection
from kafkasniff.redact.matching import Matching, WantedConnections, Written
from kafkasniff.redact.message import Blanker
from tests.cli.console import kafkasniff

COUNTED = ("connection", "exchange", "first_packet", "last_packet", "packet", "capture")
CODECS = {"decompression-failed", "decompression-trailing", "decompression-bound"}


def connections(path: Path, **options: Any) -> list[Connection]:
    inspector = Inspector(connections=True, **options)
    with open_captures([path]) as source:
        events = [event for batch in source for event in inspector.feed(batch)]
    return [event for event in [*events, *inspector.close()] if isinstance(event, Connection)]


def write(
    path: Path,
    out: Path,
    *,
    payload: bool = False,
    secrets: bool = False,
    chunk_size: int = 1 << 20,
    only: Sequence[Connection] | None = None,
) -> Written:
    """Write some connections, by default all that are Kafka."""
    wanted = WantedConnections()
    for one in connections(path) if only is None else only:
        if only is not None or one.verdict == "kafka":
            low, high = sorted((packed(one.client), packed(one.broker)))
            wanted.add((low, high), one.connection_id)
    blanker = None if payload and secrets else Blanker(secrets=secrets, payload=payload)
    with PatchedFile(str(out)) as file, open_captures([path], chunk_size=chunk_size) as source:
        writer = CaptureWriter(file, form_of(str(out)), source.interface)
        matching = Matching(file, writer, wanted, blanker=blanker)
        for batch in source:
            matching.feed(batch, source.packets, batch.end_order - batch.packets, source.fragments)
        return matching.close()


def lines(path: Path, *options: str) -> list[dict[str, Any]]:
    """What a capture decodes to, but for numbers that count over it."""
    found = kafkasniff("decode", "-q", "--format", "json", "--no-payload", *options, path)
    assert found.code == 0, found.err
    for line in found.objects:
        for name in COUNTED:
            line.pop(name, None)
    return [{name: one for name, one in line.items() if name not in COUNTED} for line in found.objects]


def without_blanked(value: Any, path: str = "") -> Any:
    """The same without what is not in a written capture, or not as it was."""
    if isinstance(value, list):
        return [without_blanked(one, path) for one in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for name in ("raw", "crc", "_auth_bytes", "_token"):
        kept.pop(name, None)
    if kept.get("compression", "none") != "none":
        # Blank as a whole. Legacy ones are counted by what is in them.
        kept.pop("records", None)
        kept.pop("record_count", None)
    if re.search(r"\.(configs|synonyms)$", path):
        kept.pop("value", None)
    if "problems" in kept:
        kept["problems"] = [one for one in kept["problems"] if one["kind"] not in CODECS]
    if {"redacted"} == kept.keys() or {"length"} == kept.keys():
        return next(iter(kept.values()))
    return {name: without_blanked(one, f"{path}.{name}") for name, one in kept.items()}
