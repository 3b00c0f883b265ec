"""Records as columns by the native kernel, on millions of changed inputs; Python's readers check some of them."""

from __future__ import annotations

import argparse
import ctypes
import random
from typing import Final

from kafkasniff.native.columns import Columns
from tests.fuzz import records
from tests.fuzz.compiled import Room, compiled, rounds
from tests.kafka import records_craft as craft

ROOM: Final = 16 << 10
OUTPUT: Final = 8 << 20
"""More than three inputs need as columns: a record of 7 bytes takes some 40."""
MARKS: Final = b"\x05task-"
HEADERS: Final = b"\x0btraceparent"


class _Seed(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_uint64), ("magic", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        ("call", ctypes.POINTER(Columns)),
        ("seeds", ctypes.POINTER(_Seed)),
        ("seeds_count", ctypes.c_uint64),
        ("room", ctypes.c_void_p),
        ("room_size", ctypes.c_uint64),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("executions", "random", "seed", "size")),
        *((name, ctypes.c_uint64) for name in ("taken", "refused", "done", "ended")),
    )


def _inputs(rng: random.Random) -> list[tuple[int, int, bytes]]:
    """Records of magic 2, and sets of messages, each with its magic and their number."""
    found = []
    texts: list[bytes | None] = [None, b"", b"key", b"task-1", bytes(130), "größe".encode() * 9]
    names = ("h", "", "traceparent", "größe")
    for count in (0, 1, 2, 5, 20, 60):
        for _ in range(8):
            made = [
                craft.Record(
                    rng.choice([at, -1, 1 << 20]),
                    rng.choice([at, -1, 1 << 40]),
                    rng.choice(texts),
                    rng.choice(texts),
                    tuple((rng.choice(names), rng.choice(texts)) for _ in range(rng.choice([0, 0, 1, 3]))),
                )
                for at in range(count)
            ]
            found.append((2, count, b"".join(map(craft.record, made))))
        for magic in (0, 1):
            made = [
                craft.message(at, rng.choice(texts), rng.choice(texts), magic=magic, attributes=rng.choice([0, 0, 8]))
                for at in range(count)
            ]
            found.append((magic, count, b"".join(made)))
    return [one for one in found if len(one[2]) <= ROOM]


def fuzz(options: argparse.Namespace) -> None:
    """Fuzz; a crash ends the process."""
    inputs = _inputs(random.Random(options.seed))
    seeds = (_Seed * len(inputs))(*[_Seed(data, len(data), magic) for magic, _, data in inputs])
    library = compiled()
    room, output = Room(ROOM), ctypes.create_string_buffer(OUTPUT)
    call = Columns()
    call.marks, call.marks_size, call.headers, call.headers_size = MARKS, len(MARKS), HEADERS, len(HEADERS)
    run = _Run(ctypes.pointer(call), seeds, len(inputs), room.address, ROOM, ctypes.addressof(output), OUTPUT)
    compared = 0
    for _ in rounds(options, run):
        library.kafkasniff_fuzz_columns(ctypes.byref(run))
        compared += 1
        magic, count, _ = inputs[run.seed]
        head = bytes((records.MADE, count)) if magic == 2 else b"\0"
        records.one_input(head + room.last(run.size))
    print(f"of {run.taken + run.refused:,} batches {run.taken:,} taken,")
    print(f"columns written {run.done:,} times, too little room {run.ended:,} times")
    print(f"Python read {compared:,} of the inputs")
