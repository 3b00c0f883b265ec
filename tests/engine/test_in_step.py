"""Exchanges in step, in the kernel or one by one in Python: the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import small_messages
from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.paired import PairedEntry
from kafkasniff.model import Connection, Exchange, Message, Problem
from tests.choice import one_in
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation
from tests.craft.packet import Packet
from tests.fuzz import feed
from tests.native.one_by_one import OneByOne, kept

RECORDS = kafka.record_batch([kafka.record(0, b"k", b"v" * 30)])
TOPIC_ID = bytes(range(16))


class _Counting(Inspector):
    """Counts messages whose exchange the kernel paired."""

    paired = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        emit = self._emitter.emit_paired

        def counted(entry: PairedEntry, out: list[Any]) -> None:
            self.paired += 1
            emit(entry, out)

        self._emitter.emit_paired = counted  # type: ignore[method-assign,assignment]


Say = Callable[[Conversation, int], None]
"""Says something on a connection, with this correlation id."""


def _exchange(request: Callable[[int], bytes], response: Callable[[int], bytes], sizes: Sequence[int] = (1448,)) -> Say:
    def say(talk: Conversation, number: int) -> None:
        talk.exchange(request(number), response(number), sizes)

    return say


def _sent(*parts: tuple[str, Callable[[int], bytes]]) -> Say:
    """One after the other, each in one segment."""

    def say(talk: Conversation, number: int) -> None:
        for side, data in parts:
            talk.send(side, data(number), 65_000)

    return say


def _heartbeat(number: int, **header: object) -> bytes:
    body = kafka.string("group") + kafka.int32(3) + kafka.string("member")
    return kafka.request(12, 0, number, body, **header)


def _heard(number: int, error: int = 0) -> bytes:
    return kafka.response(number, kafka.int16(error))


produce = _exchange(
    lambda n: kafka.produce_request(n, "orders", RECORDS), lambda n: kafka.produce_response(n, "orders", n)
)
USUAL: dict[str, Say] = {
    "produce": produce,
    "produce 9": _exchange(
        lambda n: kafka.produce_request(n, "orders", RECORDS, version=9),
        lambda n: kafka.produce_response(n, "orders", n, version=9),
    ),
    "fetch": _exchange(
        lambda n: kafka.fetch_request(n, "orders", n), lambda n: kafka.fetch_response(n, "orders", RECORDS, n + 1)
    ),
    "fetch by id": _exchange(
        lambda n: kafka.fetch_request_by_id(n, [(TOPIC_ID, [0])]),
        lambda n: kafka.fetch_response_by_id(n, [(TOPIC_ID, 0, RECORDS)]),
    ),
    "metadata": _exchange(
        lambda n: kafka.metadata_request_by_id(n, [(kafka.NO_ID, "orders")]),
        lambda n: kafka.metadata_response_with_ids(n, [(TOPIC_ID, "orders")], [(1, "broker", 9092)]),
    ),
    "heartbeat": _exchange(_heartbeat, _heard),
    "without a client id": _exchange(lambda n: _heartbeat(n, client_id=None), _heard),
}


def _changed(message: bytes, at: int, value: bytes) -> bytes:
    return message[:at] + value + message[at + len(value) :]


def _beats(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_heartbeat, numbers))


def _all_heard(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_heard, numbers))


def _listed(number: int) -> bytes:
    """ListGroups v3 with a tagged header field that also reads as a body if it is taken for one."""
    header = kafka.int16(16) + kafka.int16(3) + kafka.int32(number) + kafka.string("c")
    return kafka.frame(header + bytes.fromhex("01 01 03 03 aa bb") + b"\0")


UNUSUAL: dict[str, Say] = {
    "error": _exchange(_heartbeat, lambda n: _heard(n, 27)),
    "an invalid code": _exchange(_heartbeat, lambda n: _heard(n, 999)),
    "in a row": _sent(
        ("client", lambda n: _beats(range(n * 1000, n * 1000 + 5))),
        ("broker", lambda n: _all_heard(range(n * 1000, n * 1000 + 5))),
    ),
    "crossing": _sent(
        ("client", lambda n: _heartbeat(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 1)),
        ("broker", lambda n: _heard(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 2)),
        ("broker", lambda n: _all_heard((n * 1000 + 1, n * 1000 + 2))),
    ),
    "acks 0": _sent(("client", lambda n: kafka.produce_request(n, "orders", RECORDS, acks=0))),
    "acks 0, version 9": _sent(("client", lambda n: kafka.produce_request(n, "orders", RECORDS, acks=0, version=9))),
    "acks 0, many": _sent(
        (
            "client",
            lambda n: b"".join(kafka.produce_request(n * 1000 + i, "orders", RECORDS, acks=0) for i in range(70)),
        ),
    ),
    "acks 0, answered": _sent(
        ("client", lambda n: kafka.produce_request(n, "orders", RECORDS, acks=0) + _heartbeat(n + 500)),
        ("broker", lambda n: kafka.produce_response(n, "orders", n) + _heard(n + 500)),
    ),
    "acks 0, all the same id": _sent(
        ("client", lambda n: kafka.produce_request(7, "orders", RECORDS, acks=0) + _heartbeat(7)),
        ("broker", lambda n: _heard(7)),
        ("client", lambda n: kafka.produce_request(7, "orders", RECORDS, acks=0, version=9) + _heartbeat(7)),
        ("broker", lambda n: _heard(7)),
    ),
    "in pieces": _exchange(_heartbeat, _heard, [7, 3]),
    "one and a piece": _exchange(lambda n: _beats((n, n + 500)), lambda n: _all_heard((n, n + 500)), [40, 30]),
    "another id": _exchange(_heartbeat, lambda n: _heard(n + 100)),
    "the same id": _exchange(lambda n: _heartbeat(7), lambda n: _heard(7)),
    "backwards": _exchange(lambda n: _beats((n, n + 500)), lambda n: _all_heard((n + 500, n))),
    "an answer first": _sent(("broker", _heard), ("client", _heartbeat)),
    "no answer": _sent(("client", _heartbeat)),
    "a client id in Latin-1": _exchange(
        lambda n: kafka.frame(kafka.int16(12) + kafka.int16(0) + kafka.int32(n) + b"\0\3f\xfcr" + _heartbeat(0)[21:]),
        _heard,
    ),
    "a client id too long": _exchange(lambda n: _changed(_heartbeat(n), 12, b"\x7f\xff"), _heard),
    "a client id below null": _exchange(lambda n: _changed(_heartbeat(n), 12, b"\xff\xf0"), _heard),
    "tags in a header": _exchange(_listed, lambda n: kafka.response(n, b"\0\0\0\0\0\0\0\1\0", flexible=True)),
    "tags in the answer's": _exchange(
        lambda n: kafka.request(16, 3, n, b"\0", flexible=True),
        lambda n: kafka.response(n, b"\1\5\1x" + b"\0\0\0\0\0\0\1\0"),
    ),
    "a body cut": _exchange(lambda n: kafka.request(12, 0, n, kafka.string("group")), lambda n: kafka.response(n, b"")),
    "ahead, more than a body": _sent(
        ("client", lambda n: _heartbeat(n * 1000)),
        ("client", lambda n: _heartbeat(n * 1000 + 1)),
        ("client", lambda n: _heartbeat(n * 1000 + 2)),
        ("client", lambda n: _heartbeat(n * 1000 + 3)),
        ("broker", lambda n: kafka.response(n * 1000, kafka.int16(0) + b"more")),
        ("broker", lambda n: _all_heard(range(n * 1000 + 1, n * 1000 + 4))),
    ),
    "more than a body": _exchange(_heartbeat, lambda n: kafka.response(n, kafka.int16(0) + b"more")),
    "a version of tomorrow": _exchange(lambda n: kafka.request(12, 9, n, b"whatever", flexible=True), _heard),
    "an API of tomorrow": _exchange(lambda n: kafka.request(120, 0, n, b"whatever"), _heard),
    "an API of much later": _exchange(lambda n: kafka.request(900, 0, n, b"whatever"), _heard),
    "records of tomorrow": _exchange(
        lambda n: kafka.request(1, 30, n, b"whatever", flexible=True),
        lambda n: kafka.response(n, b"what\xffever", flexible=True),
    ),
    "Produce of tomorrow": _exchange(lambda n: kafka.request(0, 30, n, b"\0\0\0", flexible=True), _heard),
    "secrets of tomorrow": _exchange(lambda n: kafka.request(51, 9, n, b"secret", flexible=True), _heard),
    "configurations of tomorrow": _exchange(lambda n: kafka.request(32, 9, n, b"any", flexible=True), _heard),
    "versions": _exchange(lambda n: kafka.api_versions_request(n, 3), lambda n: kafka.api_versions_response(n, 3)),
    "a size of nothing": _sent(("broker", lambda n: kafka.frame(b""))),
    "a size of three": _sent(("broker", lambda n: kafka.frame(b"abc"))),
    "a size below zero": _sent(("client", lambda n: b"\xff\xff\xff\xf0" + b"x" * 20)),
    "many in a segment": _sent(
        ("client", lambda n: _beats(range(n * 1000, n * 1000 + 70))),
        ("broker", lambda n: _all_heard(range(n * 1000, n * 1000 + 70))),
    ),
    "large": _exchange(
        lambda n: kafka.produce_request(n, "o" * 1000, RECORDS), lambda n: kafka.produce_response(n, "o" * 1000, n)
    ),
}


def _assignment() -> bytes:
    data = kafka.int16(0) + kafka.array([kafka.string("orders") + kafka.array([kafka.int32(0)])]) + kafka.int32(-1)
    return kafka.int32(len(data)) + data


UNUSUAL |= {
    "versions refused": _exchange(
        lambda n: kafka.api_versions_request(n, 3), lambda n: kafka.response(n, kafka.int16(35) + kafka.int32(0))
    ),
    "versions of tomorrow": _exchange(
        lambda n: kafka.request(18, 9, n, b"whatever", flexible=True),
        lambda n: kafka.response(n, kafka.int16(35) + kafka.array([kafka.int16(18) + kafka.int16(0) + kafka.int16(4)])),
    ),
    "versions of tomorrow, answered in full": _exchange(
        lambda n: kafka.request(18, 9, n, b"whatever", flexible=True), lambda n: kafka.api_versions_response(n, 3)
    ),
    "versions in error": _exchange(
        lambda n: kafka.api_versions_request(n, 3),
        lambda n: _changed(kafka.api_versions_response(n, 3), 8, kafka.int16(42)),
    ),
}


GROUP: dict[str, Say] = {
    "join": _exchange(
        lambda n: kafka.request(
            11,
            0,
            n,
            kafka.string("group")
            + kafka.int32(9000)
            + kafka.string("")
            + kafka.string("of our own")
            + kafka.array([kafka.string("range") + kafka.int32(0)]),
        ),
        lambda n: kafka.response(
            n,
            kafka.int16(0)
            + kafka.int32(3)
            + kafka.string("range")
            + kafka.string("leader")
            + kafka.string("member")
            + kafka.array([]),
        ),
    ),
    "sync": _exchange(
        lambda n: kafka.request(
            14, 0, n, kafka.string("group") + kafka.int32(3) + kafka.string("member") + kafka.array([])
        ),
        lambda n: kafka.response(n, kafka.int16(0) + _assignment()),
    ),
}
"""A classic group: the first response says what the bytes in the second are."""
SAID = USUAL | UNUSUAL | GROUP


def talks(said: Sequence[Sequence[str]], skew_ns: int = 0, words: Mapping[str, Say] = SAID) -> list[list[Packet]]:
    """Packets of connections: a common beginning, then these messages, by a broker whose clock differs."""
    before, after = [], []
    for place, what in enumerate(said):
        start = START_NS + place * 1_700
        talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", 9092), start_ns=start)
        talk.handshake()
        for number in range(3):
            produce(talk, number)
        known = len(talk.packets)
        for number, one in enumerate(what, start=10):
            words[one](talk, number)
        before += talk.packets[:known]
        after += talk.packets[known:]
    before.sort(key=lambda packet: packet.time_ns)
    after.sort(key=lambda packet: packet.time_ns)
    return [
        before,
        [one._replace(time_ns=one.time_ns + skew_ns) if one.sport == 9092 else one for one in after],
    ]


def run(
    kind: type[Inspector], packets: list[list[Packet]], cuts: Sequence[int], **options: object
) -> tuple[list, Inspector]:
    """Everything that an inspector yields. The packets of `packets[1]` are cut into batches at `cuts`, in percent."""
    inspector = kind(**options)
    out = []
    whole = batch([*packets[0], *packets[1]])
    borders = {len(packets[0]) + len(packets[1]) * cut // 100 for cut in (0, *cuts)} - {0, len(whole)}
    gone = 0
    for border in sorted(borders):
        head, whole = whole.split(border - gone)
        gone = border
        out += inspector.feed(head)
    out += inspector.feed(whole)
    state = kept(inspector)
    return [*out, *inspector.close(), state], inspector


OPTIONS = st.fixed_dictionaries(
    {
        "exchanges": st.booleans(),
        "connections": st.booleans(),
        "records": st.sampled_from(["full", "columns", "skip"]),
        "max_frame": st.sampled_from([100 << 20, 1000]),
    }
)


@given(
    said=st.lists(
        st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(0, 100), max_size=3),
    skew_ns=st.sampled_from([0, 0, -150_000, -50_000, 350_000]),
    options=OPTIONS,
)
@example(said=[[name, "heartbeat", "produce"] for name in UNUSUAL], cuts=[], skew_ns=0, options={})
@example(said=[["heartbeat", "produce", name] for name in UNUSUAL], cuts=[], skew_ns=-150_000, options={})
@example(said=[["produce", name] for name in UNUSUAL], cuts=[50], skew_ns=0, options={"connections": True})
@example(said=[["an answer first", "produce"]], cuts=[], skew_ns=350_000, options={})
@example(said=[["large", "produce"]], cuts=[], skew_ns=0, options={"max_frame": 1000})
def test_the_same_as_one_by_one(
    said: list[list[str]], cuts: list[int], skew_ns: int, options: dict[str, object]
) -> None:
    packets = talks(said, skew_ns)
    found, inspector = run(Inspector, packets, cuts, **options)
    expected, other = run(OneByOne, packets, cuts, **options)
    assert found == expected
    assert inspector.summary == other.summary


@pytest.mark.parametrize("at_once", [1, 3])
def test_entries_that_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Interleaved with events of other connections and of their own."""
    monkeypatch.setattr("kafkasniff.engine.paired.ENTRIES_AT_ONCE", at_once)
    packets = talks([[*USUAL, *UNUSUAL], ["produce", *UNUSUAL], ["heartbeat"] * 9])
    assert run(Inspector, packets, [30, 70])[0] == run(OneByOne, packets, [30, 70])[0]


