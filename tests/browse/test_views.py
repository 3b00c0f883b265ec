"""Bodies as nodes of a tree, their bytes as rows, and their records in each form."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.browse import body_view
from kafkasniff.browse import body_view as module
from kafkasniff.browse.body_view import BodyNode, ByteRows, RecordRow, body_path, children, records, roots, whole_record
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading, unseen
from kafkasniff.filters.expression import parse_filter
from kafkasniff.values.registries import FolderRegistry
from kafkasniff.values.stage import ValueSchemas
from tests.browse.opened import exchange_of
from tests.conftest import ROOT
from tests.values.registered import CAPTURE, write_folder


def labels(node: BodyNode) -> list[str]:
    return [node.label] + ([label for child in children(node) for label in labels(child)] if node.opens else [])


def test_secrets_are_hidden_in_bodies() -> None:
    exchange = exchange_of("java-sasl", "SaslAuthenticate")
    shown = "\n".join(label for node in roots(exchange) for label in labels(node))
    assert "redacted" in shown
    assert "alice-secret" not in shown


def test_text_of_bodies_is_escaped() -> None:
    node = BodyNode("body", "", {"to\x1b[2Jpic": "a\x1b]0;x\x07", "list": [1, "\u202e"]}, None)
    assert "\x1b" not in "".join(labels(node))
    assert "\u202e" not in "".join(labels(node))
    assert labels(node)[2] == "list [2]"


def test_long_values_are_cut_in_labels_and_bounded_in_searches() -> None:
    node = next(children(BodyNode("body", "", {"value": b"x" * 1000 + b"\x1b end"}, None)))
    assert "end" not in node.label
    assert node.text.endswith("x\\x1b end")

    class Sliced(bytes):
        def __getitem__(self, part: slice) -> bytes:  # type: ignore[override]
            return bytes(self)[part]

        def decode(self, *_: object) -> str:  # type: ignore[override]
            raise AssertionError("all of the value was used")

    most = body_view.MAX_SEARCHED_VALUE
    for value in ("v" * (most + 100), Sliced(b"v" * (most + 100))):
        assert BodyNode("value: …", "value", value, None).text.count("v") == len("v" + "v" * most)


def paths(node: BodyNode) -> list[str]:
    return [node.path, *(path for child in children(node) for path in paths(child))] if node.opens else [node.path]


def shown(rows: ByteRows, message: int, path: str) -> str:
    return "\n".join(rows.rows[row].text for row in rows.find(message, path))


IN_BATCH = "responses[0].partitions[0].records.batches"


@pytest.mark.parametrize(
    ("capture", "api", "path", "field"),
    [
        ("java-transactions", "Fetch", f"{IN_BATCH}[1].records[0].value", f"{IN_BATCH}[1].records[0].value"),
        ("java-transactions", "Fetch", f"{IN_BATCH}[1].records[0].offset", f"{IN_BATCH}[1].records[0].offset_delta"),
        ("java-transactions", "Fetch", f"{IN_BATCH}[1].compression", f"{IN_BATCH}[1].attributes"),
        ("java-transactions", "Fetch", f"{IN_BATCH}[1].crc_ok", f"{IN_BATCH}[1].crc"),
        ("java-0.9", "Produce", "topic_data[0].partition_data[0].records.batches[0].records[0].key", "batches[0].key"),
        ("java-0.10.2", "Fetch", f"{IN_BATCH}[5].records[1].key", "messages[1].key"),
        ("java-0.10.2", "Fetch", f"{IN_BATCH}[5].base_offset", "batches[5].offset"),
    ],
    ids=["value", "offset", "compression", "crc", "old key", "nested key", "old offset"],
)
def test_fields_of_records_are_found(capture: str, api: str, path: str, field: str) -> None:
    rows = ByteRows(exchange_of(capture, api), 100)
    places = rows.find(1 if api == "Fetch" else 0, path)
    assert rows.rows[places[0]].path.endswith(field)
    if path.endswith("value"):
        # Offsets in the decompressed bytes.
        assert [rows.rows[row].offset for row in places] == [12, 20]
        assert rows.rows[places[0]].text.startswith("+000c  16 63 6f")


@pytest.mark.parametrize(
    ("capture", "api"),
    [("java-errors", "Produce"), ("java-transactions", "Fetch"), ("java-group-classic", "JoinGroup")],
)
def test_all_fields_have_bytes_and_all_bytes_a_field(capture: str, api: str) -> None:
    exchange = exchange_of(capture, api)
    rows = ByteRows(exchange, 100)
    for number, node in enumerate(roots(exchange)):
        known = set(paths(node))
        for path in known - {""}:
            assert rows.find(number, path)[0] > rows.find(number, "")[0], path
        header = {"request_api_key", "request_api_version", "correlation_id", "client_id", "_tags"}
        for row in rows.rows:
            if row.path not in header and rows.message_of(rows.rows.index(row)) == number:
                path = body_path(row.path)
                assert any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known if one or not path)


def test_secrets_are_hidden_in_bytes() -> None:
    rows = ByteRows(exchange_of("java-sasl", "SaslAuthenticate"), 100)
    text = "\n".join(row.text for row in rows.rows)
    assert "hidden" in text
    assert "alice-secret" not in text
    assert b"alice-secret".hex(" ")[:20] not in text


def test_bounds_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = exchange_of("java-errors", "Produce")
    assert any("more bytes" in row.text for row in ByteRows(exchange, 100).rows)
    assert not any("more bytes" in row.text for row in ByteRows(exchange, 100, whole=True).rows)
    monkeypatch.setattr(body_view, "MAX_ROWS", 2)
    rows = ByteRows(exchange, 100).rows
    assert len(rows) == 2 * (1 + 2 + 1)
    assert rows[3].text == "… more bytes, shown by decode -xx"


def row(**record: object) -> RecordRow:
    return RecordRow(0, "", "orders", 3, {"offset": 7, "timestamp": 0, "key": None, "value": None, **record}, 7)


def whole(one: RecordRow, form: module.ValueForm = "text") -> str:
    return "\n".join(whole_record(one, form))


def at(node: BodyNode, path: str) -> object:
    for child in children(node):
        if child.path == path:
            return child.value
        if path.startswith((f"{child.path}.", f"{child.path}[")):
            return at(child, path)
    raise AssertionError(path)


@pytest.mark.parametrize(
    ("capture", "api", "message", "count", "topic"),
    [
        ("java-errors", "Produce", 0, 1, "errors"),
        ("java-transactions", "Fetch", 1, 2, "ledger"),
        ("java-0.9", "Produce", 0, 4, "letters"),
        ("java-group-share", "ShareFetch", 1, None, "tasks"),
    ],
)
def test_records_of_requests_and_responses(capture: str, api: str, message: int, count: int | None, topic: str) -> None:
    exchange = exchange_of(capture, api)
    found = list(records(exchange))
    assert count is None or len(found) == count
    nodes = list(roots(exchange))
    for one in found:
        assert (one.message, one.topic, one.partition) == (message, topic, 0)
        assert at(nodes[message], one.path) is one.record


@pytest.mark.parametrize("capture", ["java-0.9", "java-1.1", "java-group-consumer", "librdkafka-codecs"])
def test_produced_records_have_the_offsets_that_consumers_see(capture: str) -> None:
    rows: dict[int, list[RecordRow]] = {0: [], 1: []}
    for exchange in kafkasniff.read(ROOT / "captures" / f"{capture}.pcap"):
        for row in records(exchange) if exchange.response and not exchange.response.errors else ():
            rows[row.message].append(row)
    produced, fetched = rows.values()
    seen = {(row.topic, row.partition, row.offset): row.record["value"] for row in fetched}
    places = [(row.topic, row.partition, row.offset) for row in produced]
    assert len(set(places)) == len(places) > 0
    both = [(seen[place], row.record["value"]) for place, row in zip(places, produced, strict=True) if place in seen]
    assert both
    assert all(one == other for one, other in both)


@pytest.mark.parametrize("form", module.FORMS)
def test_text_is_escaped(form: module.ValueForm) -> None:
    evil = "a\x1b]0;x\x07\u202e\x9b"
    inside = '{"k": "' + evil + '"}'
    one = row(key=evil.encode(), value=inside.encode(), headers=[{"key": evil, "value": evil.encode()}])
    shown = whole(one, form) + one.cell("key", form) + one.cell("value", form) + one.headers
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)


def test_secrets_are_hidden() -> None:
    one = row(value={"redacted": 12})
    assert one.cell("value", "hex") == "[12 bytes redacted]"
    assert whole(one, "hex").endswith("value: [12 bytes redacted]")


def test_bounds() -> None:
    size = module.MAX_VALUE + 1000
    for form in module.FORMS:
        shown = whole(row(value=b"x" * size), form)
        assert "… 1,000 more, written by decode --format json" in shown
        assert shown.count("x") - form.count("x") <= module.MAX_VALUE + 10
    assert "… 5 more headers" in whole(row(headers=[{"key": "k", "value": b""}] * (module.MAX_HEADERS + 5)))
    deep = b"[" * 100_000 + b"]" * 100_000
    assert whole(row(value=deep), "JSON").endswith("]")


def test_decoded_values(tmp_path: Path) -> None:
    schemas = ValueSchemas(FolderRegistry(write_folder(tmp_path)))
    reading, index = CaptureReading((str(CAPTURE),), dict, schemas=schemas), ExchangeIndex()
    predicate = parse_filter('record.value.id == 70000 and topic == "avro-orders" and api == "Produce"')
    assert not reading.fill(index, predicate, stopped=lambda: False, progress=unseen)
    assert len(index) == 1
    exchange = reading.look(index, index.row(0), stopped=lambda: False)
    (found,) = records(exchange)
    assert found.schema == "301/302"
    for form in ("text", "JSON"):
        assert found.cell("value", form) == '{"id":70000,"item":"größe 數","price":null}'
    assert found.cell("value", "hex").startswith("00 00 00 01 2e")
    assert '  "id": 70000,' in whole_record(found, "text")
    assert '  "id": 70000,' not in whole_record(found, "hex")
