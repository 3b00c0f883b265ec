"""What JSON lines of the kernel are made of. `tests/native/test_lines.py` compares the lines with those of Python."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.plan import reads_nothing
from kafkasniff.kafka.apis.named_apis import FETCH, METADATA, PRODUCE
from kafkasniff.kafka.connection.detail import Detail, Level
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Endpoint, Lines
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.lines import RAW, REDACTED, LineBatch
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.native_lines import NativeLines
from tests.native.feed_messages import batches, crafted
from tests.native.kernel_and_walker import the_kernel

HEARTBEAT, SASL_AUTHENTICATE, API_VERSIONS, ALTER_SCRAM = 12, 36, 18, 51
NEW = VERSIONS - 1
ENDS = 4, Endpoint("192.0.2.1", 40_000), Endpoint("2001:db8::2", 9092)


def _made(options: DecodeOptions | None = None, payload: Payload = SHOWN, **more: Any) -> NativeLines:
    renderer = Renderer(the_kernel(), "auto", reads_nothing, payload.hiding)
    made = NativeLines(
        the_kernel(), renderer, lambda index: (index, *ENDS[1:]), ["a.pcap"].__getitem__, Enricher(Catalog()), **more
    )
    made.use(Detail(options or DecodeOptions()))
    return made


def test_a_connection_with_and_without_ends() -> None:
    made = _made()
    assert made.connection(4) == (4, b'"client":"192.0.2.1:40000","broker":"[2001:db8::2]:9092"')
    renderer = Renderer(the_kernel(), "auto", reads_nothing)
    unknown = NativeLines(the_kernel(), renderer, lambda _: (5, None, None), [].__getitem__, Enricher(Catalog()))
    assert unknown.connection(0) == (5, b'"client":null,"broker":null')


def test_captures_are_named_if_there_are_several() -> None:
    assert _made().capture(0) == b""
    assert _made(names_captures=True).capture(0) == b'"a.pcap"'


@pytest.mark.parametrize("is_request", [True, False])
def test_kinds_that_the_kernel_writes(is_request: bool) -> None:
    made = _made()
    kind = made.kind(HEARTBEAT, 4, is_request)
    assert kind.text == b'"api_key":12,"api":"Heartbeat","api_version":4'
    assert kind.program
    assert (kind.bare, kind.raw, kind.teaches, kind.problems) == (False, 0, False, b"[]")
    assert made.kind(METADATA, 12, is_request).teaches is not is_request
    # Facts about the connection are known in Python only.
    assert made.takes(API_VERSIONS, 3, is_request=True) == bool(made.kind(API_VERSIONS, 3, True).program)
    assert not made.takes(SASL_AUTHENTICATE, 2, is_request=is_request)


def test_unknown_versions_show_bytes_unless_these_may_be_secret_or_payload() -> None:
    kind = _made().kind(HEARTBEAT, NEW, True)
    assert (kind.bare, kind.program, kind.raw) == (True, 0, RAW)
    (problem,) = orjson.loads(kind.problems)
    assert problem["kind"] == "version-unknown"
    assert _made().kind(ALTER_SCRAM, NEW, True).raw == REDACTED
    assert _made(DecodeOptions(show_secrets=True)).kind(ALTER_SCRAM, NEW, True).raw == RAW
    for payload, raw in ((SHOWN, RAW), (Payload("dropped"), REDACTED)):
        assert _made(payload=payload).kind(FETCH, NEW, True).raw == raw
    assert _made(payload=Payload("dropped")).kind(HEARTBEAT, NEW, True).raw == RAW


def test_kinds_by_the_level_of_detail() -> None:
    detail = Detail(DecodeOptions())
    made = _made()
    made.use(detail)
    assert made.kind(FETCH, 12, False).program
    detail.set(Level.NO_BODIES)
    made.use(detail)
    kind = made.kind(FETCH, 12, False)
    assert (kind.bare, kind.program) == (True, 0)
    assert [problem["kind"] for problem in orjson.loads(kind.problems)] == ["body-skipped"]
    assert made.takes(FETCH, 12, is_request=False)


def test_headers_only() -> None:
    kind = _made(DecodeOptions(bodies=False, headers=True)).kind(PRODUCE, 9, True)
    assert (kind.bare, kind.program, kind.problems) == (True, 0, b"[]")


@pytest.mark.parametrize(("terminal", "shown"), [(False, b"\xc2\x9b"), (True, b"\\u009b")])
def test_characters_that_act_on_a_terminal(terminal: bool, shown: bytes) -> None:
    """C1 controls are valid in JSON, but not on a terminal."""
    group = "a\x9bb".encode()
    request = b"\0\x0c\0\0\0\0\0\5\0\1c" + len(group).to_bytes(2, "big") + group + b"\0\0\0\3\0\1m"
    one = crafted(request, None, DecodeOptions())
    assert one is not None
    (batch,) = batches([one], 1)
    made = _made(terminal=terminal)
    made.bind(LineBatch(batch.messages, batch.numbers, batch.buffer, batch.arena, batch.earlier))
    (piece,) = made.take(0, 1)
    assert isinstance(piece, Lines)
    assert b'"group_id":"a' + shown + b'b"' in piece.data
    assert piece.count == 1


@pytest.mark.parametrize(
    ("size", "more", "kind"),
    [
        (3, {}, bytes),
        (30_000, {}, memoryview),
        (30_000, {"ahead": True}, memoryview),
        # It would waste most of the memory that it is in.
        (12_000, {}, memoryview),
        (12_000, {"ahead": True}, bytes),
        (30_000, {"terminal": True}, bytes),
    ],
)
def test_large_lines_are_not_copied_without_need(size: int, more: dict[str, Any], kind: type) -> None:
    group = b"\x01" * size
    request = b"\0\x0c\0\0\0\0\0\5\0\1c" + len(group).to_bytes(2, "big") + group + b"\0\0\0\3\0\1m"
    one = crafted(request, None, DecodeOptions())
    assert one is not None
    (batch,) = batches([one], 1)
    made = _made(**more)
    made.bind(LineBatch(batch.messages, batch.numbers, batch.buffer, batch.arena, batch.earlier))
    for piece in made.take(0, 1):
        assert isinstance(piece, Lines)
        assert type(piece.data) is kind
        assert orjson.loads(piece.data)["body"]["group_id"] == group.decode()
        assert bytes(piece.first(1).data) == bytes(piece.data)
