"""`kafkasniff decode` and `decode-bytes`: options and exit codes; `screens` and `tests/golden` have what they show."""

from __future__ import annotations

import base64
import ipaddress
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import pipeline
from tests.choice import examples, in_turn
from tests.cli.console import Result, kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.samples import producer
from tests.craft.write import pcapng_bytes
from tests.kafka.embedded.metadata_craft import fetch_response, framed, log, snapshot_response


def messages(result: Any) -> list[dict[str, Any]]:
    return [item for item in result.objects if item["type"] in {"request", "response"}]


@pytest.mark.parametrize(
    ("option", "wanted"), [("auto", {"base64": "AP8="}), ("base64", {"base64": "AP8="}), ("hex", {"hex": "00ff"})]
)
def test_forms_of_bytes(capture: Path, option: str, wanted: dict[str, str]) -> None:
    result = kafkasniff("decode", "--format", "json", "--bytes", option, "--api", "Produce", "-c", 1, capture)
    (line,) = messages(result)
    record = line["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"][0]
    assert record["headers"][0]["value"] == wanted
    assert (record["key"] == "key-0") is (option == "auto")


def test_an_output_is_not_touched_when_the_capture_cannot_be_opened(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious")
    assert kafkasniff("decode", "-o", out, tmp_path / "missing.pcap").code == Exit.CAPTURE
    assert out.read_text() == "precious"


def test_progress_is_shown_on_terminals_and_erased(capture: Path, tmp_path: Path) -> None:
    ticks = iter(range(10_000))
    options = {"stderr_tty": True, "clock": lambda: float(next(ticks))}
    shown = kafkasniff("decode", capture, **options).err
    assert "%" in shown
    assert "\r\x1b[Kkafkasniff: " in shown
    exported = kafkasniff("export", capture, "-o", tmp_path / "out", **options).err
    assert ("[####" in exported, "s left" in exported) == (True, True)
    for quiet in (["-q"], []):
        extra = {} if quiet else {"stdout_tty": True}
        assert "%" not in kafkasniff("decode", *quiet, capture, **{**options, **extra}).err


@pytest.mark.parametrize(
    ("options", "rows"),
    in_turn([(), ("-v",), ("--api", "Produce"), ("--filter", "request.acks != 7")], [1, 3, 1 << 16], 3),
)
def test_name_records_name_addresses(
    options: tuple[str, ...], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text shows an address by its name record in the capture (pcapng, section 4.5), from its place on; JSON never
    does."""
    monkeypatch.setattr(pipeline, "FIRST_ROWS", rows)
    monkeypatch.setattr(pipeline, "MAX_ROWS", rows)
    first = producer().packets
    address, broker = first[0].dst, first[0].dport
    name = ipaddress.ip_address(address).packed + b"broker-one\0"
    record = struct.pack("<HH", 1, len(name)) + name + bytes(-len(name) % 4) + bytes(4)
    block = struct.pack("<II", 4, 12 + len(record)) + record + struct.pack("<I", 12 + len(record))
    data = pcapng_bytes([*first, *producer(51_335).packets])
    head = 0
    for _ in range(2 + len(first)):  # the section's header, the interface, and packets
        head += struct.unpack_from("<I", data, head + 4)[0]
    capture = tmp_path / "named.pcapng"
    capture.write_bytes(data[:head] + block + data[head:])
    lines = [line for line in kafkasniff("decode", *options, capture).text.splitlines() if "Produce v" in line]
    names = ["broker-one" in line for line in lines]
    assert len(names) > 10
    assert names == [False] * (len(names) // 2) + [True] * (len(names) // 2)
    assert kafkasniff("decode", "--format", "json", capture).objects[-1]["broker"] == f"{address}:{broker}"


BATCH = kafka.record_batch([kafka.record(0, b"k", b"v")])
REQUEST = kafka.produce_request(5, "orders", BATCH, version=9)


def dumped(result: Result) -> list[tuple[int, bytes]]:
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
    found = dumped(kafkasniff("decode-bytes", "-x", message.hex(" ")))
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
