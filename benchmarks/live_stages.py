"""What the CPU time of `kafkasniff live` goes to, stage by stage: `python -m benchmarks.live_stages C.pcap`, README.md.

The packets of a capture are laid out as the kernel lays them out in a ring (TPACKET_V3), and `live` reads that ring as
fast as it can. So no right is needed, nothing is sent, and CPU time is that of the program alone. Nothing is ever
skipped: the ring says that it is empty.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import mmap
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from benchmarks.pcap_files import RECORD_HEADER, packet_places
from benchmarks.tables import table
from kafkasniff.capture.formats.raw import Interface
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.live import live
from kafkasniff.capture.live.frames import BLOCK_SIZES, HEADER, STATUS_AT, STATUS_USER, Ring
from kafkasniff.capture.live.interface_socket import InterfaceSocket
from kafkasniff.cli.environment import Environment
from kafkasniff.cli.main import run as command
from kafkasniff.cli.running.pipeline import BatchParts, Pipeline
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher

BLOCK: Final = BLOCK_SIZES[0]
FIRST_AT: Final = 48
"""Offset of a block's first packet."""
LINK_AT: Final = 82
"""Offset of a packet's bytes from its header: with them, its IP header is aligned."""
ALIGNMENT: Final = 16

STAGES: Final[dict[str, tuple[tuple[type, str], ...]]] = {
    "ring blocks to packets": ((live.LiveSource, "_taken"),),
    "packets to PacketBatch": ((PacketDecoder, "decode"),),
    "parts of batches": ((BatchParts, "of"),),
    "inspector": ((Inspector, "feed_slices"), (Inspector, "feed_lines"), (Inspector, "close_slices")),
    "enricher": ((Enricher, "feed"),),
    "sink": ((Pipeline, "_take"),),
}


