"""Lines of messages by the native kernel, on millions of changed batches. `tests.native` compares them with Python."""

from __future__ import annotations

import argparse
import ctypes
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.roles import EVERY_BODY, ExchangeKinds
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import reads_nothing, teaches
from kafkasniff.kafka.connection.events import Detail
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Direction, Endpoint
from kafkasniff.native import kernel
from kafkasniff.native.columns import ExchangeReader
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, NONE, VERSIONS
from kafkasniff.native.lines import LineBatch
from kafkasniff.native.text_lines import TABLE, SummaryTable
from kafkasniff.redact.payload import SHOWN
from kafkasniff.sinks.native_lines import NativeLines
from kafkasniff.sinks.native_text import NativeTrees
from kafkasniff.sinks.summaries.compiled import table_of
from kafkasniff.text.printable import PLAIN
from tests.conftest import shipped_captures
from tests.engine.shown import shown
from tests.engine.talks import packets_of, talks
from tests.fuzz.compiled import Room, compiled, rounds
from tests.native.test_lines import versions
from tests.test_line_names import WORDS

ROOM: Final = 16 << 10
MOST_OF_ONE: Final = 150
"""Messages of one batch."""

_Row = ctypes.c_uint8 * MESSAGE.itemsize


class _Seed(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_uint64), ("message", _Row))


class _Run(ctypes.Structure):
    _fields_ = (
        *(("call", ctypes.c_void_p), ("seeds", ctypes.POINTER(_Seed)), ("seeds_count", ctypes.c_uint64)),
        *(("room", ctypes.c_void_p), ("room_size", ctypes.c_uint64)),
        *((name, ctypes.c_uint64) for name in ("executions", "random", "written", "left", "ended", "texts")),
        *(("tables", ctypes.c_void_p), ("exchanges", ctypes.c_void_p), ("rows", ctypes.c_uint64)),
        *(("style", ctypes.c_void_p), ("trees", ctypes.c_uint64), ("problems", ctypes.c_uint64)),
    )


def fuzz(options: argparse.Namespace) -> None:
    seeds: list[Any] = []
    native = _native()
    for batch in _recorded():
        native.bind(batch)
        for _ in native.take(0, batch.here):
            pass
        places = [at for at, row in enumerate(batch.messages[: batch.here]) if row["size"] <= ROOM // 4][:MOST_OF_ONE]
        seed_of = {at: len(seeds) + number for number, at in enumerate(places)}
        for at in places:
            row = batch.messages[at]
            row["pair"] = seed_of.get(int(row["pair"]), NONE)
            store, start = batch.arena if row["flags"] & ARENA else batch.buffer, int(row["start"])
            data = store[start : start + int(row["size"])].tobytes()
            seeds.append(_Seed(data, len(data), _Row.from_buffer_copy(row.tobytes())))
    library = compiled()
    room = Room(ROOM)
    array = (_Seed * len(seeds))(*seeds)
    run = _Run(ctypes.addressof(native._way.lines._lines), array, len(seeds), room.address, ROOM)
    tables = np.zeros((2, KEYS * VERSIONS), TABLE)
    tables["known"] = 1
    kept = []
    trees = NativeTrees(kernel(), PLAIN, 120, records=True)
    trees.use(DecodeOptions())
    directions: tuple[Direction, ...] = ("request", "response")
    for (key, version), direction in product(versions(), directions):
        if (table := table_of(key, version, direction)) is not None:
            kept.append(SummaryTable(kernel(), table))
            place = int(direction == "response"), key * VERSIONS + version
            tables["address"][place], tables["teaches"][place] = kept[-1].address, teaches(key, version, direction)
            if (program := trees.program(key, version, direction)) is not None:
                tables["program"][place] = program.address
    run.tables, run.style = tables.ctypes.data, trees.style.address
    reader, kinds = _reader()
    run.exchanges = ctypes.addressof(reader.call)
    for _ in rounds(options, run):
        library.kafkasniff_fuzz_lines(ctypes.byref(run))
    print(f"{len(seeds):,} messages: {run.written:,} lines written, with {run.problems:,} problems,")
    print(f"{run.left:,} left to Python; {run.texts:,} lines of text, {run.trees:,} with trees;")
    print(f"{run.ended:,} early ends;")
    print(f"{run.rows:,} exchanges as columns, by {2 * len(kinds.known):,} programs")


def _recorded() -> list[LineBatch]:
    """Messages of the shipped captures, and of fetch sessions that begin, change, are refused and end."""
    found = []
    bind = NativeLines.bind

    def noted(lines: NativeLines, batch: LineBatch) -> None:
        bind(lines, batch)
        copy = LineBatch(batch.messages.copy(), batch.here, batch.buffer.copy(), batch.arena.copy())
        # They all have the same connection, which does not matter here.
        copy.messages["connection"] = 0
        found.append(copy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeLines, "bind", noted)
        for path in shipped_captures():
            with open_captures([path]) as source:
                shown(Inspector, "json", source)
        shown(Inspector, "json", packets_of(talks([list(WORDS)], words=WORDS), []))
    return found


def _native() -> NativeLines:
    renderer = Renderer(kernel(), "auto", reads_nothing, SHOWN.hiding)
    ends = 1, Endpoint("192.0.2.1", 40_000), Endpoint("2001:db8::2", 9092)
    native = NativeLines(kernel(), renderer, lambda _: ends, lambda _: "capture", Enricher(sessions=False))
    native.use(Detail(DecodeOptions()))
    return native


def _reader() -> tuple[ExchangeReader, ExchangeKinds]:
    """Room for columns, and the programs that read exchanges."""
    found = kernel()
    kinds = ExchangeKinds(found, show_secrets=False, bodies=EVERY_BODY)
    kinds.are_known(np.arange(KEYS * VERSIONS))
    programs = kinds.programs
    reader = ExchangeReader(
        found, programs, headers=False, bodies=kinds.bodies, records=True, most=ROOM, max_records=1000
    )
    return reader, kinds
