"""Bodies as nodes of a tree, and their bytes as rows."""

from __future__ import annotations

import pytest

from kafkasniff.browse import body_view as module
from kafkasniff.browse.body_view import BodyNode, ByteRows, body_path, children, roots
from tests.browse.opened import exchange_of


def labels(node: BodyNode) -> list[str]:
    return [node.label] + ([label for child in children(node) for label in labels(child)] if node.opens else [])


def test_secrets_are_hidden() -> None:
    exchange = exchange_of("java-sasl", "SaslAuthenticate")
    shown = "\n".join(label for node in roots(exchange) for label in labels(node))
    assert "redacted" in shown
    assert "alice-secret" not in shown


def test_text_is_escaped() -> None:
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

    most = module.MAX_SEARCHED_VALUE
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


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = exchange_of("java-errors", "Produce")
    assert any("more bytes" in row.text for row in ByteRows(exchange, 100).rows)
    assert not any("more bytes" in row.text for row in ByteRows(exchange, 100, whole=True).rows)
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    rows = ByteRows(exchange, 100).rows
    assert len(rows) == 2 * (1 + 2 + 1)
    assert rows[3].text == "… more bytes, shown by decode -xx"
