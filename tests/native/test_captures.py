"""Shipped captures, as they are and disturbed: the same JSON lines with the kernel and without it, to the byte."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import reads_nothing
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.schema.body_forms import RenderedBody
from kafkasniff.model import Message
from kafkasniff.native import kernel
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, JsonSink
from kafkasniff.tcp.packets import PacketBatch
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import shipped_captures
from tests.craft.batches import batch
from tests.craft.read import read_packets
from tests.oracle.inspector import by_python
from tests.test_disturbed import DAMAGE, HARMLESS, INTRUSIONS

CAPTURES = {path.name: path for path in shipped_captures()}
VARIANTS = {**HARMLESS, **INTRUSIONS, **DAMAGE}
DROPPED, HASHED = Payload("dropped"), Payload.hashed(b"salt of the tests")
WAYS: list[tuple[BytesForm, dict[str, Any]]] = [
    ("auto", {}),
    ("hex", {"records": "batches"}),
    ("base64", {"show_secrets": True}),
    ("auto", {"records": "skip"}),
    ("auto", {"payload": DROPPED}),
    ("hex", {"payload": HASHED}),
    ("auto", {"payload": HASHED, "show_secrets": True}),
    ("base64", {"payload": DROPPED, "records": "batches"}),
]


def lines(
    batches: Iterable[PacketBatch], form: BytesForm, *, native: bool, payload: Payload = SHOWN, **options: Any
) -> tuple[bytes, int]:
    """The JSON lines of packets, and how many bodies the kernel made of them."""
    renderer = Renderer(kernel(), form, reads_nothing, payload.hiding) if native else None
    inspector = Inspector(exchanges=False, renderer=renderer, **options)
    enricher = Enricher(summary=inspector.summary)
    out = io.BytesIO()
    sink = JsonSink(out, form=form, payload=payload)
    rendered = 0

    def take(events: list[Any]) -> None:
        nonlocal rendered
        for event in enricher.feed(events):
            rendered += isinstance(event, Message) and isinstance(event.body, RenderedBody)
            sink.write(event)

    for one in batches:
        for events in inspector.feed_slices(one):
            take(events)
    for events in inspector.close_slices():
        take(events)
    sink.close()
    return out.getvalue(), rendered


@pytest.mark.parametrize("name", one_in(6, list(CAPTURES)))
def test_the_same_lines(name: str) -> None:
    """As it is, or disturbed in one of several ways."""
    place = list(CAPTURES).index(name)
    form, options = WAYS[place % len(WAYS)]
    if place % 2:
        variant = list(VARIANTS)[place % len(VARIANTS)]
        batches = [batch(VARIANTS[variant](read_packets(CAPTURES[name]), Random(zlib.crc32(name.encode()))))]
    else:
        with open_captures([str(CAPTURES[name])], stdin=None) as source:
            batches = list(source)
    assert lines(batches, form, native=True, **options)[0] == lines(batches, form, native=False, **options)[0]


def test_the_kernel_is_asked() -> None:
    """Else the tests above would compare Python with Python."""
    with open_captures([str(CAPTURES["java-1.1.pcap"])], stdin=None) as source:
        assert lines(list(source), "auto", native=True)[1] > 10


def test_the_command(tmp_path: Path) -> None:
    """What `decode --format json` prints, by one process and by two."""
    capture = CAPTURES["librdkafka-codecs.pcap"]
    salt = tmp_path / "salt"
    salt.write_bytes(b"salt" * 8)
    hashes = ["--hash-payload", "--hash-salt", str(salt)]
    for options in (
        [],
        ["--no-payload"],
        hashes,
        ["--filter", "latency_ms > 0"],
        ["--api", "Produce"],
        ["--bytes", "hex"],
    ):
        printed = []
        for way, jobs in ((nullcontext, 1), (by_python, 1), (nullcontext, 2)):
            with way():
                done = kafkasniff("decode", "--quiet", "--format", "json", "--jobs", jobs, *options, capture)
            assert done.code == 0, done.err
            printed.append(done.out)
        assert printed[0]
        assert printed[0] == printed[1] == printed[2], options
