from __future__ import annotations

import base64
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.cli.environment import Exit
from kafkasniff.kafka.apis import dissectors
from tests.cli.console import Result, kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.kafka.embedded.metadata_craft import fetch_response, framed, log, snapshot_response
from tests.kafka.encode import Encoder, Plan

BATCH = kafka.record_batch([kafka.record(0, b"k", b"v")])
REQUEST = kafka.produce_request(5, "orders", BATCH, version=9)
RESPONSE = kafka.produce_response(5, "orders", 7, error=3, version=9)


def rows(result: Result) -> list[tuple[int, bytes]]:
    """Offset and bytes of the dump's rows."""
    found = []
    for line in result.lines:
        match = re.match(r"([0-9a-f]{4,8})  ((?:[0-9a-f]{2} ?)+)(?:  |$)", line)
        if match:
            found.append((int(match[1], 16), bytes.fromhex(match[2])))
    return found


def test_a_request_field_by_field() -> None:
    result = kafkasniff("decode-bytes", REQUEST.hex())
    assert result.code == 0
    assert result.lines[:3] == [
        "Produce v9 request, 112 bytes after the length prefix",
        "orders-0 1 record 70 B, acks all",
        "",
    ]
    assert (
        "0000  00 00                    ..        int16                   request_api_key: 0 (Produce)" in result.lines
    )
    assert "0013  ff ff                    ..        int16                   acks: -1 (ALL)" in result.lines
    assert (
        '001a  07 6f 72 64 65 72 73     .orders   compact string          topic_data[0].name: "orders"' in result.lines
    )
    batch = "topic_data[0].partition_data[0].records.batches[0]"
    assert f"0037  02                       .         int8                    {batch}.magic: 2" in result.lines
    assert (
        f'0068  02 6b                    .k        varint bytes            {batch}.records[0].key: "k"' in result.lines
    )


def test_long_fields_are_cut_unless_all_bytes_are_wanted() -> None:
    message = kafka.metadata_request(2, ["t" * 249])
    assert "      … 187 more bytes" in kafkasniff("decode-bytes", message.hex()).lines
    whole = kafkasniff("decode-bytes", "-x", message.hex())
    assert b"".join(data for _, data in rows(whole)) == message[4:]


def test_the_rows_cover_the_message_byte_by_byte() -> None:
    message = kafka.metadata_request(2, ["orders", "payments"])[4:]
    found = rows(kafkasniff("decode-bytes", message.hex(" ")))
    assert b"".join(data for _, data in found) == message
    position = 0
    for offset, data in found:
        assert offset == position
        position += len(data)


def test_responses_need_api_and_version() -> None:
    result = kafkasniff("decode-bytes", "--response", "--api", "produce", "--version", 9, RESPONSE[4:].hex())
    assert result.lines[0] == f"Produce v9 response, {len(RESPONSE) - 4} bytes"
    assert result.lines[1] == "orders-0 UNKNOWN_TOPIC_OR_PARTITION"
    assert any("error_code: 3 (UNKNOWN_TOPIC_OR_PARTITION)" in line for line in result.lines)
    for wrong in ([], ["--api", "0"], ["--version", "1"], ["--api", "Nonsense", "--version", "1"]):
        assert kafkasniff("decode-bytes", "--response", *wrong, RESPONSE.hex()).code == Exit.USAGE
    assert kafkasniff("decode-bytes", "--api", "0", REQUEST.hex()).code == Exit.USAGE


def test_json_is_the_line_of_the_message_and_its_spans() -> None:
    (item,) = kafkasniff("decode-bytes", "--format", "json", REQUEST.hex()).objects
    assert (item["type"], item["api"], item["api_version"], item["correlation_id"]) == ("request", "Produce", 9, 5)
    assert item["body"]["topic_data"][0]["name"] == "orders"
    assert item["connection"] is None
    spans = item["spans"]
    assert spans[0] == {"start": 0, "end": 2, "type": "int16", "path": "request_api_key"}
    assert [span["start"] for span in spans[1:]] == [span["end"] for span in spans[:-1]]
    assert spans[-1]["end"] == len(REQUEST) - 4
    name = next(span for span in spans if span["path"] == "topic_data[0].name")
    assert REQUEST[4:][name["start"] : name["end"]] == b"\x07orders"


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_stdin(form: str) -> None:
    data = {"raw": REQUEST, "hex": REQUEST.hex().encode(), "base64": base64.b64encode(REQUEST)}[form]
    assert kafkasniff("decode-bytes", "-", stdin=data).out == kafkasniff("decode-bytes", REQUEST.hex()).out


def test_hex_may_come_in_several_words() -> None:
    assert kafkasniff("decode-bytes", *REQUEST.hex(" ").split()).out == kafkasniff("decode-bytes", REQUEST.hex()).out