@pytest.mark.parametrize("name", USUAL)
def test_common_exchanges_are_paired_by_the_kernel(name: str) -> None:
    packets = talks([[name] * 5, [name] * 3])
    found, inspector = run(_Counting, packets, [], exchanges=False)
    messages = sum(isinstance(one, Message) for one in found)
    assert messages == 2 * (5 + 3) + 2 * 6
    assert inspector.paired == messages


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (3, 1), (4, 4)])
def test_a_buffer_of_a_few_bytes(sizes: tuple[int, int]) -> None:
    """A caller that passes payload alone may have a batch shorter than one number of a frame."""
    before, _ = talks([[]])
    client, broker = (
        next(one for one in reversed(before) if (one.sport == 9092) is is_broker) for is_broker in (False, True)
    )
    after = [
        one._replace(seq=one.end, payload=b"\0" * size, time_ns=one.time_ns + 10**6)
        for one, size in zip((client, broker), sizes, strict=True)
    ]
    outcomes = []
    for kind in (Inspector, OneByOne):
        inspector = kind()
        found = inspector.feed(batch(before))
        rest = batch(after)
        rest.order = rest.order + len(before)
        rest.end_order += len(before)
        assert len(rest.buffer) == sum(sizes)
        found += inspector.feed(rest)
        outcomes.append((found + inspector.close(), inspector.summary))
    assert outcomes[0] == outcomes[1]


