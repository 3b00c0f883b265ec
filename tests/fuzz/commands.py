"""Whole commands: captures with odd values, and changed captures, through each analysis, with and without the kernel.

The first byte of an input selects the command, the second changes among the packets (lost, repeated, out of order),
the rest is the capture. A command must end with a documented exit code,
say the same with the native kernel and by Python, and read the tables of an export with the findings of the capture.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.layout import Field, Struct
from tests.cli.console import Result, kafkasniff
from tests.craft.conversation import Conversation, interleaved
from tests.craft.from_layout import SIZES, request_bytes, response_bytes
from tests.craft.write import pcap_bytes
from tests.fuzz.corpus import capture_files
from tests.oracle.inspector import by_python

MAX_LENGTH = 40_000
MEGABYTES = 500
DEAR = 50
"""Each input costs as much as this many of other families."""
WORDS = (b"\xff\xfe", b"\0\0\0\x01", b"\xff\xff\xff\xff", b"orders", b"\x7f\xff\xff\xff")

COMMANDS: Final = (
    ("check", "--format", "json"),
    ("stats", "--format", "json"),
    ("timing", "--format", "json"),
    ("security", "--format", "json"),
    ("audit", "--target", "4.0", "--format", "json"),
    ("decode", "--format", "json", "-q", "--jobs", "1"),
    ("decode", "--format", "text", "-q", "--jobs", "1"),
    ("export",),
    ("report",),
)
_ASKS_NETWORK: Final = frozenset({"check", "stats", "timing"})
"""Their output depends on the network, which only the kernel follows; `tests/kernel/test_links.py` compares that."""
_PICTURE: Final = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'
CODES: Final = frozenset({0, 1, 3, 4})
"""Not 70, which is a crash."""

_TEXTS: Final = (b"\xff\xfe", b"", None, b"x" * 300, b"orders", b"\0", "é".encode(), b"a\nb", b"\x1b[2J", b'"\\')
_CODES: Final = (0, 0, 1, 3, 6, 16, 25, 79, 100, -1, 999)


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    words = COMMANDS[data[0] % len(COMMANDS)]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "capture.pcap")
        path.write_bytes(_disturbed(data[2:], data[1]))
        if words[0] == "export":
            _export(path)
        elif words[0] == "report":
            # The drawing library reserves more address space than a run may have.
            with mock.patch("vl_convert.vegalite_to_svg", return_value=_PICTURE):
                _run("report", path, "-o", "-")
        else:
            compare(words, path)


def _disturbed(capture: bytes, seed: int) -> bytes:
    """The packets of a pcap file with some of them lost, repeated or moved; 0: as they are."""
    packets, place = [], 24
    while place + 16 <= len(capture):
        size = 16 + int.from_bytes(capture[place + 8 : place + 12], "little")
        packets.append(capture[place : place + size])
        place += size
    chance = random.Random(seed)
    for _ in range(seed % 8 if len(packets) > 2 else 0):
        at = chance.randrange(len(packets))
        match chance.randrange(4):
            case 0 if len(packets) > 2:
                del packets[at]
            case 1:
                packets.insert(min(at + chance.randint(1, 4), len(packets)), packets[at])
            case _:
                packets.insert(min(at + chance.randint(1, 6), len(packets) - 1), packets.pop(at))
    return capture[:24] + b"".join(packets)


def compare(words: tuple[str, ...], path: Path) -> None:
    """A command with the native kernel and by Python: the same output and exit code."""
    native = _run(words[0], path, *words[1:])
    if words[0] in _ASKS_NETWORK:
        return
    with by_python():
        python = _run(words[0], path, *words[1:])
    assert native.code == python.code
    assert native.out == python.out, "the kernel changes the output"


def _export(path: Path) -> None:
    """The tables are read with the findings of the capture."""
    folder = path.with_name("tables")
    exported = _run("export", path, "-o", folder, "-q", "--jobs", "1")
    if exported.code == 0 and (folder / "exchanges").exists():
        for command in ("check", "stats"):
            _run(command, folder)


def _run(*words: object) -> Result:
    found = kafkasniff(*words)
    assert found.code in CODES, f"{words[0]}: exit code {found.code}: {found.err[-2_000:]}"
    return found


# -- captures with odd values -----------------------------------------------------------------------------------------


def odd_values(struct: Struct, chance: random.Random, depth: int = 0) -> Mapping[str, Any]:
    """Values that the wire can have for all fields: not UTF-8, null, empty, huge, negative, not a number."""
    out: dict[str, Any] = {}
    for field in (*struct.fields, *struct.tagged):
        if field.tag is not None and chance.random() < 0.5:
            continue
        if field.array:
            count = chance.choice((0, 1, 1, 2) if depth < 3 else (0, 1))
            out[field.name] = [_odd(field, chance, depth) for _ in range(count)]
        else:
            out[field.name] = b"" if field.type == "records" else _odd(field, chance, depth)
    return out


def _odd(field: Field, chance: random.Random, depth: int) -> Any:
    if field.struct is not None:
        if field.nullable and not field.array and chance.random() < 0.1:
            return None
        return odd_values(field.struct, chance, depth + 1)
    if field.type == "float64":
        return chance.choice((0.0, float("nan"), float("inf"), -1.5))
    if field.type == "bool":
        return chance.choice((0, 1))
    if field.type == "error":
        return chance.choice(_CODES)
    if field.type in SIZES:
        bits = 8 * SIZES[field.type]
        signed = field.type not in {"uint16", "uint32", "uuid"}
        lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return chance.choice((0, 1, 2, highest, lowest, chance.randint(lowest, highest)))
    value = chance.choice(_TEXTS)
    return b"" if value is None and not field.nullable else value


def odd_capture(seed: int, exchanges: int = 12) -> bytes:
    """Three connections with this many exchanges of any APIs, with odd values."""
    chance = random.Random(seed)
    keys = [key for key in dissectors.api_keys() if dissectors.api(key) is not None]
    talks = []
    for number in range(3):
        talk = Conversation(client=(f"10.0.0.{5 + number}", 50_000 + number), broker=("10.0.0.9", 9092))
        talk.handshake()
        for correlation in range(1, exchanges + 1):
            key = chance.choice(keys)
            api = dissectors.api(key)
            assert api is not None
            version = chance.randint(api.min_version, api.max_version)
            request = odd_values(api.request(version).root, chance)
            response = odd_values(api.response(version).root, chance)
            try:
                sent = request_bytes(key, version, correlation, **request)
                answered = response_bytes(key, version, correlation, **response)
            except (TypeError, ValueError, msgspec.ValidationError):
                continue  # A field that only some values fit.
            talk.send("client", sent)
            talk.send("broker", answered)
        talks.append(talk)
    return pcap_bytes(interleaved(talks))


def seeds() -> list[bytes]:
    captures = [odd_capture(seed) for seed in range(12)]
    captures += [path.read_bytes() for path in capture_files() if path.suffix == ".pcap"]
    captures = [data for data in captures if len(data) < MAX_LENGTH]
    return [
        bytes((number, place)) + data
        for place, data in enumerate(captures)
        for number in (place % len(COMMANDS), place % 7)
    ]
