"""Filters on records: what is decided on columns is what the decoded messages say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters.columns import ByteStrings
from kafkasniff.filters.patterns import required_text
from kafkasniff.packets import PacketBatch
from tests.choice import one_in
from tests.craft import kafka_bytes as kafka
from tests.engine.shown import agree
from tests.engine.talks import TOPIC_ID, USUAL, Say, exchange_of, packets_of, talks

TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
PLAIN = [
    kafka.record(0, b"key-1", b'{"id": 17, "to": [{"name": "ann"}]}'),
    kafka.record(1, None, "grün".encode(), [("a", b"x"), ("b", b"needle"), ("a", b"")], 9),
    kafka.record(2, b"", None),
    kafka.record(3, b"nee", b"dle \xff\xfe and \xc3"),
    kafka.record(4, b"\x80", b""),
]
BATCH = kafka.record_batch(PLAIN, 40)
SECRET = kafka.record(0, b"connector-a", b'{"properties": {"password": "needle"}}')
CONTROL = kafka.record(0, bytes(4), bytes(6))


def _with_attributes(batch: bytes, attributes: int) -> bytes:
    checked = kafka.int16(attributes) + batch[23:]
    return batch[:17] + crc32c.crc32c(checked).to_bytes(4) + checked


SETS = {
    "plain": BATCH,
    "compressed": kafka.record_batch(PLAIN, compressed=True),
    "two batches": kafka.record_batch(PLAIN[:2], compressed=True) + BATCH,
    "none": kafka.record_batch([]),
    "empty field": b"",
    "a trace id": kafka.record_batch([kafka.record(0, b"k", b"v", [TRACE])]),
    "a secret": kafka.record_batch([PLAIN[0], SECRET]),
    "an unlikely secret": kafka.record_batch([kafka.record(0, b"connector-a", b"needle")]),
    "a control batch": _with_attributes(kafka.record_batch([CONTROL]), 0x20),
    "log append time": _with_attributes(BATCH, 0x08),
    "no timestamp": kafka.record_batch([kafka.record(0, b"k", b"needle")], timestamp_ms=-1),
    "truncated": BATCH + BATCH[:-9],
    "a wrong checksum": BATCH[:-1] + b"!",
    "fewer records than stated": BATCH[:57] + kafka.int32(9) + BATCH[61:],
    "not compressed": kafka.record_batch(PLAIN, packed=b"needle"),
    "an odd header": kafka.record_batch([kafka.record(0, b"k", b"needle", [("\x7f", b"x")]).replace(b"\x7f", b"\xff")]),
    "of another magic": BATCH[:16] + b"\x01" + BATCH[17:],
}


def _words(name: str, records: bytes) -> dict[str, Say]:
    """In a request, in a response, and in the response about a topic by its id."""
    return {
        f"{name}, produced": exchange_of(
            lambda n: kafka.produce_request(n, "orders", records), lambda n: kafka.produce_response(n, "orders", n)
        ),
        f"{name}, fetched": exchange_of(
            lambda n: kafka.fetch_request(n, "orders", n), lambda n: kafka.fetch_response(n, "orders", records, n + 1)
        ),
        f"{name}, by id": exchange_of(
            lambda n: kafka.fetch_request_by_id(n, [(TOPIC_ID, [0])]),
            lambda n: kafka.fetch_response_by_id(n, [(TOPIC_ID, 0, records)]),
        ),
    }


WORDS = {name: say for kind, records in SETS.items() for name, say in _words(kind, records).items()} | USUAL


def _batches(*kinds: str, times: int = 1, cuts: Sequence[int] = ()) -> list[PacketBatch]:
    said = [["heartbeat", *_words(kind, b""), "metadata", *_words(kind, b"")] * times for kind in kinds]
    return packets_of(talks(said, words=WORDS), cuts)


FILTERS = [
    *("has record", "not (has record)", 'record.key == "key-1"', 'record.key != "key-1"', "has record.key"),
    *('record.value contains "needle"', 'record.value =~ "n[e]{2}dle"', 'record.value !~ "needle$"'),
    *('record.value == "grün"', r'record.value contains "\\xff"', r'record.value =~ "xfe and"', 'record.value =~ "ü"'),
    *('record.value startswith "dle"', 'record.value endswith "}"', 'record.value in ("v", "grün")'),
    *('record.header[a] == ""', 'record.header["b"] =~ "need"', "has record.header[c]", 'record.value == ""'),
    *("record.offset > 41", "record.timestamp < 2026-01-01T00:00:00Z", 'record.place == "orders-0@41"'),
    *("record.value.id == 17", 'record.value.to.name == "ann"', "has record.value.$", "has trace_id"),
    *('record.key == "k" and record.value == "v"', 'topic == "orders" and record.value contains "needle"'),
    'not (record.value contains "needle" or api == "Fetch")',
]


@pytest.mark.parametrize("expression", one_in(3, FILTERS))
def test_columns_select_what_messages_select(expression: str) -> None:
    found, expected = agree("json", _batches(*SETS, cuts=[30, 60]), expression=expression)
    assert found.decoded < expected.decoded


@pytest.mark.parametrize("show_secrets", [False, True])
def test_secrets_are_not_searched_unless_shown(show_secrets: bool) -> None:
    options = {"records": "full", "show_secrets": show_secrets}
    found, _ = agree("text", _batches("a secret"), expression='record.value =~ "needle"', options=options)
    assert bool(found.out.getvalue()) is show_secrets


def test_records_are_not_decoded_to_reject_them() -> None:
    batches, options = _batches("compressed", "plain", times=5), {"records": "full"}
    found, expected = agree("text", batches, expression='record.value contains "nothing"', options=options)
    assert expected.decoded - found.decoded > 2 * 2 * 5 * 8


PARTS = st.sampled_from(["a", "é", "ab", "", "\\xff", "x"]) | st.text("aé\\xf", max_size=4)


@given(st.lists(PARTS.map(str.encode) | st.binary(max_size=3), max_size=8), PARTS.map(str.encode))
def test_strings_that_are_searched_together(values: list[bytes], part: bytes) -> None:
    ends = [sum(map(len, values[:count])) for count in range(len(values) + 1)]
    strings = ByteStrings(b"".join(values), np.array(ends, np.int32))
    assert list(strings) == values == strings[:]
    if part:
        assert {place for place, value in enumerate(values) if part in value} <= set(strings.near(part))

    def is_text(value: bytes) -> bool:
        return value.decode(errors="replace").encode() == value

    assert strings.are_text is all(map(is_text, values))


@given(st.from_regex("(ab|c)(d|e?)+f{1,2}[gh]i", fullmatch=True))
def test_required_text_is_in_every_match(text: str) -> None:
    pattern = "(ab|c)(d|e?)+f{1,2}[gh]i"
    assert re.search(pattern, text)
    assert required_text(pattern) in text
