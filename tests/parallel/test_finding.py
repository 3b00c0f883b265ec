"""Messages in bulk that concern other shards' connections: read for it, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.apart import Teller, TopicTold, ways_to_tell
from kafkasniff.filters import topic_filter
from kafkasniff.kafka.message_plan import request_plan
from kafkasniff.parallel import finding
from kafkasniff.parallel.numbered import NumberedInspector
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation, interleaved
from tests.craft.packet import Packet
from tests.enrich.talks import OFFSETS, ORDERS
from tests.parallel.test_crossings import assigned, talk
from tests.parallel.together import alone, together
from tests.test_boundaries import cut

PORTS = (40_000, 40_001, 40_002)
"""With 50,000 in the same shard and in another one, by the hash."""
RECORDS = kafka.record_batch([kafka.record(0, b"k", b"v")], 7)
MINUTE = 60_000_000_000


class Counted:
    """What was done with messages in bulk."""

    def __init__(self) -> None:
        self.told = 0
        self.read: list[int] = []
        """Keys of those that were read before they were told."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    tell, read = NumberedInspector._tell_paired, finding._body

    def telling(self: NumberedInspector, entry: object, out: list) -> None:
        found.told += 1
        tell(self, entry, out)  # type: ignore[arg-type]

    def reading(entry: object, version: object) -> object:
        found.read.append(version.key)  # type: ignore[attr-defined]
        return read(entry, version)  # type: ignore[arg-type]

    monkeypatch.setattr(NumberedInspector, "_tell_paired", telling)
    monkeypatch.setattr(finding, "_body", reading)
    return found


def usual(port: int, start: int) -> Conversation:
    """A connection that is known to speak Kafka before the minute is over: what comes then is taken in bulk."""
    found = talk(port, start)
    for number in range(3):
        produce(found, number)
    found.wait(MINUTE - (found.time_ns - found.packets[0].time_ns))
    return found


def produce(talk: Conversation, number: int, topic: str = "orders") -> None:
    talk.exchange(kafka.produce_request(number, topic, RECORDS), kafka.produce_response(number, topic, number))


def told_by(talker: Conversation, number: int, topic: tuple[bytes, str]) -> None:
    talker.exchange(
        kafka.metadata_request_by_id(number, [(topic[0], None)]), kafka.metadata_response_with_ids(number, [topic])
    )


def fetch(talk: Conversation, number: int, topic_id: bytes, records: bytes = RECORDS) -> None:
    talk.exchange(
        kafka.fetch_request_by_id(number, [(topic_id, [0])]),
        kafka.fetch_response_by_id(number, [(topic_id, 0, records)]),
    )


