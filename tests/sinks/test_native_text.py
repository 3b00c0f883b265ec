"""What lines of text of the kernel are made of, and how many. `tests/native/test_text_lines.py` compares the lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from kafkasniff.enrich import Enricher
from kafkasniff.kafka.apis.named_apis import METADATA
from kafkasniff.kafka.connection.detail import Detail, Level
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Endpoint, Lines
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.lines import LineBatch
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from tests.native.feed_messages import batches, crafted
from tests.native.kernel_and_walker import the_kernel

HEARTBEAT, SASL_AUTHENTICATE = 12, 36
CLIENT, BROKER = Endpoint("192.0.2.1", 40_000), Endpoint("2001:db8::2", 9092)
REQUEST = b"\0\x0c\0\0\0\0\0\5\0\1c\0\1g\0\0\0\3\0\1m"
ODD = REQUEST[:10] + b"\xff" + REQUEST[11:]
"""Its client id is not UTF-8, so that Python writes it."""


class _Written:
    """A sink and the kernel's writer of its lines."""

    def __init__(self, left: Callable[[], int] | None = None, **way: Any) -> None:
        self.out = io.BytesIO()
        self.sink = TextSink(self.out, **way)
        names = ["a.pcap", "b.pcap", "a.pcap"]
        self.native = NativeText(
            *(the_kernel(), self.sink, lambda index: (index, CLIENT, BROKER), names.__getitem__),
            *(Enricher(sessions=False), left),
        )

    def bind(self, *requests: bytes) -> None:
        seen = [crafted(data, None, DecodeOptions()) for data in requests]
        assert None not in seen
        (batch,) = batches([one for one in seen if one is not None], len(seen))
        self.native.bind(LineBatch(batch.messages, batch.numbers, batch.buffer, batch.arena, batch.earlier))

    @property
    def lines(self) -> list[bytes]:
        self.sink.flush()
        return [line for line in self.out.getvalue().splitlines() if b"#7" in line]


def test_ends_and_labels_are_the_columns_of_the_sink() -> None:
    made = _Written()
    number, request, response = made.native.ends(3)
    assert number == 3
    assert request.decode() == "192.0.2.1:40000 → [2001:db8::2]:9092"
    assert response.decode() == "192.0.2.1:40000 ← [2001:db8::2]:9092"
    assert made.native.label(HEARTBEAT, 4).decode().rstrip() == "Heartbeat v4"


def test_captures_of_the_same_name_have_the_same_number() -> None:
    numbers = [_Written(captures=True).native.capture(index) for index in range(2)]
    assert numbers[0][1] == b"capture a.pcap"
    made = _Written(captures=True).native
    first, second, third = (made.capture(index) for index in range(3))
    assert first == third
    assert first[0] != second[0]
    assert _Written().native.capture(0)[1] == b""


def test_tables() -> None:
    native = _Written().native
    native.use(Detail(DecodeOptions()))
    table = native.table(HEARTBEAT, 4, True)
    assert table.address
    assert (table.bare, table.teaches, table.below) == (False, False, b"")
    assert native.table(METADATA, 12, False).teaches
    # The same memory as before.
    assert native.table(HEARTBEAT, 4, True).address == table.address
    unknown = native.table(HEARTBEAT, VERSIONS - 1, True)
    assert (unknown.address, unknown.bare) == (0, True)
    assert b"version-unknown" in unknown.below
    assert not native.takes(SASL_AUTHENTICATE, 2, is_request=True)
    assert native.takes(HEARTBEAT, 4, is_request=True)


def test_lines_below_tell_what_is_left_out() -> None:
    detail = Detail(DecodeOptions())
    native = _Written().native
    detail.set(Level.NO_BODIES)
    native.use(detail)
    table = native.table(HEARTBEAT, 4, True)
    assert (table.address, table.bare) == (0, True)
    assert table.below.endswith(b"\n")


@pytest.mark.parametrize("most", [0, 1, 3, 5, 99])
def test_no_more_lines_than_may_be_written(most: int) -> None:
    shown = 0
    made = _Written(lambda: most - shown)
    made.bind(*[REQUEST] * 5)
    pieces = []
    for piece in made.native.take(0, 5):
        assert isinstance(piece, Lines)
        pieces.append(piece.count)
        shown = min(most, shown + piece.count)
    # All of them are read, whether or not they are shown.
    assert sum(pieces) == 5
    assert len(made.lines) == min(most, 5)


def test_messages_of_python_count_too() -> None:
    shown = 0
    made = _Written(lambda: 3 - shown)
    made.bind(REQUEST, ODD, REQUEST, REQUEST, ODD, REQUEST)
    found: list[Any] = []
    for piece in made.native.take(0, 6):
        count = piece.count if isinstance(piece, Lines) else 1
        found.append(piece if isinstance(piece, int) else (piece.count,))
        shown = min(3, shown + count)
    assert found == [(1,), 1, (1,), (1,), 4, (1,)]
    assert len(made.lines) == 2


def test_lines_continue_after_those_of_the_sink() -> None:
    made = _Written()
    made.bind(REQUEST, REQUEST)
    (one,) = made.native.take(0, 1)
    assert isinstance(one, Lines)
    before = made.sink.state
    assert before.day
    assert made.native.write(1, 2) == 2
    assert made.sink.state == before
    assert len(made.lines) == 2
