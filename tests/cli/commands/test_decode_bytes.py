from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.choice import examples
from tests.cli.console import Result, kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.kafka.embedded.metadata_craft import fetch_response, framed, log, snapshot_response

BATCH = kafka.record_batch([kafka.record(0, b"k", b"v")])
REQUEST = kafka.produce_request(5, "orders", BATCH, version=9)


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


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_stdin(form: str) -> None:
    data = {"raw": REQUEST, "hex": REQUEST.hex().encode(), "base64": base64.b64encode(REQUEST)}[form]
    assert kafkasniff("decode-bytes", *REQUEST.hex(" ").split()).out == kafkasniff("decode-bytes", REQUEST.hex()).out
    assert kafkasniff("decode-bytes", "-", stdin=data).out == kafkasniff("decode-bytes", REQUEST.hex()).out


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
