"""Bodies that come again: read once, the same to whoever sees them, and nobody's to change."""

from __future__ import annotations

import copy
import io
from collections import Counter

import pytest

from kafkasniff import repeats as module
from kafkasniff.enrich import Catalog, Enricher, leaves_alone
from kafkasniff.inspector import Inspector
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.message import decode_body, decode_request, decode_response
from kafkasniff.model import Body, Message, SharedBody
from kafkasniff.native.feed import VERSIONS
from kafkasniff.repeats import MAX_BYTES, MAX_KEPT, MAX_LENGTH, Repeats
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink
from kafkasniff.versions import version_of
from tests.craft import kafka_bytes as kafka
from tests.test_in_step import USUAL, run, talks
from tests.vectors.reader import Vector, vectors

HEARTBEAT = version_of(12 * VERSIONS)
DESCRIBE_QUOTAS = version_of(48 * VERSIONS)


def heartbeat(member: str) -> bytes:
    return kafka.string("group") + kafka.int32(3) + kafka.string(member)


def read(repeats: Repeats, data: bytes) -> Body | None:
    """The body of a Heartbeat request with others around it."""
    context = DecodeContext(DecodeOptions())
    return repeats.body(HEARTBEAT, HEARTBEAT.request, b"\xff" * 3 + data + b"\xff" * 3, 3, 3 + len(data), context)


def repeats() -> Repeats:
    return Repeats(lambda *_: True)


def test_the_same_bytes_are_read_once() -> None:
    kept = repeats()
    first, other, again = (read(kept, heartbeat(member)) for member in ("one", "other", "one"))
    assert first == {"group_id": "group", "generation_id": 3, "member_id": "one"}
    assert other == {"group_id": "group", "generation_id": 3, "member_id": "other"}
    assert again is first
    assert type(first) is SharedBody


def test_what_is_not_clean_is_not_kept() -> None:
    kept = repeats()
    for _ in range(2):
        assert read(kept, heartbeat("one") + b"\0") is None
        assert read(kept, heartbeat("one")[:-1]) is None
    assert read(kept, heartbeat("one")) == {"group_id": "group", "generation_id": 3, "member_id": "one"}


def test_who_shares_says_which() -> None:
    asked = []

    def shares(*kind: object) -> bool:
        asked.append(kind)
        return False

    kept = Repeats(shares)
    first, again = read(kept, heartbeat("one")), read(kept, heartbeat("one"))
    assert first == again
    assert first is not again
    assert type(first) is dict
    assert asked == [(12, 0, "request")]


def test_kinds_that_do_not_come_again_are_kept_no_more() -> None:
    kept = repeats()
    for number in range(MAX_KEPT + 1):
        read(kept, heartbeat(str(number)))
    assert read(kept, heartbeat("one")) is not read(kept, heartbeat("one"))


def test_kinds_that_come_again_go_on() -> None:
    kept = repeats()
    for number in range(3 * MAX_KEPT):
        assert read(kept, heartbeat(str(number))) is read(kept, heartbeat(str(number)))
        kind = kept._kinds[HEARTBEAT.request]
        assert kind is not None
        assert len(kind) <= MAX_KEPT
        assert kept._bytes == sum(map(len, kind))


def test_other_options_read_anew() -> None:
    kept = repeats()
    kept.use(DecodeOptions())
    first = read(kept, heartbeat("one"))
    kept.use(DecodeOptions())
    assert read(kept, heartbeat("one")) is first
    kept.use(DecodeOptions("skip"))
    again = read(kept, heartbeat("one"))
    assert again == first
    assert again is not first


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH", 0)
    kept = repeats()
    long = heartbeat("m" * MAX_LENGTH)
    assert read(kept, long) == read(kept, long)
    assert read(kept, long) is not read(kept, long)
    for number in range(2 * MAX_BYTES // 900):
        body = heartbeat(f"{number:0900}")
        assert read(kept, body) is read(kept, body)
        kind = kept._kinds[HEARTBEAT.request]
        assert kind is not None
        assert kept._bytes == sum(map(len, kind)) <= MAX_BYTES


@pytest.mark.parametrize("form", ["text", "text with bodies", "json", "hex"])
def test_lines_are_the_same(form: str) -> None:
    """Whatever was shown before, of the same connection or another one."""
    packets = talks([[*USUAL] * 3, ["heartbeat", "error", "metadata", "heartbeat"] * 2])
    outputs, shared = [], []
    for shares in (None, leaves_alone):
        found, _ = run(Inspector, packets, [50], shares=shares, exchanges=False)
        messages = [one for one in found if isinstance(one, Message)]
        shared.append(Counter(one.api for one in messages if type(one.body) is SharedBody))
        out = io.BytesIO()
        sink = (
            TextSink(out, verbosity=2 if form == "text with bodies" else 0)
            if form.startswith("text")
            else JsonSink(out, form="hex" if form == "hex" else "auto")
        )
        enricher = Enricher()
        for event in enricher.feed(messages):
            sink.write(event)
        sink.close()
        outputs.append(out.getvalue())
    assert outputs[0] == outputs[1]
    assert not shared[0]
    assert shared[1]["Heartbeat"] > 8
    assert set(shared[1]) == {"Heartbeat", "Produce", "Fetch"}


class _KnowsAll(Catalog):
    def topic(self, topic_id: object) -> str | None:
        return "__consumer_offsets"


def test_bodies_that_are_left_alone_are() -> None:
    """By an enricher that knows a name for each id, on all messages that Kafka's classes write."""
    alone: set[tuple[int, int, str]] = set()
    changed: set[tuple[int, int, str]] = set()
    for vector in vectors():
        message = _message(vector)
        if message is None or message.body is None:
            continue
        before = copy.deepcopy(message.body)
        Enricher(_KnowsAll()).feed([message])
        assert message.api_key is not None
        assert message.api_version is not None
        kind = message.api_key, message.api_version, message.type
        if message.body != before:
            changed.add(kind)
        if leaves_alone(*kind):
            alone.add(kind)
    assert not alone & changed
    assert len(alone) > 500
    assert len(changed) > 50


def _message(vector: Vector) -> Message | None:
    if vector.kind == "request":
        decoded = decode_request(vector.data, 0, len(vector.data))
    elif vector.kind == "response" and vector.key is not None:
        decoded = decode_response(vector.data, 0, len(vector.data), vector.key, vector.version)
    else:
        return None
    kind = "request" if vector.kind == "request" else "response"
    return Message(kind, 0, api_key=vector.key, api_version=vector.version, body=decoded.body, exchange=1)


def test_floats_are_written_as_they_are() -> None:
    """JSON has no infinity: what is kept of a body has to be what is written of one that is not."""
    entry = kafka.int32(1) + kafka.string("user") + kafka.string("u")
    value = kafka.int32(1) + kafka.string("rate") + bytes.fromhex("7ff0000000000000")
    data = kafka.int32(0) + kafka.int16(0) + kafka.string(None) + kafka.int32(1) + entry + value
    context = DecodeContext(DecodeOptions())
    body = decode_body(DESCRIBE_QUOTAS.response, data, 0, len(data), context)
    kept = repeats().body(DESCRIBE_QUOTAS, DESCRIBE_QUOTAS.response, data, 0, len(data), context)
    assert type(kept) is SharedBody
    lines = []
    for one in (body, kept, kept):
        out = io.BytesIO()
        sink = JsonSink(out)
        for _ in range(2):
            sink.write(Message("response", 0, api_key=48, api_version=0, body=one))
        sink.close()
        lines.append(out.getvalue())
    assert lines[0].count(b'"Infinity"') == 2
    assert lines == [lines[0]] * 3
