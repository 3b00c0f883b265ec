"""`decode -x`: the bytes of each message by field. `python -m tests.sinks.test_hex_view` writes its golden files."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.messages.message import decode_request
from kafkasniff.model import Message, SaslToken
from kafkasniff.sinks.hex_view import SHOWN_FIELDS, HexView
from kafkasniff.text.printable import PLAIN
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import shipped_captures
from tests.craft import kafka_bytes as kafka

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = ROOT / "tests" / "golden" / "hex"
CASES: Final = {
    "produce": ["-x", "--api", "Produce", "-c", "2", "captures/aiokafka-codecs.pcap"],
    "compressed": ["-x", "--api", "Produce", "--client-id", "java-lz4", "-c", "1", "captures/java-codecs.pcap"],
    "message-set": ["-x", "--exchange", "8", "captures/java-0.8.2.pcap"],
    "sasl": ["-x", "--api", "SaslAuthenticate", "-c", "2", "captures/java-sasl.pcap"],
    "truncated": ["-x", "-c", "1", "captures/librdkafka-snaplen-128.pcap"],
    "no-payload": ["-x", "--no-payload", "--api", "Produce", "-c", "1", "captures/aiokafka-codecs.pcap"],
}
"""Arguments of `decode` by the name of the golden file."""
ROW: Final = re.compile(r"    ([0-9a-f]{4,8})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)")


def dumped(lines: list[str]) -> list[bytes]:
    """The bytes in the dump of each message, without decompressed ones. Rows follow one another."""
    found: list[bytes] = []
    for line in lines:
        if (match := ROW.match(line)) is not None:
            offset, data = int(match[1], 16), bytes.fromhex(match[2])
            if offset == 0:
                found.append(b"")
            assert len(found[-1]) == offset, line
            found[-1] += data
    return found


def frames(path: Path) -> list[bytes]:
    """The bytes of all messages and tokens of a capture, except empty ones."""
    inspector = Inspector(frames=True, exchanges=False, records="skip", show_secrets=True)
    events: list[object] = []
    with open_captures([path]) as source:
        for batch in source:
            events += inspector.feed(batch)
    events += inspector.close()
    found = [one.token if isinstance(one, SaslToken) else getattr(one, "frame", None) for one in events]
    return [one for one in found if one]


@pytest.mark.parametrize("capture", one_in(9, shipped_captures()), ids=lambda path: path.name)
def test_rows_are_the_bytes_of_the_capture(capture: Path) -> None:
    """With secrets, which are gaps otherwise; every row has the offset at which the rows before it end."""
    result = kafkasniff("decode", "-xx", "--show-secrets", capture)
    assert result.code == Exit.OK
    assert dumped(result.lines) == frames(capture)


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert kafkasniff("decode", "-q", *CASES[name]).text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_lines_of_messages_are_those_without_bytes() -> None:
    """The kernel follows connections then; with bytes, Python does."""
    for name in ("aiokafka-group.pcap", "java-sasl.pcap"):
        path = ROOT / "captures" / name
        shown = [line for line in kafkasniff("decode", "-x", path).lines if not line.startswith("    ")]
        assert shown == [line for line in kafkasniff("decode", path).lines if not line.startswith("    ")]


def view(data: bytes, *, whole: bool = False, width: int | None = None) -> list[str]:
    decoded = decode_request(data, 0, len(data))
    fields = {name: getattr(decoded, name) for name in decoded.__struct_fields__ if name in Message.__struct_fields__}
    message = msgspec.structs.replace(Message("request", len(data)), **fields)
    return list(HexView(PLAIN, whole=whole, secrets=False, width=width).lines(message, data))


def test_the_end_of_a_broken_message_is_plain_and_marked() -> None:
    data = kafka.metadata_request(2, ["orders"])[4:-3]
    lines = view(data)
    assert lines[-2].endswith("topics[0].name: 6 bytes ! body-truncated")
    assert lines[-1].endswith("not decoded: 3 bytes")
    assert lines[-1].split("  ")[1] == data[-3:].hex(" ")
    assert b"".join(bytes.fromhex(match[2]) for line in lines if (match := ROW.match(f"    {line}"))) == data


def test_long_messages_are_cut_unless_all_is_wanted() -> None:
    data = kafka.metadata_request(2, ["t"] * (SHOWN_FIELDS + 5))[4:]
    lines = view(data)
    assert sum("topics[" in line for line in lines) < SHOWN_FIELDS
    assert lines[-1].endswith("… 30 more bytes")
    assert len(view(data, whole=True)) > SHOWN_FIELDS + 5


def test_fields_beyond_the_bound_are_plain_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.kafka.messages.message_spans.MAX_SPANS", 10)
    data = kafka.metadata_request(2, ["t"] * 30)[4:]
    lines = view(data, whole=True)
    assert sum("topics[" in line for line in lines) == 9
    assert any(line.endswith("not listed: 63 bytes") for line in lines)
    assert dumped([f"    {line}" for line in lines]) == [data]


@pytest.mark.parametrize("hiding", ["--no-payload", "--hash-payload"])
def test_hidden_payload_is_not_in_the_dump(hiding: str) -> None:
    for name, payload in (
        ("java-codecs.pcap", b"lorem"),
        ("java-0.8.2.pcap", b"lorem"),
        ("java-0.8.2.pcap", b"acks 0"),
    ):
        path = ROOT / "captures" / name
        rows = re.compile(r"    \+*[0-9a-f]{4,8}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)")
        for options, expected in (([], True), ([hiding], False)):
            lines = kafkasniff("decode", "-xx", *options, path).lines
            found = b"".join(bytes.fromhex(match[1]) for line in lines if (match := rows.match(line)))
            assert (payload in found) == expected
            assert any(payload.decode() in line for line in lines) == expected


def write_golden() -> None:
    """Write the golden files again."""
    with contextlib.chdir(ROOT):
        for name, arguments in CASES.items():
            (GOLDEN / f"{name}.txt").write_text(kafkasniff("decode", "-q", *arguments).text, encoding="utf-8")


if __name__ == "__main__":
    write_golden()
