"""Lines of messages by the native kernel, on millions of changed batches; `lines.py` compares some with Python."""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kafkasniff.capture import open_captures
from kafkasniff.engine.roles import ExchangeKinds
from kafkasniff.engine.wanted_bodies import EVERY_BODY
from kafkasniff.enrich.plan import teaches
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, SessionStep, uses_sessions
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.uuids import uuid_text
from kafkasniff.native import kernel
from kafkasniff.native.exchanges import ExchangeReader
from kafkasniff.native.feed import KEYS, MESSAGE, NONE, REQUEST, VERSIONS
from kafkasniff.native.sessions import KnownSession, KnownSessions, NativeSessions
from kafkasniff.native.text_lines import TABLE
from kafkasniff.sinks.native_trees import NativeTrees
from kafkasniff.sinks.session_follower import session_json, topics_of
from kafkasniff.sinks.session_steps import known_session
from kafkasniff.text.paint import PLAIN
from tests.conftest import shipped_captures
from tests.engine.talks import packets_of, talks
from tests.fuzz.compiled import Room, compiled, rounds
from tests.native.feed_messages import Native, Recorder, Seen, batches, recorded
from tests.native.kernel_summaries import kinds_with_tables, table
from tests.test_line_names import WORDS

ROOM: Final = 16 << 10
MOST_OF_ONE: Final = 150
"""Messages of one capture."""


_NO_SESSION: Final = (1 << 64) - 1

_Row = ctypes.c_uint8 * MESSAGE.itemsize


class _Seed(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_uint64), ("message", _Row), ("session", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        ("call", ctypes.c_void_p),
        ("seeds", ctypes.POINTER(_Seed)),
        ("seeds_count", ctypes.c_uint64),
        ("room", ctypes.c_void_p),
        ("room_size", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("executions", "random", "written", "left", "ended", "texts")),
        ("tables", ctypes.c_void_p),
        ("exchanges", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("sessions", ctypes.c_void_p),
        ("sessions_count", ctypes.c_uint64),
        ("continuing", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("continuing_count", "json_steps", "steps", "questions")),
        ("style", ctypes.c_void_p),
        ("trees", ctypes.c_uint64),
        ("problems", ctypes.c_uint64),
    )


def fuzz(options: argparse.Namespace) -> None:
    """Fuzz; a crash ends the process."""
    seeds: list[Any] = []
    native = None
    connection = -1
    sessions = KnownSessions()
    sessions_count = 0
    for recorder, seen in _recordings():
        small = [one for one in seen if len(one.data) <= ROOM // 4][:MOST_OF_ONE]
        if not small:
            continue
        native = native or Native.after(recorder)
        (batch,) = batches(small, len(small))
        # All messages have the same connection, which does not matter here. The kinds known to the lines stay.
        connection = seen[0].connection.number if connection < 0 else connection
        batch.messages["connection"] = connection
        native.of(batch)
        paired = batch.messages["pair"] != NONE
        batch.messages["pair"][paired] += len(seeds)
        for one, row in zip(small, batch.messages, strict=True):
            found = _sessions(one.data, row)
            for index, session in enumerate(found):
                assert sessions.add(sessions_count + index, session)
            first = sessions_count if found else _NO_SESSION
            sessions_count += len(found)
            seeds.append(_Seed(one.data, len(one.data), _Row.from_buffer_copy(row.tobytes()), first))
    library = compiled()
    room = Room(ROOM)
    array = (_Seed * len(seeds))(*seeds)
    run = _Run(native.call, array, len(seeds), room.address, ROOM)
    tables = np.zeros((2, KEYS * VERSIONS), TABLE)
    tables["known"] = 1
    kept = {}
    trees = NativeTrees(kernel(), PLAIN, 120, records=True)
    trees.use(DecodeOptions())
    for kind in kinds_with_tables():
        assert kind.key is not None
        found = kept[kind] = table(kind.key, kind.version, kind.direction)
        assert found is not None
        place = int(kind.direction == "response"), kind.key * VERSIONS + kind.version
        tables["address"][place], tables["teaches"][place] = (
            found.address,
            teaches(kind.key, kind.version, kind.direction),
        )
        if (program := trees.program(kind.key, kind.version, kind.direction)) is not None:
            tables["program"][place] = program.address
    run.tables, run.style = tables.ctypes.data, trees.style.address
    reader, kinds = _reader()
    run.exchanges = ctypes.addressof(reader.call)
    run.sessions = NativeSessions.from_address(sessions.address).places
    run.sessions_count = sessions_count
    continuing = np.array([index for index, seed in enumerate(seeds) if seed.session != _NO_SESSION], np.uint64)
    run.continuing, run.continuing_count = continuing.ctypes.data, len(continuing)
    for _ in rounds(options, run):
        library.kafkasniff_fuzz_lines(ctypes.byref(run))
    print(f"{len(seeds):,} messages: {run.written:,} lines written, with {run.problems:,} problems,")
    print(
        f"{run.left:,} left to Python; {run.texts:,} lines of text, {run.trees:,} with trees; {run.ended:,} early ends;"
    )
    print(f"{run.rows:,} exchanges as columns, by {2 * len(kinds.known):,} programs;")
    print(
        f"messages of {sessions_count:,} fetch sessions: {run.json_steps:,} as JSON and {run.steps:,} as text needed no"
    )
    print(f"answer, {run.questions:,} needed one")


def _recordings() -> Iterator[tuple[Recorder, list[Seen]]]:
    """Messages of the shipped captures, and of fetch sessions that begin, change, are refused and end."""
    for path in shipped_captures():
        with open_captures([str(path)], stdin=None) as source:
            yield recorded(source)
    yield recorded(packets_of(talks([list(WORDS)], words=WORDS), []))


def _sessions(data: bytes, row: np.void) -> list[KnownSession]:
    """Fetch sessions that a request may continue.

    They have its partitions alone, others besides, and all but one of each topic. The last one has another number if
    the request names no partitions, so that the request is never one that only continues it.
    """
    key, version = divmod(int(row["code"]), VERSIONS)
    if not row["flags"] & REQUEST or not uses_sessions(key, version):
        return []
    schema = request_plan(key, version).schema
    assert schema is not None
    body, _ = schema.decode(data, int(row["body"]), len(data), DecodeContext(DecodeOptions()))
    step = SessionStep.of_request(body)
    if step is None or step.epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        return []
    code = int(row["code"])
    program = known_session(kernel(), code)
    other = {uuid_text(bytes([200]) * 16) if step.by_id else "another": [0, 1]}
    fewer = {topic: numbers[:-1] for topic, numbers in step.added.items()}
    found = []
    for added in (step.added, {**step.added, **other}, fewer):
        session = FetchSession()
        session.by_id = step.by_id
        session.add(added)
        text = session_json(session.partitions, session.unnamed)
        number = step.number if step.added or added is not fewer else step.number + 1
        found.append(KnownSession(number, code, program, session.partitions, topics_of(session), text))
    return found


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