class Clock:
    """CPU time of this thread by stage; that of a stage within another one is taken off the outer one."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._within: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._turn()
        self._within.append(name)
        try:
            yield
        finally:
            self._turn()
            self._within.pop()

    def _turn(self) -> None:
        now = time.thread_time()
        if self._within:
            self.seconds[self._within[-1]] += now - self._since
        self._since = now

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, or each step of the same generator, on this clock."""

        @functools.wraps(work)
        def call(*arguments: Any, **options: Any) -> Any:
            with self.stage(name):
                made = work(*arguments, **options)
            return self._steps(name, made) if isinstance(made, Iterator) else made

        return call

    def _steps(self, name: str, made: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self.stage(name):
                try:
                    step = next(made)
                except StopIteration:
                    return
            yield step


class RecordedRing(Ring):
    """A ring that holds a capture; all its blocks have been handed over."""

    def __init__(self, capture: bytes, size: int = BLOCK) -> None:
        self._size = size
        self._next = 0
        blocks = list(_blocks(capture, size))
        self._count = len(blocks)
        self._memory = mmap.mmap(-1, max(1, len(blocks)) * size)
        for number, (count, block) in enumerate(blocks):
            at = number * size
            self._memory[at : at + len(block)] = block
            struct.pack_into("=4I", self._memory, at + STATUS_AT, STATUS_USER, count, FIRST_AT, len(block))

    def backlog(self) -> float:
        """None: nothing may be skipped."""
        return 0.0

    def statistics(self) -> tuple[int, int]:
        """Nothing more than before, and no losses."""
        return 0, 0


def _blocks(capture: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Packets of a capture of Ethernet packets as (number, bytes) of the kernel's blocks."""
    places, lengths = packet_places(capture)
    times = np.ndarray((len(capture) - 7,), "V8", capture, strides=(1,))[places].view("<u4").reshape(-1, 2)
    places = places + RECORD_HEADER
    strides = (LINK_AT + lengths + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    first = 0
    while first < len(places):
        ends = FIRST_AT + np.cumsum(strides[first : first + size // LINK_AT])
        count = max(1, int(np.searchsorted(ends, size, side="right")))
        yield count, _block(capture, places, lengths, times, strides, range(first, first + count))
        first += count


def _block(capture: bytes, places: Any, lengths: Any, times: Any, strides: Any, rows: range) -> bytes:  # noqa: PLR0917
    out = io.BytesIO()
    out.write(bytes(FIRST_AT))
    for row in rows:
        length, stride = int(lengths[row]), int(strides[row])
        head = np.zeros(1, HEADER)
        head["seconds"], head["nanoseconds"] = times[row]
        head["captured"] = head["wire"] = length
        head["link_at"] = LINK_AT
        head["protocol"] = 0x0800
        head["hardware"] = 1
        whole = bytearray(head.tobytes().ljust(LINK_AT, b"\0"))
        struct.pack_into("=I", whole, 0, stride)
        whole += capture[places[row] : places[row] + length]
        out.write(whole.ljust(stride, b"\0"))
    return out.getvalue()


class RecordedInterface(InterfaceSocket):
    """An interface whose ring holds a capture; the interface is gone when all of it was taken."""

    def __init__(self, ring: RecordedRing, name: str, capture: int, **_options: Any) -> None:
        self.name, self.error = name, None
        self.packets = self._received = self._dropped = 0
        self._reported = (0, 0)
        self._capture, self._cooked = capture, False
        self.decoded = self.written = Interface(1, capture, name)
        self._ring = ring
        # Readable at any time: to wait for it takes no time.
        self._wake = os.eventfd(1)

    def fileno(self) -> int:
        """Always readable."""
        return self._wake

    def resume(self) -> bool:
        """It is not back."""
        return False

    def read_frames(self) -> Any:
        """The next block's packets; the interface has an error after the last one."""
        found = super().read_frames()
        if found is None:
            self.error = "all of it was taken"
        return found

    def close(self) -> None:
        """Give the memory back."""
        self._ring.close()
        os.close(self._wake)


def measure(capture: bytes, form: str, output: str, options: Sequence[str] = ()) -> tuple[dict[str, float], int]:
    """CPU seconds by stage, and packets."""
    ring = RecordedRing(capture)
    made: list[RecordedInterface] = []

    def open_one(name: str, number: int, **given: Any) -> RecordedInterface:
        made.append(RecordedInterface(ring, name, number, **given))
        return made[-1]

    clock = Clock()
    with contextlib.ExitStack() as patched:
        patched.enter_context(mock.patch.object(live, "_backend", return_value=open_one))
        for name, places in STAGES.items():
            for owner, attribute in places:
                work = clock.timed(name, getattr(owner, attribute))
                patched.enter_context(mock.patch.object(owner, attribute, work))
        begin = time.thread_time()
        words = ["live", "-i", "lo", "--quiet", "--format", form, "--output", output, *options]
        code = run_command(words)
        total = time.thread_time() - begin
    if len(made) != 1 or not made[0].packets:
        raise SystemExit(f"live took no packets (exit code {code})")
    seconds = {name: clock.seconds[name] for name in STAGES}
    seconds["start, end, and the rest"] = total - sum(seconds.values())
    return seconds, made[0].packets


def run_command(words: Sequence[str]) -> int:
    """The command in this process; its exit code."""
    # As `main` of the command line has it.
    gc.set_threshold(400_000, 50, 100)
    environment = Environment.of_process()
    environment.owns_process = False  # there are no rights to give up, and others may need this process's
    with environment.interrupts.installed():
        return command(list(words), environment)


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.live_stages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("capture", type=Path, help="a pcap of Ethernet packets, such as form C")
    made.add_argument("--most-mb", type=float, default=100, help="only its beginning [100]")
    made.add_argument("--format", choices=("text", "json"), default="text", help="[text]")
    made.add_argument("--option", action="append", default=[], help="passed to `live`, as --option=--no-records")
    options = made.parse_args(arguments)
    with options.capture.open("rb") as file:
        capture = file.read(int(options.most_mb * 1e6))
    seconds, packets = measure(capture, options.format, os.devnull, options.option)
    total = sum(seconds.values())
    rows = [[name, f"{took / packets * 1e6:.2f}", f"{took / total:.1%}"] for name, took in seconds.items()]
    print(table([f"{packets:,} packets, {options.format}", "µs a packet", "share"], rows))
    print(f"in all {total / packets * 1e6:.2f} µs a packet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
