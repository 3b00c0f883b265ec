"""Memory of a process with the smallest budget on captures made to exhaust it, measured in a child process.

Each capture grows one thing: segments after holes, unfinished frames, open requests, connections, messages that expand,
fetch sessions, rows. The measure is the child's highest resident memory (VmHWM), which starts anew with it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.dataset as ds
import pytest

from tests.choice import in_turn, one_in, only_with_all
from tests.craft import kafka_bytes as kafka

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")

BUDGET_MIB: Final = 16
"""Less than `--memory` allows, so that small captures exceed it; the child lowers the minimum."""
BESIDE_MIB: Final = 144
"""What a process takes besides its budget: the interpreter with numpy and Arrow, definitions, one batch of
packets with its columns, and the messages of one slice with their output."""
EXPORT_TIMES: Final = 4
"""How often an export may have what is open at its end: as objects, dumped, in a checkpoint, and read back."""

_CHILD: Final = """
import atexit, re, runpy, sys

def report():
    with open("/proc/self/status") as status:
        found = re.search(r"VmHWM:\\s+(\\d+) kB", status.read())
    with open(peak, "w") as file:
        file.write(found[1])

peak = sys.argv[1]
import kafkasniff.runtime.memory_limits
kafkasniff.runtime.memory_limits.MIN_MEMORY = 1 << 20
atexit.register(report)
sys.argv = ["kafkasniff", *sys.argv[2:]]
runpy.run_module("kafkasniff", run_name="__main__", alter_sys=True)
"""

_PACKET: Final = np.dtype(
    [
        ("seconds", "<u4"),
        ("micros", "<u4"),
        ("captured", "<u4"),
        ("wire", "<u4"),
        ("macs", "S12"),
        ("ether_type", ">u2"),
        ("version", "u1"),
        ("service", "u1"),
        ("total", ">u2"),
        ("ident", ">u2"),
        ("fragment", ">u2"),
        ("lives", "u1"),
        ("protocol", "u1"),
        ("ip_sum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
        ("sport", ">u2"),
        ("dport", ">u2"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ("offset", "u1"),
        ("flags", "u1"),
        ("window", ">u2"),
        ("tcp_sum", ">u2"),
        ("urgent", ">u2"),
    ]
)
_BROKER: Final = (0x0A000009, 9092)
_HEADER: Final = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)


class Segments(NamedTuple):
    """Segments of equal size, as arrays: a million of them is made at once."""

    client: np.ndarray
    """Number of the connection."""
    seq: np.ndarray
    payload: np.ndarray
    """A row of bytes for each."""
    answer: bool = False


def capture(*parts: Segments) -> bytes:
    """A pcap with these segments, chunk by chunk."""
    out = [_HEADER]
    ident = 0
    for part in parts:
        count, size = part.payload.shape
        rows = np.zeros(count, np.dtype([("head", _PACKET), ("payload", "u1", (size,))]))
        head = rows["head"]
        numbers = np.arange(ident, ident + count)
        ident += count
        head["seconds"], head["micros"] = 1_781_000_000 + numbers // 100_000, numbers % 100_000
        head["captured"] = head["wire"] = 54 + size
        head["ether_type"], head["version"], head["total"], head["lives"], head["protocol"] = (
            0x800,
            0x45,
            40 + size,
            64,
            6,
        )
        head["ident"], head["offset"], head["flags"], head["window"] = numbers & 0xFFFF, 0x50, 0x10, 65_535
        src, sport = 0x0B000000 + (part.client >> 4), 40_000 + (part.client & 15)
        ends = (("dst", "dport"), ("src", "sport")) if part.answer else (("src", "sport"), ("dst", "dport"))
        head[ends[0][0]], head[ends[0][1]] = src, sport
        head[ends[1][0]], head[ends[1][1]] = _BROKER
        head["seq"], head["ack"] = part.seq, 1
        rows["payload"] = part.payload
        out.append(rows.tobytes())
    return b"".join(out)


def same(payload: bytes, clients: np.ndarray, seq: np.ndarray | int) -> Segments:
    """The same bytes on each of these connections."""
    data = np.broadcast_to(np.frombuffer(payload, np.uint8), (len(clients), len(payload)))
    return Segments(clients, np.broadcast_to(seq, clients.shape), data)


def stream(data: bytes, client: int = 1, seq: int = 1, size: int = 32_000, *, answer: bool = False) -> list[Segments]:
    """The bytes of one connection in large segments."""
    whole = len(data) // size * size
    parts = []
    if whole:
        places = seq + np.arange(0, whole, size)
        payload = np.frombuffer(data[:whole], np.uint8).reshape(-1, size)
        parts.append(Segments(np.full(len(places), client), places, payload, answer))
    if len(data) > whole:
        rest = np.frombuffer(data[whole:], np.uint8)[None, :]
        parts.append(Segments(np.array([client]), np.array([seq + whole]), rest, answer))
    return parts


REQUEST: Final = kafka.api_versions_request(1, 0)
FIRST: Final = 1 + len(REQUEST)


def held_bytes() -> bytes:
    """Segments of one byte after holes."""
    clients = np.arange(550)
    numbers = np.arange(44_000)
    held = Segments(numbers % 550, FIRST + 2 + 2 * (numbers // 550), np.ones((len(numbers), 1), np.uint8))
    return capture(same(REQUEST, clients, 1), held)


def unfinished_frames() -> bytes:
    """Frames of 90 MB of which half a megabyte is present."""
    clients = np.arange(40)
    head = (90 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook" + bytes(60_000)
    rest = [same(bytes(60_000), clients, FIRST + len(head) + at * 60_000) for at in range(8)]
    return capture(same(REQUEST, clients, 1), same(head, clients, FIRST), *rest)


def open_requests() -> bytes:
    """Unanswered requests with many elements."""
    one = [kafka.metadata_request(number, [""] * 5_000) for number in range(2, 52)]
    return capture(*stream(REQUEST + b"".join(one)))


def connections() -> bytes:
    """Connections of one byte each."""
    return capture(same(b"\0", np.arange(6_000), 1))


def expanding() -> bytes:
    """Messages with as many records as their bytes allow."""
    one = kafka.record_batch([kafka.record(number, None, b"v") for number in range(60_000)], compressed=True)
    return capture(*stream(REQUEST + b"".join(kafka.produce_request(2 + at, "orders", one) for at in range(6))))


def fetch_sessions() -> bytes:
    """Sessions of a thousand topics each, opened one after the other."""
    sent, answered = bytearray(REQUEST), bytearray(kafka.api_versions_response(1, 0))
    for number in range(1, 30):
        topics = [(number.to_bytes(8) + place.to_bytes(8), [0]) for place in range(1_000)]
        sent += kafka.fetch_request_by_id(1 + number, topics)
        answered += kafka.fetch_response_by_id(1 + number, session=number)
    return capture(*stream(bytes(sent)), *stream(bytes(answered), answer=True))


def exchanges() -> bytes:
    """Many small requests with their responses."""
    parts = stream(REQUEST) + stream(kafka.api_versions_response(1, 0), answer=True)
    sent, answered = FIRST, 1 + len(kafka.api_versions_response(1, 0))
    for first in range(2, 20_002, 500):
        asked = b"".join(kafka.produce_request(number, "t", b"") for number in range(first, first + 500))
        answers = b"".join(kafka.produce_response(number, "t", 7) for number in range(first, first + 500))
        parts += [*stream(asked, seq=sent), *stream(answers, seq=answered, answer=True)]
        sent, answered = sent + len(asked), answered + len(answers)
    return capture(*parts)


class Outcome(NamedTuple):
    """How a child ended."""

    code: int
    peak_mib: float
    err: str


def run(folder: Path, *arguments: str) -> Outcome:
    """Run a command in a child process; its standard output goes to `out` in the folder."""
    with (folder / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(folder / "peak"), *arguments],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return Outcome(done.returncode, int((folder / "peak").read_text()) / 1024, done.stderr)


KINDS: dict[str, tuple[Callable[[], bytes], bool]] = {
    "held bytes": (held_bytes, True),
    "unfinished frames": (unfinished_frames, True),
    "open requests": (open_requests, True),
    "connections": (connections, True),
    "expanding": (expanding, True),
    "fetch sessions": (fetch_sessions, True),
    "exchanges": (exchanges, False),
}
"""What grows, and whether it has to be bounded by dropping something."""


BOUNDED_IN_EXPORTS: Final = ("unfinished frames", "open requests", "connections", "expanding")
"""Kinds for which `test_export` shows that the inspector's bound applies."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=only_with_all) if kind in BOUNDED_IN_EXPORTS else kind for kind in KINDS]
)
def test_decode(kind: str, tmp_path: Path) -> None:
    make, drops = KINDS[kind]
    path = tmp_path / "grown.pcap"
    path.write_bytes(make())
    # With a filter, requests are kept until their responses arrive.
    arguments = ("--format", "json", "--jobs", "1", "--filter", 'api != "Heartbeat"', "--memory", f"{BUDGET_MIB}M")
    found = run(tmp_path, "decode", *arguments, str(path))
    assert found.code == 0, found.err
    assert found.peak_mib < BUDGET_MIB + BESIDE_MIB
    assert (b'"kind":"memory-bound"' in (tmp_path / "out").read_bytes()) == drops