def test_connections_get_in_step_within_a_batch() -> None:
    talks_ = []
    for place in range(20):
        talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", 9092), start_ns=START_NS + place * 20_000_000)
        talk.handshake()
        for number in range(100):
            produce(talk, number)
        talk.close()
        talks_.append(talk)
    packets = sorted((one for talk in talks_ for one in talk.packets), key=lambda one: one.time_ns)
    inspector, expected = _Counting(connections=True), OneByOne(connections=True)
    found = [one for slice_ in inspector.feed_slices(batch(packets)) for one in slice_]
    assert found == expected.feed(batch(packets))
    assert inspector.close() == expected.close()
    assert inspector.summary == expected.summary
    assert inspector.paired > 1000


def _disturbed(after: list[Packet]) -> list[Packet]:
    """Every third segment of the client follows the next one, every other segment of the broker is repeated."""
    found: list[Packet] = []
    late: Packet | None = None
    for place, packet in enumerate(after):
        if late is None and place % 3 == 0 and packet.sport != 9092 and packet.payload:
            late = packet
            continue
        found.append(packet)
        if packet.sport == 9092 and place % 2:
            found.append(packet._replace(ident=packet.ident + 1))
        if late is not None:
            found.append(late)
            late = None
    if late is not None:
        found.append(late)
    times = sorted(packet.time_ns for packet in found)
    return [packet._replace(time_ns=time_ns) for packet, time_ns in zip(found, times, strict=True)]


