"""Packets for the stream engine, without Python, in millions of runs; `oracle.py` compares with Python."""

from __future__ import annotations

import argparse
import ctypes
from typing import Final

from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.definition import pairing_program
from kafkasniff.native import kernel
from kafkasniff.native.caller import Program
from tests.fuzz.compiled import Room, compiled, rounds
from tests.fuzz.oracle import case_of, difference

ROOM: Final = 256 << 10


class _Run(ctypes.Structure):
    _fields_ = (
        ("room", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("room_size", "executions", "random", "batches", "packets")),
        *((name, ctypes.c_uint64) for name in ("rows", "messages", "questions")),
        ("programs", ctypes.c_uint64 * 2 * 4),
    )


def _programs() -> list[tuple[Program | None, Program | None]]:
    """The programs of pairing of versions with roles in different places."""
    found = []
    for key, version in ((0, 0), (0, 3), (0, 9), (17, 0)):
        schemas = request_plan(key, version).schema, response_plan(key, version).schema
        made = [None if one is None else pairing_program(one.root, reads_code=key == 17) for one in schemas]
        request, response = (None if one is None else Program(kernel(), one) for one in made)
        found.append((request, response))
    return found


def fuzz(options: argparse.Namespace) -> None:
    library = compiled()
    room = Room(ROOM)
    run = _Run(room.address, ROOM)
    programs = _programs()
    for pair, place in zip(programs, run.programs, strict=True):
        place[:] = [0 if one is None else one.address for one in pair]
    compared = 0
    for _ in rounds(options, run):
        library.kafkasniff_fuzz_streams(ctypes.byref(run))
        case = case_of(1_000_000 * options.seed + compared)
        assert difference(case) is None, case.name
        compared += 1
    print(f"{run.packets:,} packets in {run.batches:,} runs: {run.messages:,} messages,")
    print(f"{run.rows:,} other rows, {run.questions:,} questions; {compared:,} disturbed captures compared")
