"""Records: which there are, and their keys and values in each form."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.browse import record_view as module
from kafkasniff.browse.body_view import BodyNode, children, roots
from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading, unseen
from kafkasniff.browse.record_view import RecordRow, records, whole_record
from kafkasniff.filters.expression import parse_filter
from kafkasniff.values.registries import FolderRegistry
from kafkasniff.values.stage import ValueSchemas
from tests.browse.opened import exchange_of
from tests.conftest import ROOT
from tests.values.registered import CAPTURE, write_folder


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
    assert exchange is not None
    (found,) = records(exchange)
    assert found.schema == "301/302"
    for form in ("text", "JSON"):
        assert found.cell("value", form) == '{"id":70000,"item":"größe 數","price":null}'
    assert found.cell("value", "hex").startswith("00 00 00 01 2e")
    assert '  "id": 70000,' in whole_record(found, "text")
    assert '  "id": 70000,' not in whole_record(found, "hex")
