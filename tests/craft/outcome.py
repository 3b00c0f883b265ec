"""Runs kafkasniff over packets or files, and makes its JSON lines comparable."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.model import Exchange, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink
from tests.craft.batches import batch
from tests.craft.packet import Packet

Line = dict[str, Any]

PLACE = ("exchange", "connection", "time", "capture", "first_packet", "last_packet", "latency_ms", "duration_ms")
"""What a line says of where and when, and a disturbance may change."""

Side = tuple[str, str, str]
"""Client, broker, and type of the lines: the two streams of a connection have an order each, none between them."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    lines: list[Line]
    summary: Summary

    @property
    def problems(self) -> list[Line]:
        return [line for line in self.lines if line["type"] == "problem"]

    def messages(self, *, drop: Iterable[str] = ()) -> dict[Side, list[Line]]:
        """Requests, responses and SASL tokens without their place, by connection and type, in order.

        `drop`: more keys to remove.
        """
        without = {*PLACE, *drop}
        sides: dict[Side, list[Line]] = defaultdict(list)
        for line in self.lines:
            if line["type"] == "problem":
                continue
            kind = line["direction"] if line["type"] == "sasl" else line["type"]
            kept = {key: value for key, value in line.items() if key not in without}
            sides[line["client"], line["broker"], kind].append(kept)
        return dict(sides)


@dataclasses.dataclass(frozen=True)
class Output:
    """What a run wrote, to the byte."""

    json: bytes
    text: bytes
    summary: Summary
    exchanges: tuple[str, ...] = ()
    """What exchanges have of the messages of others; of an enriched run."""


def _run(
    batches: Iterable[PacketBatch],
    sinks: Sequence[JsonSink | TextSink],
    options: dict[str, Any],
    exchanges: list[str] | None = None,
) -> Summary:
    """`exchanges`: run enriched, and put there what exchanges are given."""
    inspector = Inspector(**options)
    enricher = None if exchanges is None else Enricher(summary=inspector.summary)
    for one in itertools.chain(batches, [None]):
        events = inspector.close() if one is None else inspector.feed(one)
        if enricher is not None:
            enricher.feed(events)
        for event in events:
            if exchanges is not None and isinstance(event, Exchange):
                topics = event.request.session_topics if event.request is not None else ()
                known = (event.exchange, event.broker_id, event.software_name, event.software_version, topics)
                exchanges.append(repr(known))
            for sink in sinks:
                sink.write(event)
    for sink in sinks:
        sink.close()
    return inspector.summary


def output(batches: Iterable[PacketBatch], *, enriched: bool = False, **options: Any) -> Output:
    """The JSON lines and the text of `batches`, bodies and records included."""
    json_stream, text_stream = io.BytesIO(), io.BytesIO()
    sinks = (JsonSink(json_stream), TextSink(text_stream, verbosity=2))
    exchanges: list[str] | None = [] if enriched else None
    summary = _run(batches, sinks, options, exchanges)
    return Output(json_stream.getvalue(), text_stream.getvalue(), summary, tuple(exchanges or ()))


def outcome(batches: Iterable[PacketBatch], **options: Any) -> Outcome:
    stream = io.BytesIO()
    summary = _run(batches, [JsonSink(stream)], options)
    return Outcome([orjson.loads(line) for line in stream.getvalue().splitlines()], summary)


def packets_outcome(packets: Sequence[Packet], **options: Any) -> Outcome:
    return outcome([batch(packets)], **options)


def files_outcome(paths: Iterable[Path], **options: Any) -> Outcome:
    with open_captures([str(path) for path in paths]) as source:
        return outcome(source, **options)
