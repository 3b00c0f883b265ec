"""Threads that read packets and write lines ahead: `--jobs` changes no byte, even for state shared by connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine import lines_ahead
from kafkasniff.engine.inspector import Inspector
from kafkasniff.native import caller
from kafkasniff.packets import PacketBatch
from kafkasniff.sinks import native_lines
from tests.choice import examples
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import Conversation, interleaved
from tests.craft.packet import Packet
from tests.engine.shown import agree, same, shown, threads_of
from tests.engine.talks import packets_of, talk_from, talks
from tests.enrich.talks import OFFSETS, ORDERS
from tests.oracle.inspector import ByPython
from tests.test_boundaries import UNREST, cut, scene

HOUR = 3_600_000_000_000
SCENES = [*sorted(UNREST), "names"]


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks per window, so that threads write lines that others report. Some lines keep the kernel's memory."""
    monkeypatch.setattr(lines_ahead, "TASK_BYTES", 700)
    monkeypatch.setattr(native_lines, "BLOCK_BYTES", 1)
    monkeypatch.setattr(caller, "FIRST_OUTPUT", 1 << 11)


def ahead(
    parts: Sequence[PacketBatch], whole: Sequence[PacketBatch], *wanted: bytes, form: str = "json", threads: int = 2
) -> None:
    """Lines of `parts` with threads equal those of `whole` without threads and kernel, and contain `wanted`."""
    found = shown(Inspector, form, list(parts), threads=threads_of(form, threads))
    expected = shown(ByPython, form, list(whole))
    same(found, expected)
    for one in wanted:
        assert one in expected.out.getvalue()


@pytest.mark.parametrize("bound", ["TASK_BYTES", "MAX_MADE", "MAX_WAITING", "MOST_WINDOWS"])
def test_bounds_of_threads(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any thread that makes a line, and any number of lines that may wait, lines are the same."""
    monkeypatch.setattr(lines_ahead, bound, 700)
    batches = packets_of(talks([["heartbeat", "produce"] * 20] * 4), [20, 30, 40, 50, 60, 70, 80])
    found, _ = agree("json", batches, threads=2)
    assert found.native >= 100


@pytest.mark.usefixtures("small_tasks")
@given(name=st.sampled_from(SCENES), seed=st.integers(0, 3), data=st.data())
@examples(20)
def test_disturbed(name: str, seed: int, data: st.DataObject) -> None:
    whole = batch(scene(name, seed))
    rows = data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12))
    form, threads = data.draw(st.sampled_from(["json", "text"])), data.draw(st.sampled_from([1, 2, 4]))
    ahead(cut(whole, rows), [whole], form=form, threads=threads)


def check(packets: Sequence[Packet], *wanted: bytes) -> None:
    """In windows of several sizes, as JSON and as text. The JSON lines contain `wanted`."""
    whole = batch(packets)
    for parts in (1, 4, 13, 40):
        ahead(cut(whole, windows(packets, parts)), [whole], *wanted)
    ahead(cut(whole, windows(packets, 20)), [whole], form="text")


def windows(packets: Sequence[Packet], parts: int) -> Iterable[int]:
    return range(1, len(packets), max(len(packets) // parts, 1))


def named_by(talker: Conversation, number: int, topics: list[tuple[bytes, str | None]]) -> None:
    talker.exchange(
        kafka.metadata_request_by_id(number, [(topic_id, None) for topic_id, _ in topics]),
        kafka.metadata_response_with_ids(number, topics),
    )


def fetch(talker: Conversation, number: int, topic_id: bytes, records: bytes = b"") -> None:
    talker.exchange(
        kafka.fetch_request_by_id(number, [(topic_id, [0])]),
        kafka.fetch_response_by_id(number, [(topic_id, 0, records)] if records else []),
    )


def assigned(topics: Sequence[tuple[bytes, str]]) -> bytes:
    """Records of `__consumer_offsets` that name ids and topics: ConsumerGroupPartitionMetadata."""
    entries = [
        topic_id + kafka.compact_string(name) + kafka.int32(1) + kafka.compact_array([]) + kafka.NO_TAGS
        for topic_id, name in topics
    ]
    key = kafka.int16(4) + kafka.string("billing")
    value = kafka.int16(0) + kafka.compact_array(entries) + kafka.NO_TAGS
    return kafka.record_batch([kafka.record(0, key, value)], 3)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("late", [0, 200_000_000])
def test_a_name_in_records_of_a_topic_named_by_another_connection(late: int) -> None:
    """The topic's name makes the records readable; they name another topic, whose records become readable, etc."""
    states = b"\xee" * 16
    tells, first, second, third = (talk_from(port, port - 40_000) for port in (40_000, 41_000, 42_000, 43_000))
    named_by(tells, 1, [(OFFSETS[0], "__consumer_offsets")])
    for wait, reader, topic_id, records in (
        (50_000_000, first, OFFSETS[0], assigned([(states, "__consumer_offsets")])),
        (100_000_000, second, states, assigned([(ORDERS[0], "orders")])),
        (150_000_000, third, ORDERS[0], b""),
    ):
        reader.wait(wait + late)
        fetch(reader, 1, topic_id, records)
    check(interleaved([tells, first, second, third]), b'"_topic_name":"orders"', b'"_topic_name":"__consumer_offsets"')


@pytest.mark.usefixtures("small_tasks")
def test_not_kafka_where_another_connection_spoke_kafka() -> None:
    before, speaks, after = talk_from(40_000, 0), talk_from(50_000, 1_000), talk_from(41_000, 2_000)
    page = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    before.exchange(*page)
    speaks.wait(5_000_000)
    for number in range(1, 9):
        speaks.exchange(kafka.api_versions_request(number), kafka.api_versions_response(number))
    after.wait(40_000_000)
    after.exchange(*page)
    check(interleaved([before, speaks, after]), b'"kind":"not-kafka"')


@pytest.mark.usefixtures("small_tasks")
def test_the_end_of_a_silent_connection() -> None:
    """It ends at the first packet of any connection after an hour."""
    silent, other, talks = talk_from(40_000, 0), talk_from(41_000, 500), talk_from(50_000, 1_000)
    silent.send("client", kafka.metadata_request(1, ["orders"]))
    other.send("client", kafka.metadata_request(1, ["orders"]))
    for number in range(8):
        talks.wait(HOUR // 5)
        talks.exchange(kafka.api_versions_request(number), kafka.api_versions_response(number))
    silent.wait(2 * HOUR)
    silent.send("client", kafka.metadata_request(2, ["orders"]))
    check(interleaved([silent, other, talks]), b'"kind":"request-unanswered"')
