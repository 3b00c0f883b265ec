"""What goes from one connection to another when different shards have them: each port gives another division."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkasniff.enrich import Catalog, catalog
from kafkasniff.filters import topic_filter
from kafkasniff.parallel.coordinator import AHEAD
from tests.choice import DEEP
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.packet import Packet
from tests.enrich.talks import BROKER, OFFSETS, ORDERS
from tests.parallel.together import alone, together
from tests.test_boundaries import cut

HOUR = 3_600_000_000_000
PORTS = range(40_000, 40_008) if DEEP else (40_000, 40_001, 40_003, 40_004, 40_005)
"""Of these some lie in the shard of 50,000 and some do not, by the hash; with the port 1,000 above they are divided
among two shards, and among three, in all the ways in which the eight in a row are."""


def talk(port: int, start: int) -> Conversation:
    found = Conversation(("10.0.0.6", port), BROKER, start_ns=START_NS + start)
    found.handshake()
    return found


def windows(packets: Sequence[Packet], parts: int) -> list[int]:
    return list(range(1, len(packets), max(len(packets) // parts, 1)))


def check(packets: Sequence[Packet], *wanted: bytes, **options: object) -> None:
    """Two and three shards write what one process writes, in windows of several sizes; `wanted` is in it."""
    whole = batch(packets)
    expected = alone([whole], **options)  # type: ignore[arg-type]
    for one in wanted:
        assert one in expected.lines
    for jobs, parts in ((2, 1), (2, 40), (2, 20), (3, 13), (3, AHEAD + 2)):
        found = together(cut(whole, windows(packets, parts)), jobs, **options)  # type: ignore[arg-type]
        assert found == expected


def told_by(talker: Conversation, number: int, topics: list[tuple[bytes, str | None]]) -> None:
    talker.exchange(
        kafka.metadata_request_by_id(number, [(topic_id, None) for topic_id, _ in topics]),
        kafka.metadata_response_with_ids(number, topics),
    )


@pytest.mark.parametrize("port", PORTS)
def test_a_name_that_another_connection_tells(port: int) -> None:
    asks, tells, contradicts = talk(port, 0), talk(50_000, 1_000), talk(port + 1000, 2_000)
    asks.exchange(kafka.fetch_request_by_id(1, [(ORDERS[0], [0])]), kafka.fetch_response_by_id(1))
    asks.wait(10_000_000)
    tells.wait(5_000_000)
    told_by(tells, 1, [(ORDERS[0], "orders")])
    contradicts.wait(7_000_000)
    told_by(contradicts, 1, [(ORDERS[0], "another")])
    asks.exchange(kafka.fetch_request_by_id(2, [(ORDERS[0], [0])]), kafka.fetch_response_by_id(2))
    for predicate in (None, topic_filter(["orders"])):
        check(interleaved([asks, tells, contradicts]), b'"_topic_name":"orders"', predicate=predicate)


def assigned(topics: Sequence[tuple[bytes, str]]) -> bytes:
    """Records of `__consumer_offsets` that tell ids and names: ConsumerGroupPartitionMetadata."""
    entries = [
        topic_id + kafka.compact_string(name) + kafka.int32(1) + kafka.compact_array([]) + kafka.NO_TAGS
        for topic_id, name in topics
    ]
    key = kafka.int16(4) + kafka.string("billing")
    value = kafka.int16(0) + kafka.compact_array(entries) + kafka.NO_TAGS
    return kafka.record_batch([kafka.record(0, key, value)], 3)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("late", [0, 200_000_000])
def test_a_name_told_by_records_whose_topic_another_connection_tells(port: int, late: int) -> None:
    """The topic's name makes the records readable; they name a topic, whose records are readable then, and so on."""
    states = b"\xee" * 16
    tells, first, second, third = talk(50_000, 0), talk(port, 1_000), talk(port + 1000, 2_000), talk(port + 2000, 3_000)
    told_by(tells, 1, [(OFFSETS[0], "__consumer_offsets")])
    for wait, reader, topic_id, records in (
        (50_000_000, first, OFFSETS[0], assigned([(states, "__consumer_offsets")])),
        (100_000_000, second, states, assigned([(ORDERS[0], "orders")])),
        (150_000_000, third, ORDERS[0], b""),
    ):
        reader.wait(wait + late)
        reader.exchange(
            kafka.fetch_request_by_id(1, [(topic_id, [0])]),
            kafka.fetch_response_by_id(1, [(topic_id, 0, records)]),
        )
    check(interleaved([tells, first, second, third]), b'"_topic_name":"orders"', b'"_topic_name":"__consumer_offsets"')


