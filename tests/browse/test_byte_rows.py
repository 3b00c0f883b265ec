"""Rows of bytes, and which of them show a field."""

from __future__ import annotations

import pytest

from kafkasniff.browse import byte_rows as module
from kafkasniff.browse.body_view import BodyNode, children, roots
from kafkasniff.browse.byte_rows import ByteRows, body_path
from tests.browse.opened import exchange_of


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


def test_secrets_are_hidden() -> None:
    rows = ByteRows(exchange_of("java-sasl", "SaslAuthenticate"), 100)
    text = "\n".join(row.text for row in rows.rows)
    assert "hidden" in text
    assert "alice-secret" not in text
    assert b"alice-secret".hex(" ")[:20] not in text


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = exchange_of("java-errors", "Produce")
    assert any("more bytes" in row.text for row in ByteRows(exchange, 100).rows)
    assert not any("more bytes" in row.text for row in ByteRows(exchange, 100, whole=True).rows)
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    rows = ByteRows(exchange, 100).rows
    assert len(rows) == 2 * (1 + 2 + 1)
    assert rows[3].text == "… more bytes, shown by decode -xx"
