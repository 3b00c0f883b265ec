"""Exchanges and records that the kernel reads as columns: the same rows as one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import small_messages
from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import exchange_kind
from kafkasniff.filters.expression import parse_filter
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.definition import Field
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import Stager
from tests.choice import DEEP, fewer, in_turn, one_in
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation, interleaved
from tests.craft.write import write_pcap
from tests.kafka.encode import Encoder, Plan
from tests.oracle.inspector import by_python
from tests.tables.exports.exported import rows, run

START_NS = 1_781_000_000_000_000_000
PART_ROWS = 300
EVERYTHING = ExportOptions(show_secrets=True)
OPTIONS = [
    EVERYTHING,
    ExportOptions(),
    ExportOptions(bodies=False),
    ExportOptions(tables=("exchanges",)),
    ExportOptions(tables=("records", "problems")),
]
NAMES = ("everything", "usual", "no bodies", "exchanges", "records")
BODIES = 24 if DEEP else fewer(1, 4)
SEEDS = 40 if DEEP else fewer(1, 2)


def name_of(options: ExportOptions) -> str:
    return NAMES[OPTIONS.index(options)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The captures that several tests export, each with other options."""
    folder = tmp_path_factory.mktemp("columns")
    few = folder / "few.pcap"
    small_messages.write(few, connections=10, wanted=fewer(400, 600))
    return {
        "ids": with_topic_ids(folder / "ids.pcap"),
        "records": records_of_all_sorts(folder / "records.pcap"),
        "open": often_open(folder / "open.pcap"),
        "few": few,
    }


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of exchanges in each batch of columns, with the minimum lowered because parts of captures are small."""
    monkeypatch.setattr("kafkasniff.tables.exports.shard.MAX_PART_ROWS", PART_ROWS)
    found: list[int] = []
    take = Stager.take_columns

    def taken(self: Stager, pairs: PairColumns, captures: tuple[str, ...]) -> None:
        found.append(len(pairs.asked))
        take(self, pairs, captures)

    monkeypatch.setattr(Stager, "take_columns", taken)
    return found


def check(capture: Path, folder: Path, options: ExportOptions, expression: str | None = None) -> int:
    """Export with and without columns; returns the number of exchanges."""
    folder.mkdir(exist_ok=True)
    predicate = None if expression is None else parse_filter(expression)
    first = run([capture], folder / "columns", options, predicate=predicate)
    with by_python():
        second = run([capture], folder / "rows", options, predicate=predicate)
    # Only the kernel follows the network of connections.
    for table in (name for name in options.tables if name != "transport"):
        assert rows(folder / "columns", table) == rows(folder / "rows", table), table
    assert first.summary == second.summary
    return first.summary.requests


def talk(number: int) -> Conversation:
    """A connection that is in step after its first exchanges."""
    made = Conversation(("10.9.0.5", 40_000 + number), start_ns=START_NS + number)
    made.handshake()
    for correlation_id in range(3):
        batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
        request = kafka.produce_request(correlation_id, "orders", batch)
        made.exchange(request, kafka.produce_response(correlation_id, "orders", correlation_id))
    return made


def framed(data: bytes) -> bytes:
    return kafka.int32(len(data)) + data


class Repeating(Encoder):
    """An encoder whose messages have a few topic ids and fetch sessions in common."""

    def scalar(self, field: Field, nullable: bool) -> bytes:
        """A value, which the next messages may have again."""
        if field.type == "uuid":
            return bytes(15) + bytes([self.rng.choice([0, 0x10, 0x20, 0x30])])
        choice = {"session_id": [0, 5, 6], "session_epoch": [-1, 0, 0, 1, 2], "error_code": [0, 0, 0, 3]}
        if field.name in choice:
            value = self.rng.choice(choice[field.name])
            return value.to_bytes(2 if field.type == "error" else 4, "big", signed=True)
        return super().scalar(field, nullable)


def any_exchange(
    key: int, version: int, correlation_id: int, rng: random.Random, encoder: type[Encoder] = Encoder
) -> tuple[bytes, bytes]:
    """A request and its response with random bodies."""
    found = []
    for plan in (request_plan(key, version), response_plan(key, version)):
        assert plan.schema is not None
        nulls, count = rng.choice([None, False]), rng.choice([None, None, 1, 2])
        found.append(encoder(Plan(rng, nulls=nulls, unknown_tags=False, count=count)).body(plan.schema.root))
    header = kafka.int16(key) + kafka.int16(version) + kafka.int32(correlation_id) + kafka.int16(2) + b"me"
    tags = b"\0" if request_plan(key, version).header > 1 else b""
    answer = b"\0" if response_plan(key, version).header > 0 else b""
    return framed(header + tags + found[0]), framed(kafka.int32(correlation_id) + answer + found[1])


KINDS = [(key, version) for key in api_keys() if (found := api(key)) is not None for version in found.versions]


def supported() -> list[tuple[int, int]]:
    """All pairs that the kernel has programs for."""
    return [kind for kind in KINDS if exchange_kind(*kind, show_secrets=True, names=True) is not None]


def of_every_kind(path: Path, connections: int) -> Path:
    """Exchanges of every version of every API that the kernel supports, on each connection."""
    rng = random.Random(7)
    talks = [talk(number) for number in range(connections)]
    taken = supported()
    assert len(taken) > 200
    for one in talks:
        chosen = taken * BODIES
        rng.shuffle(chosen)
        for number, (key, version) in enumerate(chosen, 3):
            if rng.random() < 0.3:
                # The next request is sent before this one is answered.
                first = any_exchange(key, version, 2 * number, rng)
                second = any_exchange(0, 3, 2 * number + 1, rng)
                for side, which in (("client", 0), ("broker", 1)):
                    one.send(side, first[which] + second[which])  # type: ignore[arg-type]
            else:
                one.exchange(*any_exchange(key, version, 2 * number, rng))
    return write_pcap(path, interleaved(talks), nanoseconds=True)


def test_every_kind_that_the_kernel_supports(tmp_path: Path, columns: list[int]) -> None:
    capture = of_every_kind(tmp_path / "kinds.pcap", fewer(1, 5))
    count = check(capture, tmp_path, EVERYTHING)
    assert sum(columns) > (0.1 if fewer(1, 5) == 1 else 0.3) * count


def with_topic_ids(path: Path) -> Path:
    """Exchanges with topic ids that Metadata names sooner or later, and with fetch sessions."""
    rng = random.Random(13)
    talks = [talk(number) for number in range(4)]
    kinds = [(0, 13), (1, 7), (1, 12), (1, 15), (1, 16), (1, 18), (3, 9), (3, 12), (3, 13), (8, 10), (9, 10)]
    for number in range(3, fewer(300, 900)):
        one = rng.choice(talks)
        request, response = any_exchange(*rng.choice(kinds), number, rng, Repeating)
        one.exchange(request, response)
    return write_pcap(path, interleaved(talks), nanoseconds=True)


@pytest.mark.parametrize("options", one_in(4, OPTIONS, 1), ids=name_of)
def test_topic_ids_and_fetch_sessions(
    options: ExportOptions, made: dict[str, Path], tmp_path: Path, columns: list[int]
) -> None:
    count = check(made["ids"], tmp_path, options)
    assert sum(columns) > 0.2 * count


@pytest.mark.parametrize("options", one_in(2, OPTIONS[:2]), ids=name_of)
def test_topic_ids_without_a_name(options: ExportOptions, tmp_path: Path, columns: list[int]) -> None:
    """Exchanges with ids that nobody has named are columns, with their records; a name that comes later is added."""
    made = talk(0)
    late, never = bytes(range(16)), bytes(range(16, 32))
    for number in range(3, 23):
        records = kafka.record_batch([kafka.record(number, b"k", b"v")])
        asked = kafka.fetch_request_by_id(number, [(late, [0, 1]), (never, [])])
        made.exchange(asked, kafka.fetch_response_by_id(number, [(never, 2, records), (late, 0, records)]))
    topic = b"\0\0" + kafka.compact_string("orders") + late + b"\0" + kafka.compact_array([]) + kafka.int32(0) + b"\0"
    answer = kafka.int32(23) + b"\0" + kafka.int32(0) + kafka.compact_array([]) + b"\0" + kafka.int32(1)
    metadata = kafka.request(3, 12, 23, b"\0\0\0\0", flexible=True)
    made.exchange(metadata, framed(answer + kafka.compact_array([topic]) + b"\0"))
    check(write_pcap(tmp_path / "ids.pcap", made.packets, nanoseconds=True), tmp_path, options)
    fetches = [row for row in rows(tmp_path / "columns", "exchanges") if row["api"] == "Fetch"]
    assert [row["topics"] for row in fetches] == [["orders"]] * 20
    named = {row["topic"] for row in rows(tmp_path / "columns", "records") if row["api"] == "Fetch"}
    assert named == {"orders", None}
    assert sum(columns) > 20


def damaged(frame: bytes, first: int, rng: random.Random) -> bytes:
    """A message with a few other bytes from `first` on, often such as change lengths."""
    data = bytearray(frame)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if len(data) > first:
            at = rng.randrange(first, len(data))
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
    return bytes(data)


@pytest.mark.parametrize("options", one_in(2, [ExportOptions(), EVERYTHING, ExportOptions(headers=True)]))
def test_exchanges_with_problems_are_columns(options: ExportOptions, tmp_path: Path, columns: list[int]) -> None:
    """Problems of bodies are rows and kinds beside what could be read; nothing of that is left to Python."""
    records = kafka.record_batch([kafka.record(0, b"k", b"v")])
    made = talk(0)
    for number in range(3, 43, 4):
        whole = kafka.produce_request(number, "orders", records)
        made.exchange(whole, framed(kafka.produce_response(number, "orders", 40, error=6)[4:] + b"tail"))
        asked = kafka.produce_request(number + 1, "orders", records)
        made.exchange(framed(asked[4:-20]), kafka.produce_response(number + 1, "orders", 41))
        answer = kafka.fetch_response(number + 2, "paid", records, 12)
        made.exchange(kafka.fetch_request(number + 2, "paid", 7), framed(answer[4 : -len(records) - 9]))
        asked = kafka.fetch_request_by_id(number + 3, [(bytes(range(16)), [0, 1])])
        made.exchange(framed(asked[4:] + b"x"), kafka.fetch_response_by_id(number + 3, []))
    check(write_pcap(tmp_path / "problems.pcap", made.packets, nanoseconds=True), tmp_path, options)
    kinds = {(row["kind"], row["direction"]) for row in rows(tmp_path / "columns", "problems")}
    assert kinds == {
        ("trailing-bytes", "response"),
        ("body-truncated", "request"),
        ("array-too-long", "response"),
        ("trailing-bytes", "request"),
    }
    assert sum(columns) >= 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_bodies(seed: int, tmp_path: Path, columns: list[int]) -> None:
    """Bodies of all kinds with other bytes, most of them Fetch and Produce."""
    rng = random.Random(seed)
    data, rest = [kind for kind in KINDS if kind[0] in {0, 1}], supported()
    talks = [talk(number) for number in range(12)]
    for one in talks:
        for number in range(3, fewer(40, 100)):
            kind = rng.choice(data if rng.random() < 0.3 else rest)
            request, response = any_exchange(*kind, 2 * number, rng, Repeating)
            if rng.random() < 0.6:
                request = damaged(request, 16, rng)
            if rng.random() < 0.6:
                response = damaged(response, 9, rng)
            one.exchange(request, response)
    capture = write_pcap(tmp_path / "damaged.pcap", interleaved(talks), nanoseconds=True)
    check(capture, tmp_path, rng.choice(OPTIONS))
    assert columns


def records_of_all_sorts(path: Path) -> Path:
    """Produce and Fetch: valid batches, and batches that only Python reads."""
    rng = random.Random(3)
    talks = [talk(number) for number in range(4)]
    plain = [kafka.record(delta, b"key-%d" % delta, b"value") for delta in range(3)]
    for number in range(3, 250):
        one = rng.choice(talks)
        batch = kafka.record_batch(plain[: rng.randrange(1, 4)], base_offset=number)
        sort = rng.randrange(10)
        if sort == 0:
            batch = batch[:-1] + bytes([batch[-1] ^ 1])  # wrong CRC
        elif sort == 1:
            batch += kafka.record_batch(plain[:1], base_offset=number + 10)
        elif sort == 2:
            batch = b""
        elif sort in {5, 6}:
            batch = kafka.record_batch(plain, base_offset=number, compressed=True)
            # After the first part, bytes that are not gzip.
            batch += kafka.record_batch([b"none"], base_offset=number + 3, packed=b"none") if sort == 6 else b""
        topic = "__consumer_offsets" if sort == 3 else rng.choice(["orders", "payments"])
        error = 6 if sort == 4 else 0
        one.exchange(
            kafka.produce_request(number, topic, batch), kafka.produce_response(number, topic, number, error=error)
        )
        one.exchange(
            kafka.fetch_request(1000 + number, topic, number),
            kafka.fetch_response(1000 + number, topic, batch, number + 4),
        )
    return write_pcap(path, interleaved(talks), nanoseconds=True)


@pytest.mark.parametrize("options", one_in(9, OPTIONS), ids=name_of)
def test_records_of_all_sorts(
    options: ExportOptions, made: dict[str, Path], tmp_path: Path, columns: list[int]
) -> None:
    count = check(made["records"], tmp_path, options)
    assert sum(columns) > 0.3 * count


EXPRESSIONS = (
    *('api == "Produce"', "size > 130", "latency_ms > 0.2", "error", 'error == "NONE"', 'topic == "orders"'),
    *('topic != "orders"', "connection == 2", 'client_id == "me"', "client_port > 40002", 'not api == "Fetch"'),
    *('group_id =~ "." or latency_ms < 0.4', "record_count > 1", 'time < "+50ms"', "exchange in (7, 8, 30)"),
    *('api == "Fetch" and (error_count > 0 or partition == 0)', "has problems or size < 60", "acks == 'all'"),
)


@pytest.mark.parametrize(("expression", "headers"), in_turn(one_in(6, EXPRESSIONS), (False, True), 2, with_all=2))
def test_filters(expression: str, headers: bool, made: dict[str, Path], tmp_path: Path, columns: list[int]) -> None:
    options = ExportOptions(headers=headers, bodies=not headers, filters=(("filters", expression),))
    name = ("records", "open", "few")[EXPRESSIONS.index(expression) // 3 % 3]
    count = check(made[name], tmp_path / name, options, expression)
    # Problems, and numbers of exchanges where all are emitted one by one, are known to Python only.
    if "problems" not in expression and "exchange " not in expression:
        assert sum(columns) > 0.15 * count


def often_open(path: Path) -> Path:
    """Requests that stay open while other connections continue, until each connection ends in another way."""
    rng = random.Random(11)
    talks = [talk(number) for number in range(8)]
    batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
    for number in range(3, fewer(14, 40)):
        for one in talks:
            two = [kafka.produce_request(2 * number + one_of, "orders", batch) for one_of in range(rng.choice([1, 2]))]
            one.send("client", b"".join(two))
        for one in rng.sample(talks, len(talks)):
            waits = [packet for packet in one.packets if packet.payload][-1]
            count = 1 + (len(waits.payload) > len(kafka.produce_request(0, "orders", batch)))
            answers = [kafka.produce_response(2 * number + one_of, "orders", number) for one_of in range(count)]
            one.send("broker", b"".join(answers), 7 if rng.random() < 0.1 else 1448)
    for one in talks:
        one.send("client", kafka.produce_request(99, "orders", batch))
    talks[0].send("broker", kafka.produce_response(98, "orders", 5))  # a response without a request
    talks[1].close()
    talks[2].send("broker", kafka.produce_response(99, "orders", 5)[:-1] + b"\x7f")
    talks[3].send("broker", kafka.produce_response(99, "orders", 5))
    return write_pcap(path, interleaved(talks), nanoseconds=True)


@pytest.mark.extended
def test_exchanges_that_do_not_fit_are_read_one_by_one(
    tmp_path: Path, columns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchanges with more text or partitions than there is room for, and calls that end early."""
    for name, size in (("MAX_ROWS", 7), ("MAX_TEXT", 900), ("MAX_INSIDE", 9)):
        monkeypatch.setattr(f"kafkasniff.native.columns.{name}", size)
    check(of_every_kind(tmp_path / "kinds.pcap", connections=1), tmp_path, EVERYTHING)
    assert sum(columns) > 0
    assert max(columns) <= 7
