"""Schema ids and trace ids of records by the kernel: what `record_facts.py` reads."""

from __future__ import annotations

import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.redact.payload import SHOWN, Payload
from tests.choice import examples
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.engine.shown import agree
from tests.kafka import records_craft as craft
from tests.native.test_records import both

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
HASHED = Payload.hashed(b"salt")
IDS = (1, 2, 3, 4, 5, 0, 0xFFFFFF, 0x1000000)


def with_header(name: str, *values: bytes | None) -> bytes:
    """A batch of one record with these headers."""
    return craft.batch_of([craft.Record(0, 0, None, b"v", tuple((name, value) for value in values))])


def framed(id_of_schema: int, size: int) -> bytes:
    return b"\0" + id_of_schema.to_bytes(4, "big") + b"x" * size


def talk(fields: list[bytes]) -> bytes:
    """JSON lines of the same records in messages that name their topic, or have its id."""
    made = Conversation(("10.0.0.5", 51_000), ("10.0.0.9", 9092), start_ns=START_NS)
    made.handshake()
    made.exchange(request_bytes(18, 0, 1), response_bytes(18, 0, 1, api_keys=[{"max_version": 9}]))
    partitions = [{"index": index, "records": field} for index, field in enumerate(fields)]
    for number, name in enumerate(("orders", "__mine", "__consumer_offsets")):
        topics = [{"name": "plain", "partition_data": partitions}, {"name": name, "partition_data": partitions}]
        made.exchange(request_bytes(0, 9, 2 + number, acks=-1, topic_data=topics), response_bytes(0, 9, 2 + number))
    fetched = [{"partition_index": index, "records": field} for index, field in enumerate(fields)]
    responses = [{"topic_id": TOPIC_ID.bytes, "partitions": fetched}]
    made.exchange(request_bytes(1, 13, 10), response_bytes(1, 13, 10, responses=responses))
    reported = [{"name": "__mine", "topic_id": TOPIC_ID.bytes}]
    made.exchange(request_bytes(3, 12, 11), response_bytes(3, 12, 11, topics=reported))
    made.exchange(request_bytes(1, 13, 12), response_bytes(1, 13, 12, responses=responses))
    made.close()
    found = b""
    for payload in (SHOWN, HASHED):
        shown, _ = agree("json", [batch(made.packets)], sink={"payload": payload})
        assert shown.native
        found += shown.out.getvalue()
    return found


VALUES = st.one_of(
    st.none(),
    st.builds(framed, st.sampled_from(IDS), st.sampled_from([0, 1, 3, 11, 20])),
    st.sampled_from([b"", b"\0", b"text", bytes(8)]),
)
BATCHES = st.lists(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4), min_size=1, max_size=3)


@examples(15)
@given(BATCHES, st.sampled_from(range(5)), st.booleans())
def test_any_framing(batches: list[list[tuple[bytes | None, bytes | None]]], codec: int, legacy: bool) -> None:
    fields = []
    for records in batches:
        if legacy:
            fields.append(b"".join(craft.message(at, *record) for at, record in enumerate(records)))
        else:
            fields.append(craft.batch_of([craft.Record(at, 0, *one) for at, one in enumerate(records)], codec))
    talk([b"".join(fields), fields[0]])


def test_whole_bodies_have_them() -> None:
    """Else Python would have been asked."""
    field = craft.batch_of([craft.Record(0, 0, framed(7, 9), framed(8, 9), (("traceparent", TRACE),))], craft.GZIP)
    out = talk([field])
    first = next(line for line in map(orjson.loads, out.splitlines()) if line["api"] == "Produce")
    (record,) = first["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"]
    assert list(record) == ["offset", "timestamp", "key", "value", "headers", "_trace_ids", "_key", "_value"]
    assert record["_key"] == {"format": "schema-registry", "schema_id": 7}


ID, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"
TRACE = b"00-" + ID + b"-" + SPAN + b"-01"
TRACES: list[bytes] = [
    *(b"01-" + TRACE[3:] + more for more in (b"", b"-more\n", b"-", b".", b"-" + b"x" * 968, b"-" + b"x" * 969)),
    *(TRACE, TRACE + b"-more", TRACE[:-1], TRACE.upper(), b"ff-" + TRACE[3:], b"0f-" + TRACE[3:]),
    b"00-" + b"0" * 32 + TRACE[35:],
    TRACE[:36] + b"0" * 16 + TRACE[52:],
    TRACE[:36] + b"00f067aa0ba902bg" + TRACE[52:],
    TRACE.replace(b"-", b"_"),
    *(TRACE[:at] + b"_" + TRACE[at + 1 :] for at in (2, 35, 52)),
    b"",
]


FORMS: dict[str, list[bytes]] = {
    **dict.fromkeys(("traceparent", "elastic-apm-traceparent", "googclient_traceparent"), TRACES),
    "b3": [ID + b"-" + SPAN, SPAN + b"-" + SPAN + b"-d-" + SPAN, ID.upper() + b"-" + SPAN.upper() + b"-1", b"0"],
    "X-B3-TraceId": [ID, SPAN.upper(), ID[:17], b"0" * 16, b""],
    "x-b3-traceid": [ID],
    "uber-trace-id": [ID + b":" + SPAN + b":0:1", b"5%3aAF%3A0%3a01", b"1" * 17 + b":1:1:1", b"0:1:1:1", b"5:1:1:"],
    "x-datadog-trace-id": [b"7", b"18446744073709551615", b"18446744073709551616", b"07", b"", b"1" * 21, b"7a"],
    "X-Amzn-Trace-Id": [
        b"Root=1-67891233-abcdef012345678912345678",
        b"Parent=53995c3f42cd8ad8; \t\x0bRoot=1-67891233-abcdef012345678912345678;Sampled=1\n",
        b";" * 8 + b"Root=1-67891233-abcdef012345678912345678",
        b";" * 9 + b"Root=1-67891233-abcdef012345678912345678",
        b"Root=1-67891233-Abcdef012345678912345678;Root=1-67891233-abcdef012345678912345678",
        b"Root=1-67891233-abcdef0123456789123456789",
        b"Root=2-67891233-abcdef012345678912345678",
    ],
    "X-Cloud-Trace-Context": [
        *(ID, ID.upper() + b"/1", ID + b"/12345678901234567890;o=3", ID + b"/1;o=", ID + b"/1;O=0", ID + b"/1;o=4"),
        *(ID + b"/", ID + b"/123456789012345678901", ID + b";o=1", b"0" * 32, ID + b"/1;o=1x"),
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_trace_ids(name: str) -> None:
    for value in (*FORMS[name], None):
        for payload in (SHOWN, HASHED):
            assert both(with_header(name, value), payload=payload), value
    assert both(with_header(name, *FORMS[name]))


@examples(200)
@given(st.data())
def test_any_value_of_other_forms(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FORMS)))
    changed = bytearray(data.draw(st.sampled_from(FORMS[name])))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from([b"", *(bytes((one,)) for one in b"0fFg-:;/= 9%dD")])
        )
    assert both(with_header(name, bytes(changed)))
