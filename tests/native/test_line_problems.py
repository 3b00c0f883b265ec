"""Problems of bodies in lines by the kernel: bodies that end early, are too long or have bytes changed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.sinks.csv import CSV, CsvSink
from tests.choice import one_in
from tests.kafka.encode import Plan
from tests.native.feed_messages import Batch, Native, Recorder, Seen, batches, by_sink
from tests.native.kernel_summaries import TameEncoder, kinds_with_tables
from tests.native.test_lines import compare
from tests.native.test_text_lines import alone, lines
from tests.sinks.test_native_trees import message_of


def damaged(rng: Random, options: DecodeOptions) -> Iterator[Seen]:
    """Messages of all versions, whole and with something wrong in their bodies."""
    for kind in kinds_with_tables():
        body = TameEncoder(Plan(rng, unknown_tags=False)).body(kind.root)
        flipped = bytearray(body)
        for _ in range(rng.randrange(1, 3) if body else 0):
            flipped[rng.randrange(len(body))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        for data in (body, body[: rng.randrange(len(body) + 1)], body + b"\0\1"[: rng.randrange(3)], bytes(flipped)):
            if (one := message_of(kind, data, options)) is not None:
                yield one


def by_csv(batch: Batch) -> list[bytes]:
    found = []
    for one in batch.seen:
        out = io.BytesIO()
        sink = CsvSink(out)
        sink.write(one.message)
        sink.close()
        found.append(out.getvalue().split(b"\n", 1)[1])
    return found


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.parametrize("shape", ["json", "csv"])
def test_the_same_as_the_sink(shape: str, seed: int) -> None:
    """Most of them are written by the kernel, which also counts the problems."""
    seen = list(damaged(Random(seed), DecodeOptions()))
    more = {"shape": CSV, "names_captures": True} if shape == "csv" else {}
    native = Native([seen[0].connection], ["=a,b"], DecodeOptions(), **more)
    for one in seen:
        msgspec.structs.force_setattr(one.message, "capture", "=a,b")
    written = problems = 0
    for batch in batches(seen, 100, client_ids={7: b"client"}):
        expected = by_csv(batch) if more else by_sink(batch)
        native.problems = 0
        left = set(compare(native.of(batch), expected))
        counts = [len(one.message.problems) for one in batch.seen]
        assert native.problems == sum(count for at, count in enumerate(counts) if at not in left)
        written += sum(count > 0 for at, count in enumerate(counts) if at not in left)
        problems += sum(count > 0 for count in counts)
    assert problems > 800
    assert written > 0.8 * problems


WAYS: list[dict[str, Any]] = [
    {"colour": True},
    {"verbosity": 1, "width": 60},
    {"verbosity": 2, "width": 40, "colour": True},
]


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.parametrize("way", WAYS)
def test_the_same_text(way: dict[str, Any], seed: int) -> None:
    """Summaries of what was read, at most three problems below them without `-v`, and the bodies that there are."""
    records = "full" if way.get("verbosity") == 2 else "metadata"
    seen = list(damaged(Random(seed), DecodeOptions(records=records)))
    recorder = Recorder(records=records)
    recorder.reported = [one.message for one in seen]
    recorder._state.captures = ("capture",)
    made, written = lines(recorder, seen, way, size=100)
    assert made.splitlines() == alone(recorder.reported, way).splitlines()
    assert written > 0.75 * len(seen)