@pytest.mark.parametrize("exchanges", [False, True])
def test_reordered_and_repeated_segments_stay_in_the_kernel(*, exchanges: bool) -> None:
    talk = Conversation(("10.0.0.5", 50_000), ("10.0.0.9", 9092), start_ns=START_NS)
    talk.handshake()
    for number in range(3):
        produce(talk, number)
    known = len(talk.packets)
    talk.send("client", _beats(range(100, 160)), 50)
    talk.send("broker", _all_heard(range(100, 160)), 30)
    packets = [talk.packets[:known], _disturbed(talk.packets[known:])]
    for cut in (0, 20, 50, 70):
        found, inspector = run(_Counting, packets, [cut], exchanges=exchanges)
        expected, other = run(OneByOne, packets, [cut], exchanges=exchanges)
        assert found == expected
        assert inspector.summary == other.summary
        assert inspector.summary.bytes_repeated == 300
        if not cut:
            assert inspector.paired == 2 * (3 + 60)
    assert exchanges == any(isinstance(one, Exchange) and one.retransmits for one in expected)


LOSSY = [
    *sorted(USUAL),
    *("in a row", "crossing", "in pieces", "one and a piece", "many in a segment", "the same id"),
    *("acks 0", "acks 0, many", "acks 0, version 9", "more than a body", "ahead, more than a body"),
]


