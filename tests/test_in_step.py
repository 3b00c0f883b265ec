"""In step with the kernel or one by one in Python: the same comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import small_messages
from kafkasniff.capture import open_captures
from kafkasniff.enrich import leaves_alone
from kafkasniff.inspector import Inspector
from kafkasniff.model import Connection, Exchange, Message
from kafkasniff.paired import PairedEntry
from kafkasniff.streams import NO_TIME
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

    def _tell_paired(self, entry: PairedEntry, out: list) -> None:
        self.paired += 1
        super()._tell_paired(entry, out)


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
    """ListGroups v3 with a tagged field in its header that reads as a body, too, where it is taken for one."""
    header = kafka.int16(16) + kafka.int16(3) + kafka.int32(number) + kafka.string("c")
    return kafka.frame(header + bytes.fromhex("01 01 03 03 aa bb") + b"\0")


UNUSUAL: dict[str, Say] = {
    "error": _exchange(_heartbeat, lambda n: _heard(n, 27)),
    "a code that is none": _exchange(_heartbeat, lambda n: _heard(n, 999)),
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
    "more than a body": _exchange(_heartbeat, lambda n: kafka.response(n, kafka.int16(0) + b"more")),
    "a version of tomorrow": _exchange(lambda n: kafka.request(12, 9, n, b"whatever", flexible=True), _heard),
    "an API of tomorrow": _exchange(lambda n: kafka.request(900, 0, n, b"whatever"), _heard),
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
"""A classic group: what the bytes in the second are is told by the first."""
SAID = USUAL | UNUSUAL | GROUP


def talks(said: Sequence[Sequence[str]], skew_ns: int = 0, words: Mapping[str, Say] = SAID) -> list[list[Packet]]:
    """Packets of connections: what makes them ordinary, and what is said then, by a broker whose clock differs."""
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
    """All that an inspector yields; the packets of `packets[1]` are cut into batches at `cuts`, in percent."""
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
        "shares": st.sampled_from([None, leaves_alone]),
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


@pytest.mark.parametrize("name", USUAL)
def test_what_is_usual_is_paired_by_the_kernel(name: str) -> None:
    packets = talks([[name] * 5, [name] * 3])
    found, inspector = run(_Counting, packets, [], exchanges=False)
    messages = sum(isinstance(one, Message) for one in found)
    assert messages == 2 * (5 + 3) + 2 * 6
    assert inspector.paired == messages - 2 * 6


def test_what_is_said_later_has_no_say() -> None:
    """An assignment, heartbeats, a retransmit, and that assignments here are nobody's business: in one batch."""
    before, after = talks([["sync", *["heartbeat"] * 40, "join", "sync"]])
    joins = next(place for place, packet in enumerate(after) if b"range" in packet.payload)
    packets = [before, [*after[:joins], after[joins - 2], *after[joins:]]]
    expected = run(OneByOne, packets, [])[0]
    messages = [one for one in expected if isinstance(one, Message)]
    answers = [one.body for one in messages if one.api == "SyncGroup" and one.type == "response" and one.body]
    assert ["_assignment" in body for body in answers] == [True, False]
    assert run(Inspector, packets, [])[0] == expected


def test_exchanges_over_two_batches() -> None:
    """The edges: what began in one batch and ends in another is told once, in its place, with its number."""
    packets = talks([["crossing", "in a row", "heartbeat"]] * 3)
    for cut in range(5, 100, 5):
        found, _ = run(_Counting, packets, [cut])
        exchanges = [one for one in found if isinstance(one, Exchange)]
        assert [one.status for one in exchanges].count("answered") == 3 * (3 + 3 + 5 + 1)
        times = [one.time_ns for one in found if isinstance(one, Message)]
        assert times == sorted(times)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (3, 1), (4, 4)])
def test_a_buffer_of_a_few_bytes(sizes: tuple[int, int]) -> None:
    """Whoever hands on payload alone may have a batch that is shorter than one number of a frame."""
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


def test_packets_without_time() -> None:
    packets = talks([["heartbeat"] * 4])
    bare = [[packet._replace(time_ns=NO_TIME) for packet in part] for part in packets]
    found, _ = run(Inspector, bare, [30])
    expected, _ = run(OneByOne, bare, [30])
    assert found == expected


def test_connections_come_in_step_within_a_batch() -> None:
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
    """Every third segment of the client comes behind the one that follows it, every other one of the broker twice."""
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
def test_what_is_out_of_order_or_comes_twice_stays_with_the_kernel(*, exchanges: bool) -> None:
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
            assert inspector.paired == 2 * 60
    assert exchanges == any(isinstance(one, Exchange) and one.retransmits for one in expected)


@pytest.mark.parametrize("steps", ["068307ff07ff020b050240"])
def test_what_the_fuzzer_found(steps: str) -> None:
    """A request that begins in a packet without a time, and waits for its response."""
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
            assert inspector.paired > 0.4 * sum(isinstance(one, Message) for one in found)
    assert sum(isinstance(one, Connection) for one in outcomes[0][0]) == 200
    assert outcomes[0] == outcomes[1]
