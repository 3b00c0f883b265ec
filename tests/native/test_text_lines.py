"""Lines of text by the kernel, between those of a `TextSink`: all of them are those of the sink alone.

`tests/engine/test_lines.py` compares the lines of whole runs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.native import kernel
from kafkasniff.native.lines import LineBatch
from kafkasniff.sinks.native_lines import Ends
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from tests.choice import one_in
from tests.conftest import shipped_captures
from tests.native.feed_messages import Recorder, Seen, batches, named_by, recorded

CAPTURES = {path.name: path for path in shipped_captures()}
WAYS: list[dict[str, Any]] = [
    {},
    {"colour": True},
    {"captures": True, "colour": True},
    {"verbosity": 1, "width": 60},
    {"verbosity": 2, "colour": True},
    {"verbosity": 2, "width": 1, "captures": True},
]


def captured(*names: str, records: str = "metadata") -> tuple[Recorder, list[Seen]]:
    with open_captures([str(CAPTURES[name]) for name in names], stdin=None) as source:
        recorder, seen = recorded(source, records=records)
    for one in seen:
        if (named := named_by(Enricher(sessions=False), one.message)) is not None:
            msgspec.structs.force_setattr(one.message, "body", named.body)
    return recorder, seen


def lines(recorder: Recorder, seen: Sequence[Seen], way: dict[str, Any], *, size: int = 64) -> tuple[bytes, int]:
    """The lines of what was recorded, and how many of them the kernel wrote.

    `seen`: the messages that it may write.
    """
    events, names = recorder.reported, recorder._state.captures
    sides = {one.connection.number: one.connection for one in seen}

    def ends(index: int) -> Ends:
        return sides[index]

    out = io.BytesIO()
    sink = TextSink(out, **way)
    assert sink.writes_plain_lines
    enricher = Enricher(sessions=False)
    native = NativeText(kernel(), sink, ends, names.__getitem__, enricher)
    native.use(Detail(recorder.decode_options))
    of = {id(one.message): one for one in seen}
    ours = [of[id(event)] for event in events if id(event) in of]
    made = batches(ours, size)
    at = end = written = 0
    waiting = list(events)[::-1]
    while waiting:
        event = waiting.pop()
        if id(event) not in of:
            sink.write(event)
            continue
        if at == end:
            batch = next(made)
            at, end = 0, len(batch.seen)
            native.bind(LineBatch(batch.messages, len(batch.seen), batch.buffer, batch.arena))
        first = at
        at += 1
        while at < end and waiting and waiting[-1] is batch.seen[at].message:
            waiting.pop()
            at += 1
        while first < at:
            left = native.write(first, at)
            written += left - first
            if left < at:
                sink.write(batch.seen[left].message)
                left += 1
            first = left
    sink.close()
    return out.getvalue(), written


def alone(events: Sequence[Any], way: dict[str, Any]) -> bytes:
    """The lines of the sink alone."""
    out = io.BytesIO()
    sink = TextSink(out, **way)
    for event in events:
        sink.write(event)
    sink.close()
    return out.getvalue()


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_the_same_lines(way: int) -> None:
    """Captures with everything that the kernel summarizes, and one of two connections; in small parts, too."""
    chosen = WAYS[way]
    records = "full" if chosen.get("verbosity", 0) > 1 else "metadata"
    names = ("librdkafka-group-classic.pcap", "sarama.pcap") if chosen.get("captures") else ("java-codecs.pcap",)
    recorder, seen = captured(*names, records=records)
    expected = alone(recorder.reported, chosen)
    for size in one_in(2, (3, 64)):
        made, written = lines(recorder, seen, chosen, size=size)
        assert made.splitlines() == expected.splitlines()
        assert written > 0.3 * len(seen)
