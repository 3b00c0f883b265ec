from __future__ import annotations

import base64
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis import dissectors
from tests.choice import examples, one_in
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


def test_long_fields_are_cut_unless_all_bytes_are_wanted() -> None:
    message = kafka.metadata_request(2, ["t" * 249])
    assert "      … 187 more bytes" in kafkasniff("decode-bytes", message.hex()).lines
    found = rows(kafkasniff("decode-bytes", "-x", message.hex(" ")))
    assert b"".join(data for _, data in found) == message[4:]
    position = 0
    for offset, data in found:
        assert offset == position
        position += len(data)


def test_responses_need_api_and_version() -> None:
    result = kafkasniff("decode-bytes", "--response", "--api", "produce", "--version", 9, RESPONSE[4:].hex())
    assert result.lines[0] == f"Produce v9 response, {len(RESPONSE) - 4} bytes"
    assert result.lines[1] == "orders-0 UNKNOWN_TOPIC_OR_PARTITION"
    assert any("error_code: 3 (UNKNOWN_TOPIC_OR_PARTITION)" in line for line in result.lines)


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_stdin(form: str) -> None:
    data = {"raw": REQUEST, "hex": REQUEST.hex().encode(), "base64": base64.b64encode(REQUEST)}[form]
    assert kafkasniff("decode-bytes", *REQUEST.hex(" ").split()).out == kafkasniff("decode-bytes", REQUEST.hex()).out
    assert kafkasniff("decode-bytes", "-", stdin=data).out == kafkasniff("decode-bytes", REQUEST.hex()).out


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


@examples(40)
@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_no_bytes_fail(data: bytes, verbose: bool) -> None:
    result = kafkasniff("decode-bytes", *(["-v"] if verbose else []), data.hex())
    assert result.code == 0
    assert all(line.isprintable() for line in result.lines)


def pairs() -> list[tuple[int, int]]:
    found = []
    for key in one_in(5, dissectors.api_keys()):
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
            body = Encoder(Plan(random.Random(f"{key} {version}"), count=1, tagged=True)).body(layout)
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