def one_message(value: int, records: int, batches: int) -> bytes:
    """A Produce request whose batches are small on the wire."""
    parts = [kafka.record(number, None, bytes(value)) for number in range(records)]
    batch = kafka.record_batch(parts, compressed=True)
    return capture(*stream(REQUEST + kafka.produce_request(2, "orders", batch * batches)))


def long_values() -> bytes:
    """Values of zeros: eight of 4 MiB in one message."""
    return one_message(4 << 20, 1, 8)


def many_records() -> bytes:
    """One message with 160,000 records, more than the budget allows."""
    return one_message(0, 40_000, 4)


def many_values() -> bytes:
    """One message with 30,000 values of a kilobyte, which are six times as long in JSON."""
    return one_message(1_000, 3_000, 10)


MESSAGES: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "long values": (long_values, "decompression-bound"),
    "many records": (many_records, "record-bound"),
    "many values": (many_values, "decompression-bound"),
}
"""What one message may be, and its problem with a small budget. Values within the bounds are still shown."""
OUTPUTS: dict[str, tuple[str, ...]] = {
    "json": ("--format", "json"),
    "hex": ("--format", "json", "--bytes", "hex"),
    "text": ("-vv",),
    "hashed": ("--format", "json", "--hash-payload"),
    "two jobs": ("--format", "json", "--jobs", "2"),
}