@given(
    said=st.lists(st.lists(st.sampled_from(LOSSY), min_size=20, max_size=60), min_size=1, max_size=3),
    lost=st.lists(st.tuples(st.integers(0, 400), st.sampled_from([1, 1, 2, 7])), min_size=1, max_size=4),
    repeated=st.lists(st.integers(0, 400), max_size=2),
    cuts=st.lists(st.integers(0, 100), max_size=6),
    exchanges=st.booleans(),
)
@example(said=[["heartbeat"] * 60], lost=[(11, 1)], repeated=[], cuts=[5, 15, 60], exchanges=True)
@example(said=[["heartbeat"] * 60], lost=[(12, 1)], repeated=[], cuts=[5, 15, 60], exchanges=True)
@example(said=[["in a row"] * 30], lost=[(12, 1), (14, 2)], repeated=[10, 13], cuts=[50], exchanges=False)
@example(said=[["heartbeat"] * 60], lost=[(10, 1)], repeated=[10], cuts=[60], exchanges=True)
@example(said=[["heartbeat"] * 60], lost=[(12, 1)], repeated=[12], cuts=[60], exchanges=True)
@example(
    said=[[*["heartbeat"] * 40, "the same id", "the same id", "more than a body", *["heartbeat"] * 9]],
    lost=[(6, 1)],
    repeated=[],
    cuts=[60],
    exchanges=True,
)
@example(
    said=[[*["heartbeat"] * 40, "ahead, more than a body", *["heartbeat"] * 3]],
    lost=[(10, 1), (124, 1)],
    repeated=[],
    cuts=[60],
    exchanges=True,
)
def test_gaps_anywhere(
    said: list[list[str]], lost: list[tuple[int, int]], repeated: list[int], cuts: list[int], *, exchanges: bool
) -> None:
    """`lost`: where packets are missing, and how many. `repeated`: packets that are repeated at the end."""
    before, after = talks(said)
    again = [after[place]._replace(time_ns=after[-1].time_ns + 1) for place in repeated if place < len(after)]
    gone = {place + one for place, count in lost for one in range(count)}
    packets = [before, [*(one for place, one in enumerate(after) if place not in gone), *again]]
    found, inspector = run(Inspector, packets, cuts, exchanges=exchanges)
    expected, other = run(OneByOne, packets, cuts, exchanges=exchanges)
    assert found == expected
    assert inspector.summary == other.summary


