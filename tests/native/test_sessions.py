"""Memory of the fetch sessions that the kernel follows. `tests/test_line_names.py` has them in lines."""

from __future__ import annotations

import ctypes

import pytest

from kafkasniff.kafka.apis.named_apis import FETCH
from kafkasniff.native import sessions as module
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.sessions import KnownSession, KnownSessions, NativeSessions
from kafkasniff.sinks.session_steps import known_session
from tests.native.kernel_and_walker import the_kernel

CODE = FETCH * VERSIONS + 12
TOPICS = [(b"payments", [9, 0]), (b"orders", [1])]


def _session(number: int = 7, topics: list[tuple[bytes, list[int]]] | None = None) -> KnownSession:
    program = known_session(the_kernel(), CODE)
    return KnownSession(number, CODE, program, 3, TOPICS if topics is None else topics, b'{"partitions":3}')


def _places(known: KnownSessions) -> list[tuple[int, int, dict[bytes, bytes]]]:
    """What the kernel reads: number, partitions and topics of each connection with a session."""
    native = NativeSessions.from_address(known.address)
    if not native.places_size:
        return []
    memory = (ctypes.c_uint64 * (8 * native.places_size)).from_address(native.places)
    found = []
    for at in range(0, len(memory), 8):
        number, program, topics, count, text, size, partitions, _ = memory[at : at + 8]
        if program:
            assert ctypes.string_at(text, size) == b'{"partitions":3}'
            rows = (ctypes.c_uint64 * (4 * count)).from_address(topics)
            texts = [
                (ctypes.string_at(rows[row], rows[row + 1]), ctypes.string_at(rows[row + 2], rows[row + 3]))
                for row in range(0, 4 * count, 4)
            ]
            assert texts == sorted(texts)
            found.append((number, partitions, dict(texts)))
    return found


def test_sessions_are_written_down_by_connection() -> None:
    known = KnownSessions()
    assert _places(known) == []
    assert known.add(3, _session())
    topics = {b"orders": b"\x02", b"payments": b"\x01\x02"}
    assert _places(known) == [(7, 3, topics)]
    # More connections than there is memory for so far.
    assert known.add(500, _session(8, []))
    assert _places(known) == [(7, 3, topics), (8, 3, {})]
    known.remove(3)
    known.remove(4)
    assert _places(known) == [(8, 3, {})]


def test_partitions_that_are_left_out() -> None:
    known = KnownSessions()
    assert known.add(0, _session(topics=[(b"orders", [-1, module.MAX_PARTITION, 1 << 31, 2])]))
    assert _places(known) == [(7, 3, {b"orders": b"\x04"})]


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSION", 1000)
    monkeypatch.setattr(module, "MAX_SESSIONS", 2500)
    known = KnownSessions()
    assert not known.add(0, _session(topics=[(b"n" * 1000, [0])]))
    assert not known.is_full
    large = _session(topics=[(b"n" * 700, [0])])
    assert [known.add(index, large) for index in range(4)] == [True, True, True, False]
    assert known.is_full
    known.remove(1)
    assert known.add(3, large)
    assert not known.is_full
    assert len(_places(known)) == 3


def test_messages_are_taken_once() -> None:
    known = KnownSessions()
    known.bind(9)
    native = NativeSessions.from_address(known.address)
    assert native.steps_size == 9
    steps = (ctypes.c_uint32 * 9).from_address(native.steps)
    steps[:6] = range(0, 12, 2)
    native.steps_used = 3
    assert known.take(0, 3).tolist() == [0, 2]
    assert known.take(0, 3).tolist() == []
    native.steps_used = 6
    # What lies before a range is dropped, and what follows it is kept.
    assert known.take(6, 9).tolist() == [6, 8]
    assert known.take(0, 100).tolist() == [10]
    native.steps_used = 6
    known.drop()
    assert known.take(0, 100).tolist() == []