@pytest.mark.parametrize(("kind", "output"), in_turn(list(MESSAGES), OUTPUTS, 3))
def test_one_message(kind: str, output: str, tmp_path: Path) -> None:
    """One message, and everything made from it, stays within a part of the budget."""
    make, problem = MESSAGES[kind]
    path = tmp_path / "one.pcap"
    path.write_bytes(make())
    options = OUTPUTS[output] if "--jobs" in OUTPUTS[output] else (*OUTPUTS[output], "--jobs", "1")
    found = run(tmp_path, "decode", *options, "--memory", f"{BUDGET_MIB}M", str(path))
    assert found.code == 0, found.err
    assert found.peak_mib < BUDGET_MIB + BESIDE_MIB
    # The problem precedes the large part of a JSON line, and follows the line in text.
    with (tmp_path / "out").open("rb") as out:
        assert problem.encode() in out.read(1 << 20)


@pytest.mark.parametrize("kind", one_in(3, list(MESSAGES), 1))
def test_one_message_whole(kind: str, tmp_path: Path) -> None:
    """The default budget cuts nothing of these messages."""
    path = tmp_path / "one.pcap"
    path.write_bytes(MESSAGES[kind][0]())
    found = run(tmp_path, "decode", "--format", "json", "--jobs", "1", str(path))
    assert found.code == 0, found.err
    assert found.peak_mib < 256
    with (tmp_path / "out").open("rb") as out:
        assert b'"problems":[]' in out.read(4096)


@pytest.mark.parametrize(
    ("kind", "drops"),
    [
        ("open requests", True),
        ("connections", True),
        ("exchanges", False),
        ("unfinished frames", True),
        # The bound is the inspector's, as in `decode`; the other outputs show that it applies.
        pytest.param("held bytes", True, marks=only_with_all),
        ("expanding", False),
    ],
)
def test_export(kind: str, drops: bool, tmp_path: Path) -> None:
    path, into = tmp_path / "grown.pcap", tmp_path / "tables"
    path.write_bytes(KINDS[kind][0]())
    found = run(tmp_path, "export", "--jobs", "1", "--memory", f"{BUDGET_MIB}M", str(path), "-o", str(into))
    assert found.code == 0, found.err
    assert found.peak_mib < EXPORT_TIMES * BUDGET_MIB + BESIDE_MIB
    problems = into / "problems"
    kinds = ds.dataset(problems, format="parquet").to_table(columns=["kind"]) if problems.is_dir() else None
    assert (kinds is not None and "memory-bound" in kinds.column("kind").to_pylist()) == drops
