"""`kafkasniff decode`: options and exit codes; `screens/decode.txt` and `tests/golden` have what it shows."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running import pipeline
from tests.choice import in_turn
from tests.cli.console import kafkasniff
from tests.craft.samples import producer
from tests.craft.write import pcapng_bytes


def messages(result: Any) -> list[dict[str, Any]]:
    return [item for item in result.objects if item["type"] in {"request", "response"}]


@pytest.mark.parametrize(
    ("option", "wanted"),
    [("auto", {"base64": "AP8="}), ("base64", {"base64": "AP8="}), ("hex", {"hex": "00ff"})],
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
