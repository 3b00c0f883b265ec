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
    return KnownSession(number, CODE, known_session(the_kernel(), CODE), 3, TOPICS if topics is None else topics)


def _places(known: KnownSessions) -> list[tuple[int, int, dict[bytes, bytes]]]:
    """What the kernel reads: number, partitions and topics of each connection with a session."""
    native = NativeSessions.from_address(known.address)
    if not native.places_size:
        return []
    memory = (ctypes.c_uint64 * (6 * native.places_size)).from_address(native.places)
    found = []
    for at in range(0, len(memory), 6):
        number, program, topics, count, partitions, _ = memory[at : at + 6]
        if program:
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
    known.bind(3)
    native = NativeSessions.from_address(known.address)
    assert native.steps_size == 3
    steps = (ctypes.c_uint32 * 3).from_address(native.steps)
    steps[0], steps[1], native.steps_used = 0, 2, 2
    assert known.take().tolist() == [0, 2]
    assert known.take().tolist() == []
