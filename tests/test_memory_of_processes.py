"""Memory of a process with the smallest budget on captures that each grow one thing to exhaust it, measured in a child
process: its highest resident memory (VmHWM), which starts anew with it."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.dataset as ds
import pytest

from tests.capture.files import pcap
from tests.craft import kafka_bytes as kafka

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]

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
_IP_AND_TCP: Final = struct.Struct(">BBHHHBBHII" + "HHIIBBHHH")
_BROKER: Final = (0x0A000009, 9092)


def segment(client: int, seq: int, payload: bytes, *, answer: bool = False) -> bytes:
    """A segment of a client, or of the broker to it."""
    there = (0x0B000000 + (client >> 4), 40_000 + (client & 15))
    (src, sport), (dst, dport) = (_BROKER, there) if answer else (there, _BROKER)
    head = (0x45, 0, 40 + len(payload), 1, 0, 64, 6, 0, src, dst, sport, dport, seq, 1, 0x50, 0x10, 65_535, 0, 0)
    return _IP_AND_TCP.pack(*head) + payload


def stream(data: bytes, seq: int = 1, size: int = 32_000, *, answer: bool = False) -> Iterator[bytes]:
    """The bytes of one connection in large segments."""
    return (segment(1, seq + at, data[at : at + size], answer=answer) for at in range(0, len(data), size))


def capture(*parts: Iterable[bytes]) -> bytes:
    return pcap((one for part in parts for one in part), link=101, step=10_000)


REQUEST: Final = kafka.api_versions_request(1, 0)
RESPONSE: Final = kafka.api_versions_response(1, 0)
FIRST: Final = 1 + len(REQUEST)


def begun(clients: int) -> list[bytes]:
    """A Kafka request on each connection."""
    return [segment(client, 1, REQUEST) for client in range(clients)]


def held_bytes() -> bytes:
    """Segments of one byte after holes."""
    return capture(begun(550), (segment(at % 550, FIRST + 2 + 2 * (at // 550), b"\1") for at in range(44_000)))


def unfinished_frames() -> bytes:
    """Frames of 90 MB of which half a megabyte is present."""
    data = (90 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook" + bytes(540_000)
    places = range(0, len(data), 60_000)
    rest = (segment(client, FIRST + at, data[at : at + 60_000]) for at in places for client in range(40))
    return capture(begun(40), rest)


def open_requests() -> bytes:
    """Unanswered requests with many elements."""
    one = [kafka.metadata_request(number, [""] * 5_000) for number in range(2, 52)]
    return capture(stream(REQUEST + b"".join(one)))


def connections() -> bytes:
    return capture(segment(client, 1, b"\0") for client in range(6_000))


def attempts() -> bytes:
    """SYNs that nobody answers, each of another client."""
    ends = ((0x0B000000 + number, _BROKER[0], 40_000, _BROKER[1], number) for number in range(ATTEMPTS))
    head, rest = (0x45, 0, 40, 1, 0, 64, 6, 0), (0, 0x50, 0x02, 0, 0, 0)
    return capture(_IP_AND_TCP.pack(*head, *each, *rest) for each in ends)


def expanding() -> bytes:
    """Messages with as many records as their bytes allow."""
    one = kafka.record_batch([kafka.record(number, None, b"v") for number in range(60_000)], compressed=True)
    return capture(stream(REQUEST + b"".join(kafka.produce_request(2 + at, "orders", one) for at in range(6))))


def fetch_sessions() -> bytes:
    """Sessions of a thousand topics each, opened one after the other."""
    sent, answered = bytearray(REQUEST), bytearray(RESPONSE)
    for number in range(1, 30):
        topics = [(number.to_bytes(8) + place.to_bytes(8), [0]) for place in range(1_000)]
        sent += kafka.fetch_request_by_id(1 + number, topics)
        answered += kafka.fetch_response_by_id(1 + number, session=number)
    return capture(stream(bytes(sent)), stream(bytes(answered), answer=True))


def exchanges() -> bytes:
    """Many small requests with their responses."""
    parts = [stream(REQUEST), stream(RESPONSE, answer=True)]
    sent, answered = FIRST, 1 + len(RESPONSE)
    for first in range(2, 20_002, 500):
        asked = b"".join(kafka.produce_request(number, "t", b"") for number in range(first, first + 500))
        answers = b"".join(kafka.produce_response(number, "t", 7) for number in range(first, first + 500))
        parts += [stream(asked, sent), stream(answers, answered, answer=True)]
        sent, answered = sent + len(asked), answered + len(answers)
    return capture(*parts)


def one_message(value: int, records: int, batches: int) -> Callable[[], bytes]:
    """A Produce request whose batches are small on the wire."""

    def make() -> bytes:
        parts = [kafka.record(number, None, bytes(value)) for number in range(records)]
        batch = kafka.record_batch(parts, compressed=True)
        return capture(stream(REQUEST + kafka.produce_request(2, "orders", batch * batches)))

    return make


class Outcome(NamedTuple):
    """How a child ended."""

    peak_mib: float
    place: int
    """Position of the wanted bytes in its output; -1 without them."""


def run(folder: Path, data: bytes, command: str, *arguments: str, find: bytes = b"") -> Outcome:
    """Run a command on a capture in a child process."""
    path = folder / "grown.pcap"
    path.write_bytes(data)
    with (folder / "out").open("w+b") as out:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(folder / "peak"), *command.split(), str(path), *arguments],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        # 1: nothing is shown of connections without messages.
        assert done.returncode in (0, 1), done.stderr
        out.write(b"\n")
        out.flush()
        with mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ) as printed:
            place = printed.find(find)
    return Outcome(int((folder / "peak").read_text()) / 1024, place)


ATTEMPTS: Final = 20_000
EACH_BYTES: Final = 8_000
"""Memory of an attempt to connect, with everything that a command makes of it, while there are few enough to keep
the facts of all of them: 1 kB of it in the kernel."""
READERS: Final = (
    *("decode", "check", "stats", "security", "timing", "audit --target 4.0", "analyze latency"),
    *("decode --json", "export --jobs 1 -o OUT", "report -o OUT"),
)


@pytest.mark.parametrize("command", READERS)
def test_attempts(command: str, tmp_path: Path) -> None:
    """With the default budget, of which this is a small part."""
    found = run(tmp_path, attempts(), command.replace("OUT", str(tmp_path / "into")))
    assert found.peak_mib < BESIDE_MIB + ATTEMPTS * EACH_BYTES / (1 << 20)


LITTLE: Final = ("--memory", f"{BUDGET_MIB}M")


@pytest.mark.parametrize(
    ("make", "drops"),
    [
        *((held_bytes, False), (unfinished_frames, True), (open_requests, False), (connections, True)),
        *((expanding, False), (fetch_sessions, False), (exchanges, False)),
    ],
)
def test_decode(make: Callable[[], bytes], drops: bool, tmp_path: Path) -> None:
    # With a filter, requests are kept until their responses arrive.
    arguments = ("--format", "json", "--jobs", "1", "--filter", 'api != "Heartbeat"', *LITTLE)
    found = run(tmp_path, make(), "decode", *arguments, find=b'"kind":"memory-bound"')
    assert found.peak_mib < BUDGET_MIB + BESIDE_MIB
    assert (found.place >= 0) == drops


MESSAGES: dict[str, tuple[Callable[[], bytes], bytes]] = {
    "eight long values": (one_message(4 << 20, 1, 8), b"decompression-bound"),
    "many records": (one_message(0, 40_000, 4), b"record-bound"),
    "many values, in JSON six times as long": (one_message(1_000, 3_000, 10), b"decompression-bound"),
}
"""What one message may be, and its problem with a small budget. Values within the bounds are still shown."""
OUTPUTS = (["--format", "json"], ["--format", "json", "--bytes", "hex"], ["-vv"], ["--format", "json", "--jobs", "2"])


@pytest.mark.parametrize(("kind", "output"), [*zip(MESSAGES, OUTPUTS, strict=False), ("many records", OUTPUTS[3])])
def test_one_message(kind: str, output: list[str], tmp_path: Path) -> None:
    """One message, and everything made from it, stays within a part of the budget."""
    make, problem = MESSAGES[kind]
    jobs = [] if "--jobs" in output else ["--jobs", "1"]
    found = run(tmp_path, make(), "decode", *output, *jobs, *LITTLE, find=problem)
    assert found.peak_mib < BUDGET_MIB + BESIDE_MIB
    assert found.place >= 0


def test_one_message_whole(tmp_path: Path) -> None:
    """The default budget cuts nothing of these messages."""
    make, problem = MESSAGES["many records"]
    found = run(tmp_path, make(), "decode", "--format", "json", "--jobs", "1", find=problem)
    assert found.peak_mib < 256
    assert found.place == -1


@pytest.mark.parametrize(
    ("make", "drops"), [(open_requests, True), (connections, True), (exchanges, False), (expanding, False)]
)
def test_export(make: Callable[[], bytes], drops: bool, tmp_path: Path) -> None:
    into = tmp_path / "tables"
    found = run(tmp_path, make(), "export", "--jobs", "1", "-o", str(into), *LITTLE)
    assert found.peak_mib < EXPORT_TIMES * BUDGET_MIB + BESIDE_MIB
    problems = into / "problems"
    kinds = ds.dataset(problems, format="parquet").to_table(columns=["kind"]) if problems.is_dir() else None
    assert (kinds is not None and "memory-bound" in kinds.column("kind").to_pylist()) == drops