@pytest.mark.parametrize("port", PORTS)
def test_a_fetch_session_on_two_connections(port: int) -> None:
    opens, goes_on = talk(port, 0), talk(50_000, 1_000)
    opens.exchange(
        kafka.fetch_request_by_id(1, [(ORDERS[0], [0, 1, 2])], session=(0, 0)),
        kafka.fetch_response_by_id(1, session=17),
    )
    goes_on.wait(5_000_000)
    goes_on.exchange(
        kafka.fetch_request_by_id(9, session=(17, 1), forgotten=[(ORDERS[0], [1])]),
        kafka.fetch_response_by_id(9, session=17),
    )
    told_by(goes_on, 10, [(ORDERS[0], "orders")])
    opens.wait(10_000_000)
    opens.exchange(kafka.fetch_request_by_id(2, session=(17, 2)), kafka.fetch_response_by_id(2, session=17))
    goes_on.wait(20_000_000)
    goes_on.exchange(kafka.fetch_request_by_id(11, session=(17, 3)), kafka.fetch_response_by_id(11, error=70))
    opens.wait(30_000_000)
    opens.exchange(kafka.fetch_request_by_id(3, session=(17, 4)), kafka.fetch_response_by_id(3, session=17))
    packets = interleaved([opens, goes_on])
    check(packets, b'"_session":{"partitions":2}')
    check(packets, b"corr 11", predicate=topic_filter(["orders"]), text=0)


@pytest.mark.parametrize("port", PORTS)
def test_not_kafka_where_another_connection_spoke_kafka(port: int) -> None:
    before, speaks, after = talk(port, 0), talk(50_000, 1_000), talk(port + 1000, 2_000)
    before.exchange(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    speaks.wait(5_000_000)
    speaks.exchange(kafka.api_versions_request(1), kafka.api_versions_response(1))
    after.wait(10_000_000)
    after.exchange(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    packets = interleaved([before, speaks, after])
    whole = alone([batch(packets)])
    assert whole.lines.count(b'"kind":"not-kafka"') == 1
    check(packets)


@pytest.mark.parametrize("port", PORTS)
def test_the_end_of_a_silent_connection(port: int) -> None:
    """It ends at the first packet of any connection after an hour: another shard's packets are part of the clock."""
    silent, other, talks = talk(port, 0), talk(port + 1000, 500), talk(50_000, 1_000)
    silent.send("client", kafka.metadata_request(1, ["orders"]))
    other.send("client", kafka.metadata_request(1, ["orders"]))
    for number in range(8):
        talks.wait(HOUR // 5)
        talks.exchange(kafka.api_versions_request(number), kafka.api_versions_response(number))
    silent.wait(2 * HOUR)
    silent.send("client", kafka.metadata_request(2, ["orders"]))
    packets = interleaved([silent, other, talks])
    lines = alone([batch(packets)]).lines.splitlines()
    unanswered = [number for number, line in enumerate(lines) if b'"kind":"request-unanswered"' in line]
    assert len(unanswered) >= 2
    assert unanswered[0] < len(lines) - 6, "not at the end of the capture"
    check(packets)


def test_ids_beyond_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes first when there are too many is the same for all: what was learnt first, and it may come again."""
    monkeypatch.setattr(catalog, "MAX_TOPICS", 3)
    ids = [bytes([number] * 16) for number in range(1, 7)]
    asks = talk(50_000, 0)
    talkers = [talk(PORTS[0] + place, 1_000 * place) for place in range(len(ids))]
    for number in range(24):
        place = number * 5 % len(ids)
        # Each tells of its own topic, another name each time: by then it may be forgotten, because of the others.
        told_by(talkers[place], number, [(ids[place], f"topic-{place}-{number}")])
        for one in (asks, *talkers):
            one.wait(10_000_000)
        asks.exchange(
            kafka.fetch_request_by_id(number, [(topic_id, [0]) for topic_id in ids]), kafka.fetch_response_by_id(number)
        )
        for one in talkers:
            one.wait(10_000_000)
    packets = interleaved([asks, *talkers])
    names = {line.split(b'"', 1)[0] for line in alone([batch(packets)]).lines.split(b'"_topic_name":"')[1:]}
    assert len(names) > len(ids), "some were learnt again, by another name"
    check(packets)


def test_what_is_known_from_the_beginning_is_each_shards_own() -> None:
    asks = talk(40_000, 0)
    asks.exchange(kafka.fetch_request_by_id(1, [(ORDERS[0], [0])]), kafka.fetch_response_by_id(1))
    check(asks.packets, b'"_topic_name":"given"', topics={ORDERS[1]: "given"})
    assert Catalog().topic(ORDERS[1]) is None
