"""Summaries by the native kernel, of millions of changed bodies; the interpreter of templates checks some of them."""

from __future__ import annotations

import argparse
import ctypes
import random
from typing import Any, Final

from kafkasniff.native import kernel
from kafkasniff.native.calls import SummaryCall
from tests.fuzz.compiled import Room, compiled, rounds
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import Kind
from tests.native.kernel_summaries import TameEncoder, agree_on_summary, kinds_with_tables, table
from tests.native.summary_caller import SummaryCaller, items_of

ROOM: Final = 64 << 10
OUTPUT: Final = 64 << 10
BEHIND: Final = 64
"""Bytes after the output that must stay unchanged."""
NAMES: Final = ("orders", "a b", "__x", "größe", "t" * 90)


class _Seed(ctypes.Structure):
    _fields_ = (("table", ctypes.c_void_p), ("bytes", ctypes.c_char_p), ("size", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        ("call", ctypes.POINTER(SummaryCall)),
        ("seeds", ctypes.POINTER(_Seed)),
        ("seeds_count", ctypes.c_uint64),
        ("room", ctypes.c_void_p),
        ("room_size", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("executions", "random", "seed", "size")),
        ("session", ctypes.c_int64),
        ("ended", ctypes.c_uint64 * 6),
    )


def _inputs(rng: random.Random) -> tuple[list[tuple[Kind, int, bytes]], dict[bytes, str]]:
    """Bodies with their tables, and names of topic ids in them."""
    found, names = [], {}
    for kind in kinds_with_tables():
        assert kind.key is not None
        made = table(kind.key, kind.version, kind.direction)
        assert made is not None
        for encoder in (TameEncoder(Plan(rng)), TameEncoder(Plan(rng, count=5, nulls=False)), Encoder(Plan(rng))):
            data = encoder.body(kind.root)
            if len(data) <= ROOM:
                found.append((kind, made.address, data))
            for topic_id in getattr(encoder, "ids", [])[::2]:
                names[topic_id] = rng.choice(NAMES)
    return found, names


def fuzz(options: argparse.Namespace) -> None:
    """Fuzz; a crash ends the process."""
    rng = random.Random(options.seed)
    inputs, names = _inputs(rng)
    caller = SummaryCaller(kernel())
    caller.name_topics(names)
    seeds = (_Seed * len(inputs))(*[_Seed(address, data, len(data)) for _, address, data in inputs])
    library = compiled()
    function: Any = library.kafkasniff_fuzz_tables if options.programs else library.kafkasniff_fuzz_summaries
    room = Room(ROOM)
    output = ctypes.create_string_buffer(OUTPUT + BEHIND)
    call = SummaryCall()
    call.output, call.output_size = ctypes.addressof(output), OUTPUT
    for _, address, data in inputs:
        caller.summaries(data, items_of([address], [0], [len(data)]))
    call.names = caller.names.address
    run = _Run(ctypes.pointer(call), seeds, len(inputs), room.address, ROOM)
    compared = taken = 0
    for _ in rounds(options, run):
        function(ctypes.byref(run))
        if not options.programs:
            data = room.last(run.size)
            compared += 1
            taken += agree_on_summary(caller, inputs[run.seed][0], data, 0, len(data), names, run.session)
    statuses = ("refused", "taken") if options.programs else ("done", "odd", "no room", "compressed", "misuse", "asks")
    counts = dict(zip(statuses, run.ended, strict=False))
    print(f"{counts}; the interpreter made {compared:,} of them, the kernel took {taken:,} of these")
