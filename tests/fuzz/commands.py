"""Whole commands, with and without the kernel: documented exit codes and the same output. The first byte of an input
selects the command, the second changes among the packets; then comes the capture."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

from tests.cli.console import Result, kafkasniff
from tests.craft.conversation import interleaved
from tests.craft.write import pcap_bytes
from tests.fuzz.corpus import capture_files
from tests.kafka.encode import Encoder
from tests.native.test_lines import NaturalEncoder, versions
from tests.oracle.inspector import by_python
from tests.tables.exports.test_columns import any_exchange, talk

MAX_LENGTH = 40_000
MEGABYTES = 500
DEAR = 50
"""Each input costs as much as this many of other families."""
WORDS = (b"\xff\xfe", b"\0\0\0\x01", b"\xff\xff\xff\xff", b"orders", b"\x7f\xff\xff\xff")

COMMANDS: Final = (
    *((name, "--format", "json") for name in ("check", "stats", "timing", "security")),
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


def odd_capture(seed: int) -> bytes:
    """Three connections with exchanges of any APIs, whose values are any that the wire can have."""
    rng = random.Random(seed)
    kinds = list(versions())
    talks = [talk(number) for number in range(3)]
    for one in talks:
        for number in range(3, 15):
            one.exchange(*any_exchange(*rng.choice(kinds), number, rng, rng.choice((Encoder, NaturalEncoder))))
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