def test_leftover_bytes_and_truncated_bodies() -> None:
    result = kafkasniff("decode-bytes", (kafka.metadata_request(2, None)[4:] + b"\1\2").hex())
    assert any(line.startswith("trailing-bytes: ") for line in result.lines)
    assert result.lines[-1].endswith("left over: 2 bytes ! trailing-bytes")
    result = kafkasniff("decode-bytes", kafka.metadata_request(2, ["orders"])[4:-3].hex())
    assert any(line.startswith("body-truncated: ") for line in result.lines)
    assert "not decoded" in result.lines[-1]


@pytest.mark.parametrize("data", ["00", "ffffffffffffffffffff", "7fff000000000001ffff0102", "00000063000000010000"])
def test_garbage_is_reported_without_an_error(data: str) -> None:
    result = kafkasniff("decode-bytes", data)
    assert result.code == 0
    assert any(re.match(r"[a-z-]+: ", line) for line in result.lines)
    assert result.err == ""


def test_secrets_are_hidden() -> None:
    token = b"\0alice\0alice-secret"
    request = kafka.request(36, 0, 1, kafka.int32(len(token)) + token)
    for data in (request, request[4:-3]):
        for options in ([], ["-v"], ["--format", "json"], ["--format", "json", "--bytes", "hex"]):
            shown = kafkasniff("decode-bytes", *options, data.hex()).text
            assert "alice" not in shown
            assert token[:8].hex() not in shown.replace(" ", "")
            assert base64.b64encode(token)[:8].decode() not in shown
    assert "alice-secret" in kafkasniff("decode-bytes", "--show-secrets", request.hex()).text


def test_verbose_adds_the_tree() -> None:
    shown = kafkasniff("decode-bytes", "-v", REQUEST.hex()).text
    assert '      - name: "orders"\n' in shown
    assert '                      key: "k"  value: "v"  headers: []' in shown.replace("\n", "\n") or 'key: "k"' in shown


def test_no_byte_of_the_message_reaches_the_terminal_raw() -> None:
    result = kafkasniff("decode-bytes", "-v", kafka.metadata_request(2, ["\x1b[31m\u202e"]).hex())
    assert all(line.isprintable() for line in result.lines)


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_no_bytes_fail(data: bytes, verbose: bool) -> None:
    result = kafkasniff("decode-bytes", *(["-v"] if verbose else []), data.hex())
    assert result.code == 0
    assert all(line.isprintable() for line in result.lines)


def pairs() -> list[tuple[int, int]]:
    found = []
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        found += [(key, version) for version in (api.min_version, api.max_version)]
    return found


def test_every_api_can_be_dumped() -> None:
    for key, version in pairs():
        api = dissectors.api(key)
        assert api is not None
        for kind in ("request", "response"):
            layout = (api.request(version) if kind == "request" else api.response(version)).root
            body, _ = Encoder(Plan(random.Random(f"{key} {version}"), count=1, tagged=True)).body(layout)
            arguments: list[Any] = []
            tags = b"\0"
            if kind == "request":
                header = kafka.int16(key) + kafka.int16(version) + kafka.int32(1)
                header += {0: b"", 1: kafka.string("x"), 2: kafka.string("x") + tags}[api.request_header(version)]
            else:
                arguments = ["--response", "--api", key, "--version", version]
                header = kafka.int32(1) + (tags if api.response_header(version) else b"")
            result = kafkasniff("decode-bytes", "--format", "json", *arguments, (header + body).hex())
            (item,) = result.objects
            spans = item["spans"]
            assert [span["start"] for span in spans] == [0, *(span["end"] for span in spans[:-1])]
            assert spans[-1]["end"] == len(header + body)
            text = kafkasniff("decode-bytes", *arguments, (header + body).hex())
            assert text.code == 0
            assert text.lines[0].startswith(f"{api.name} v{version} {kind}")


def test_records_of_the_metadata_log_are_hidden() -> None:
    value = framed(11, 0, b"\x06carol\x01" + b"\x05salt" + b"\x05key1" + b"\x05key2" + b"\x00\x00\x10\x00\x00")
    for key, version, message in (
        ("Fetch", "17", fetch_response(log(value))),
        ("FetchSnapshot", "0", snapshot_response(log(value))),
    ):
        arguments = ("decode-bytes", "--response", "--api", key, "--version", version)
        hidden = kafkasniff(*arguments, message.hex(), "-v").text
        assert b"salt".hex() not in hidden.replace(" ", "")
        assert "salt: [4 bytes redacted]" in hidden
        assert ".records[0].value: [" in hidden
        shown = kafkasniff(*arguments, "--show-secrets", message.hex(), "-v").text
        assert 'salt: "salt"' in shown
        assert " hidden]" not in shown
    other = fetch_response(log(value), topic=bytes(16))
    assert " hidden]" not in kafkasniff("decode-bytes", "--response", "--api", "1", "--version", "17", other.hex()).text
