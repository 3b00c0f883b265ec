"""`python -m benchmarks.odd_messages`: what messages that are cut or odd cost beside those that are right.

Writes form C twice, as it is and with a share of its messages odd: a third of these are cut, a third have trailing
bytes, a third a null that is not allowed. Prints a table of CPU seconds of whole processes, each the least of its runs:
`decode` as lines and as JSON (`--jobs 1`), and `kafkasniff.read`.
"""

from __future__ import annotations

import argparse
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.small_messages import templates, write

COPIES: Final = 8
"""Copies of each template, so that a share of a few percent can be odd."""

COMMANDS: Final = {
    "decode --format json": ("-m", "kafkasniff", "decode", "-q", "--format", "json", "--jobs", "1"),
    "decode": ("-m", "kafkasniff", "decode", "-q", "--jobs", "1"),
    "kafkasniff.read": ("-c", "import sys, kafkasniff\nfor _ in kafkasniff.read(sys.argv[1]): pass"),
}


def odd_pairs(seed: int, share: float) -> list[tuple[bytes, bytes]]:
    """Requests and responses of form C, of which this share is odd."""
    pairs = templates(seed) * COPIES
    rng = Random(seed)
    messages = [list(pair) for pair in pairs]
    places = [(index, side) for index in range(len(pairs)) for side in (0, 1)]
    for number, (index, side) in enumerate(rng.sample(places, round(share * len(places)))):
        messages[index][side] = odd(messages[index][side], side, number % 3, rng)
    return [(request, response) for request, response in messages]


def odd(frame: bytes, side: int, how: int, rng: Random) -> bytes:
    """A frame (length prefix, message) that is cut, has trailing bytes, or a null instead of a string of its body."""
    message = frame[4:]
    start = 10 + struct.unpack_from(">h", message, 8)[0] if side == 0 else 4
    if how == 0 and len(message) > start + 1:
        message = message[: rng.randrange(start + 1, len(message))]
    elif how == 2 and (place := _string(message, start)) is not None:
        size = struct.unpack_from(">h", message, place)[0]
        message = message[:place] + b"\xff\xff" + message[place + 2 + size :]
    else:
        message += bytes(rng.randrange(1, 8))
    return struct.pack(">i", len(message)) + message


def _string(message: bytes, start: int) -> int | None:
    """Where the first string of a body is whose text is one of form C's."""
    for word in (b"topic-", b"group", b"broker"):
        found = message.find(word, start)
        if found >= start + 2:
            return found - 2
    return None


def seconds(command: Sequence[str], capture: Path) -> float:
    """CPU of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command, str(capture)], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.odd_messages", description=__doc__)
    parser.add_argument("--share", type=float, default=0.05, help="of messages that are odd")
    parser.add_argument("--packets", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkasniff-odd-") as folder:
        captures = {share: Path(folder) / f"{share}.pcap" for share in (0.0, options.share)}
        for share, path in captures.items():
            write(path, 500, options.packets, options.seed, odd_pairs(options.seed, share))
        print("| command | clean, s | odd, s | odd / clean |")
        print("| --- | --- | --- | --- |")
        for name, command in COMMANDS.items():
            runs = [[seconds(command, path) for path in captures.values()] for _ in range(options.runs)]
            clean, odd = (min(column) for column in zip(*runs, strict=True))
            print(f"| {name} | {clean:.2f} | {odd:.2f} | {odd / clean:.2f} |", flush=True)


if __name__ == "__main__":
    main()
