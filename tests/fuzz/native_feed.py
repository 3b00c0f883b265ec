"""Packets of connections in step, in the native kernel, in millions of batches; `feed.py` compares some with Python."""

from __future__ import annotations

import argparse
import ctypes
import random
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from kafkasniff.engine.in_step_messages import kind_of
from kafkasniff.native.feed import KEYS, VERSIONS
from tests.fuzz import feed
from tests.fuzz.compiled import Room, compiled
from tests.fuzz.mutate import inputs

ROOM: Final = 256 << 10


class _Run(ctypes.Structure):
    _fields_ = (
        ("kinds", ctypes.c_void_p),
        ("codes", ctypes.c_void_p),
        ("codes_count", ctypes.c_uint64),
        ("room", ctypes.c_void_p),
        ("room_size", ctypes.c_uint64),
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("executions", "random", "batches", "packets", "messages", "left", "back", "pieces"),
                *("holes", "early", "repeated", "filled", "begun", "judged"),
            )
        ),
    )


def fuzz(options: argparse.Namespace) -> int:
    """Fuzz; a crash ends the process."""
    kinds = np.array([kind_of(code) for code in range(KEYS * VERSIONS)], np.uint8)
    codes = np.flatnonzero(kinds).astype(np.uint16)
    with tempfile.TemporaryDirectory(prefix="kafkasniff-fuzz-") as folder:
        library = compiled(Path(folder))
    room = Room(ROOM)
    run = _Run(kinds.ctypes.data, codes.ctypes.data, len(codes), room.address, ROOM)
    run.random = options.seed * 2 + 1
    rng = random.Random(options.seed)
    seeds = feed.seeds()
    done = compared = 0
    began, cpu = time.monotonic(), time.process_time()
    while done < options.executions and (not options.seconds or time.monotonic() - began < options.seconds):
        run.executions = min(options.every, options.executions - done)
        library.kafkasniff_fuzz_feed(ctypes.byref(run))
        done = run.packets
        for data in inputs(seeds, feed.WORDS, count=1, seed=rng.getrandbits(32), max_length=feed.MAX_LENGTH):
            feed.one_input(data)
            compared += 1
    seconds = time.process_time() - cpu
    print(f"{run.packets:,} packets in {run.batches:,} batches, {seconds:,.0f} s of CPU: {run.messages:,} messages,")
    print(
        f"{run.pieces:,} of them in pieces; {run.left:,} packets left to Python, {run.back:,} connections handed back"
    )
    print(
        f"{run.holes:,} of them with a hole, {run.early:,} with early responses; "
        f"{run.filled:,} streams had a hole that was filled, {run.repeated:,} repeats"
    )
    print(f"{run.begun:,} connections began in the kernel, {run.judged:,} with a request")
    print(f"{compared:,} inputs compared with Python alone")
    return 0