@pytest.mark.parametrize("steps", ["068307ff07ff020b050240"])
def test_found_by_the_fuzzer(steps: str) -> None:
    """A request that begins in a packet without a time and waits for its response."""
    feed.one_input(bytes.fromhex("0302" + steps))


def test_many_connections(tmp_path: Path) -> None:
    path = tmp_path / "many.pcap"
    small_messages.write(path, connections=200, wanted=12_000)
    outcomes = []
    for kind in (_Counting, OneByOne):
        inspector = kind(connections=True)
        with open_captures([str(path)]) as source:
            found = [
                event for whole in source for part in whole.split(len(whole) // 2) for event in inspector.feed(part)
            ]
        found += inspector.close()
        outcomes.append((found, inspector.summary))
        if isinstance(inspector, _Counting):
            assert inspector.paired > 0.9 * sum(isinstance(one, Message) for one in found)
    assert sum(isinstance(one, Connection) for one in outcomes[0][0]) == 200
    assert outcomes[0] == outcomes[1]


# -- connections that begin in the kernel -----------------------------------------------------------------------------


def _opened(place: int, *said: str, port: int = 9092) -> list[Packet]:
    """A connection from its SYN on."""
    talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", port), start_ns=START_NS + place * 1_300)
    talk.handshake()
    for number, one in enumerate(said):
        SAID[one](talk, number)
    return talk.packets


def _together(*parts: list[Packet]) -> list[Packet]:
    return sorted(chain.from_iterable(parts), key=lambda packet: packet.time_ns)


def _in_batches(kind: type[Inspector], packets: list[Packet], cuts: Sequence[int], **options: object) -> list:
    """Results of the packets, cut before the given ones, and the state between the batches and at the end."""
    inspector = kind(**options)
    out: list = []
    whole, gone = batch(packets), 0
    for cut in cuts:
        head, whole = whole.split(cut - gone)
        gone = cut
        out += inspector.feed(head)
    out += inspector.feed(whole)
    return [*out, kept(inspector), *inspector.close(), inspector.summary]


def _ended(packets: list[Packet]) -> list[Packet]:
    """The broker closes the connection after these packets."""
    client, broker = (
        next(one for one in reversed(packets) if (one.sport == 9092) is is_broker) for is_broker in (False, True)
    )
    broker_seq = broker.seq + len(broker.payload) + (broker.flags & 2 > 0)
    client_seq = client.seq + len(client.payload) + (client.flags & 2 > 0)
    end = broker._replace(seq=broker_seq, ack=client_seq, payload=b"", flags=0x11)
    last = client._replace(seq=client_seq, ack=broker_seq + 1, payload=b"", flags=0x11)
    times = [packets[-1].time_ns + 1_000, packets[-1].time_ns + 2_000]
    return [*packets, *(one._replace(time_ns=time_ns) for one, time_ns in zip((end, last), times, strict=True))]


def _without(packets: list[Packet], place: int) -> list[Packet]:
    return [*packets[:place], *packets[place + 1 :]]


_HELLO = bytes.fromhex("16 03 01 00 c8 01 00 00 c4 03 03") + bytes(189)
BEGINNINGS: dict[str, list[Packet]] = {
    **{name: _opened(0, name, "produce", name) for name in SAID},
    "a greeting that is answered, and the end": _ended(_opened(18, "versions")),
    "a greeting, and the end": _ended(_opened(19, "versions")[:4]),
    "a greeting that is refused": _opened(20, "versions refused"),
    "a greeting that is refused, and the end": _ended(_opened(21, "versions refused")),
    "a greeting that is refused, and another": _opened(22, "versions refused", "versions", "produce"),
    "a greeting with an error": _ended(_opened(23, "versions in error")),
    "a greeting, a request and the end": _ended(_opened(24, "versions", "no answer")),
    "a request without an answer, and the end": _ended(_opened(25, "no answer")),
    "two greetings": _opened(26, "versions", "produce", "versions", "produce"),
    "nothing more": _opened(1),
    "a SYN": _opened(2)[:1],
    "a SYN twice": [_opened(3, "produce")[0], *_opened(3, "produce")],
    "a SYN of other numbers": [_opened(4, "produce")[0]._replace(seq=77), *_opened(4, "produce")],
    "an answer that does not fit": [
        one._replace(ack=one.ack + 1) if place == 1 else one for place, one in enumerate(_opened(5, "produce"))
    ],
    "an answer twice": [*_opened(6)[:2], *_opened(6, "produce")[1:]],
    "without the SYN": _opened(7, "produce", "fetch")[1:],
    "without the answer": _without(_opened(8, "produce", "fetch"), 1),
    "without the third": _without(_opened(9, "produce", "fetch"), 2),
    "without the first request": _without(_opened(10, "produce", "fetch"), 3),
    "data with the SYN": [_opened(11)[0]._replace(payload=b"early"), *_opened(11, "produce")[1:]],
    "a SYN in its midst": [*_opened(12, "produce"), _opened(12)[0]._replace(seq=5), *_opened(12, "fetch")[3:]],
    "refused": [_opened(13)[0], _opened(13)[1]._replace(flags=0x14)],
    "TLS": [*_opened(14), *(one._replace(payload=_HELLO) for one in _opened(14, "produce")[3:4])],
    "no Kafka": [*_opened(15), *(one._replace(payload=b"GET / HTTP/1.1\r\n") for one in _opened(15, "produce")[3:4])],
    "another port": _opened(16, "produce", "heartbeat", port=9093),
    "from a port that is Kafka's": [
        one._replace(sport=one.dport, dport=one.sport, src=one.dst, dst=one.src) for one in _opened(17, "produce")
    ],
}


@pytest.mark.parametrize("ports", [(), (9092,)])
@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_connection_begins_the_same_in_any_batches(name: str, ports: tuple[int, ...]) -> None:
    packets = _together(BEGINNINGS[name], _opened(40, "produce", "heartbeat"), _opened(41, "fetch"))
    options = {"connections": True, "ports": ports}
    expected = _in_batches(OneByOne, packets, [], **options)
    # By default one cut in four, another one with a port: all beginnings together cover every cut.
    start = (list(BEGINNINGS).index(name) + 2 * len(ports)) % 4
    for cut in one_in(4, range(min(len(packets), 16)), start):
        assert _in_batches(Inspector, packets, [cut] if cut else [], **options) == expected, cut


def test_endpoints_that_remain_in_the_batch_begin_nothing() -> None:
    """A SYN after packets of the same endpoints, which belong to an earlier connection."""
    packets = [*_opened(0, "produce", "produce")[3:], *_opened(0, "fetch", "heartbeat")]
    times = sorted(packet.time_ns for packet in packets)
    packets = [packet._replace(time_ns=time_ns) for packet, time_ns in zip(packets, times, strict=True)]
    for cuts in ([], [3], [len(packets) // 2]):
        assert _in_batches(Inspector, packets, cuts) == _in_batches(OneByOne, packets, cuts)


def test_connections_silent_from_the_start_end_at_their_timeout() -> None:
    late = [one._replace(time_ns=one.time_ns + 2 * 3_600 * 10**9) for one in _opened(9, "produce")]
    packets = [*_together(_opened(0), _opened(1, "no answer"), _opened(2, "produce")), *late]
    for cuts in ([], [6]):
        found = _in_batches(Inspector, packets, cuts, connections=True)
        assert found == _in_batches(OneByOne, packets, cuts, connections=True)
        assert [one.ended for one in found if isinstance(one, Connection)].count("idle") == 2


def test_a_connection_dropped_for_memory_gets_in_step_again() -> None:
    """The kernel has forgotten its endpoints, so that it treats the next packets as a new connection."""
    inspector = _Counting(memory=128 << 20)
    inspector.feed(batch(_opened(0, "produce")))
    inspector.limit_memory(1)
    problems = inspector.feed(batch(_opened(1)[:1]))
    assert "memory-bound" in {one.kind for one in problems if isinstance(one, Problem)}
    inspector.limit_memory(128 << 20)
    before = inspector.paired
    later = [one._replace(seq=one.seq + 7, ack=one.ack + 7, time_ns=one.time_ns + 10**9) for one in _opened(0, "fetch")]
    inspector.feed(batch(later))
    assert inspector.paired == before + 2