def windows(packets: Sequence[Packet], parts: int) -> Iterator[int]:
    """Before the end of the minute one window, then so many."""
    first = next(row for row, one in enumerate(packets) if one.time_ns >= packets[0].time_ns + MINUTE)
    yield from range(first, len(packets), max((len(packets) - first) // parts, 1))


def check(packets: Sequence[Packet], *wanted: bytes, **options: object) -> None:
    """As one process writes it; `wanted` is in it."""
    whole = batch(packets)
    expected = alone([whole], **options)  # type: ignore[arg-type]
    for one in wanted:
        assert one in expected.lines
    for jobs, parts in ((2, 1), (2, 6), (3, 2)):
        assert together(cut(whole, windows(packets, parts)), jobs, **options) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("port", PORTS)
def test_a_name(port: int, counted: Counted) -> None:
    asks, tells = usual(port, 0), usual(50_000, 1_000)
    for number in range(10, 30):
        fetch(asks, number, ORDERS[0])
        produce(tells, number)
    tells.wait(asks.time_ns - tells.time_ns)
    told_by(tells, 40, (ORDERS[0], "orders"))
    asks.wait(MINUTE)
    for number in range(30, 50):
        fetch(asks, number, ORDERS[0])
    packets = interleaved([asks, tells])
    check(packets, b'"_topic_name":"orders"')
    check(packets, predicate=topic_filter(["orders"]))
    assert counted.told > 400
    assert set(counted.read) == {3}, "only Metadata, the requests of which tell nothing"
    assert len(counted.read) <= 6


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("by_name", [False, True])
def test_records_of_the_brokers_own_topics(port: int, by_name: bool, counted: Counted) -> None:
    """What is in them names topics; that they are records of such a topic may be what another connection tells."""
    states = b"\xee" * 16
    tells, first, second, third = (
        usual(one, place * 1_000) for place, one in enumerate((50_000, port, 41_001, 42_005))
    )
    told_by(tells, 10, (OFFSETS[0], "__consumer_offsets"))
    records = assigned([(states, "__consumer_offsets")])
    first.wait(10_000_000)
    if by_name:
        name = "__consumer_offsets"
        first.exchange(kafka.fetch_request(10, name, 0), kafka.fetch_response(10, name, records, 9))
    else:
        fetch(first, 10, OFFSETS[0], records)
    second.wait(20_000_000)
    fetch(second, 10, states, assigned([(ORDERS[0], "orders")]))
    third.wait(30_000_000)
    for number in range(10, 14):
        fetch(third, number, ORDERS[0])
    check(interleaved([tells, first, second, third]), b'"_topic_name":"orders"', b'"_topic_name":"__consumer_offsets"')
    assert counted.told >= 40
    assert 1 in counted.read


@pytest.mark.parametrize("port", PORTS)
def test_a_fetch_session_on_two_connections(port: int, counted: Counted) -> None:
    opens, goes_on = usual(port, 0), usual(50_000, 1_000)
    opens.exchange(
        kafka.fetch_request_by_id(10, [(ORDERS[0], [0, 1, 2])], session=(0, 0)),
        kafka.fetch_response_by_id(10, [(ORDERS[0], 0, RECORDS)], session=17),
    )
    goes_on.wait(5_000_000)
    goes_on.exchange(
        kafka.fetch_request_by_id(10, session=(17, 1), forgotten=[(ORDERS[0], [1])]),
        kafka.fetch_response_by_id(10, session=17),
    )
    opens.wait(10_000_000)
    for number in range(2, 12):
        opens.exchange(
            kafka.fetch_request_by_id(10 + number, session=(17, number)),
            kafka.fetch_response_by_id(10 + number, [(ORDERS[0], 0, RECORDS)], session=17),
        )
    goes_on.wait(40_000_000)
    goes_on.exchange(kafka.fetch_request_by_id(30, session=(17, 12)), kafka.fetch_response_by_id(30, error=70))
    opens.wait(60_000_000)
    opens.exchange(kafka.fetch_request_by_id(31, session=(17, 13)), kafka.fetch_response_by_id(31, session=17))
    check(interleaved([opens, goes_on]), b'"_session":{"partitions":2}')
    assert counted.told > 60
    # Each of three runs: those two requests that name partitions, and no response.
    assert len(counted.read) <= 3 * 2


def join(number: int, kind: str) -> tuple[bytes, bytes]:
    group, member = kafka.string("group"), kafka.string("member")
    asked = group + kafka.int32(9) + member + kafka.string(kind) + kafka.array([kafka.string("range") + kafka.int32(0)])
    answer = kafka.int16(0) + kafka.int32(1) + kafka.string("range") + member + member + kafka.array([])
    return kafka.request(11, 0, number, asked), kafka.response(number, answer)


def sync(number: int) -> tuple[bytes, bytes]:
    asked = kafka.string("group") + kafka.int32(1) + kafka.string("member") + kafka.array([])
    assignment = kafka.int16(0) + kafka.array([kafka.string("orders") + kafka.array([kafka.int32(3)])]) + kafka.int32(0)
    answer = kafka.int16(0) + kafka.int32(len(assignment)) + assignment
    return kafka.request(14, 0, number, asked), kafka.response(number, answer)


def test_what_is_read_by_what_was_said_before() -> None:
    """More is said on the connection by the time that such a message is told: windows are read ahead."""
    member = usual(40_000, 0)
    for number, kind in enumerate(("consumer", "another", "consumer", "another"), start=1):
        member.exchange(*join(10 * number, kind))
        for place in range(1, 5):
            member.exchange(*sync(10 * number + place))
    whole = batch(member.packets)
    expected = alone([whole])
    assert expected.lines.count(b'"topic":"orders"') == 8
    for parts in (4, 8, 20):
        assert together(cut(whole, windows(member.packets, parts)), 2) == expected


def test_which_messages_may_tell() -> None:
    teller = Teller(Catalog({ORDERS[1]: "__share_group_state", "no id": "__transaction_state"}))
    produced, fetched, by_id = (
        ways_to_tell(*one) for one in ((0, 3, "request"), (1, 12, "response"), (1, 13, "response"))
    )
    assert produced is not None
    assert fetched is not None
    assert by_id is not None
    assert ways_to_tell(0, 3, "response") is ways_to_tell(1, 12, "request") is ways_to_tell(12, 0, "request") is None
    for ways in (produced, fetched):
        assert teller.may_tell(ways, b"..__consumer_offsets", 2, 20)
        assert not teller.may_tell(ways, b"..__consumer_offsets", 2, 19), "it ends before"
        assert not teller.may_tell(ways, b"..__consumer_of__fsets", 0, 22)
        assert not teller.may_tell(ways, ORDERS[0], 0, 16)
    assert teller.may_tell(by_id, b"." + ORDERS[0], 0, 17)
    assert not teller.may_tell(by_id, b"." + OFFSETS[0], 0, 17)
    teller.hear(TopicTold(OFFSETS[1], "__consumer_offsets"))
    assert teller.may_tell(by_id, b"." + OFFSETS[0], 0, 17)
    metadata = ways_to_tell(3, 12, "response")
    assert metadata is not None
    assert teller.may_tell(metadata, b"", 0, 0)
    # What is read by what was said on the connection is never left unread; Envelopes, which hold anything, too.
    assert request_plan(14, 5).asks_connection
    assert request_plan(58, 0).asks_connection
