"""The state of the stream engine: it continues where it was saved, and gives its memory back."""

from __future__ import annotations

import ctypes
import itertools
import zlib
from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.stream_questions import StreamQuestions
from kafkasniff.kafka.connection.framing import MAX_FRAME
from kafkasniff.native.library import kernel
from kafkasniff.native.links import Follows, Network
from kafkasniff.native.streams import EngineRows, RowKind
from kafkasniff.tables.rows.transport import transport_rows
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.tls.keylog import KeyLog
from tests.baseline.inputs import DISTURBANCES
from tests.choice import fewer, one_in
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.kernel.followers import split

PLACES = ("at", "a", "b", "step", "start", "pair", "connection", "flags")
"""Fields of rows and of messages that may be places: in the results of a call, or in lists that the engine makes."""


def questions() -> StreamQuestions:
    native = kernel()
    keys = KeyLog()
    more: dict[str, Any] = {"follows": Follows.EXCHANGES, "remembered": 1_000}
    return StreamQuestions(native, lambda: keys, max_frame=MAX_FRAME, ports=frozenset(), **more)


def described(found: EngineRows, buffer: bytes) -> list[Any]:
    """Results of a call without places in memory."""
    rows = [
        (*(row[name].item() for name in row.dtype.names if name not in PLACES), _bytes(row), _number(found, row))
        for row in found.rows
    ]
    messages = [
        (*(row[name].item() for name in row.dtype.names if name not in PLACES), data)
        for row in found.messages
        for data in [(found.arena if row["flags"] & 2 else buffer)[int(row["start"]) :][: int(row["size"])]]
    ]
    links = transport_rows(found.links).to_pylist() if len(found.links) else []
    networks = [tuple(row[name].tolist() for name in Network._fields) for row in found.networks]
    return [*rows, *messages, *links, *networks]


def _bytes(row: np.void) -> bytes:
    return ctypes.string_at(int(row["at"]), int(row["have"])) if row["have"] and row["at"] else b""


def _number(found: EngineRows, row: np.void) -> Any:
    """The number of a row, or the account that it means."""
    if row["kind"] == RowKind.CLOSED:
        return str(found.endings[int(row["a"])])
    is_place = row["kind"] in (RowKind.OPENED, RowKind.TEXT) or (row["kind"] == RowKind.VERDICT and not row["a"])
    return None if is_place else (int(row["a"]), int(row["b"]), int(row["flags"]))


def saved_states(asked: StreamQuestions) -> list[bytes]:
    """The states of all connections, in the order of their beginnings."""
    slots = sorted(asked.engine.holdings().tolist())
    return [asked.engine.save(row[-1]) for row in slots]


def run(batches: Iterable[PacketBatch], *, saved: bool = False) -> list[Any]:
    """The results of all calls; `saved`: each call is that of a new engine, which continues with the state before."""
    asked = questions()
    found: list[Any] = []
    for piece in batches:
        found += described(asked.engine.take(piece), piece.buffer)
        if saved:
            states, before = saved_states(asked), asked.engine.clocks
            assert asked.engine.free() == 0, "memory was lost"
            asked = questions()
            asked.engine.clocks = before
            for state in states:
                _, slot = asked.engine.load(state)
                assert asked.engine.save(slot) == state
    found += described(asked.engine.finish(), b"")
    assert asked.engine.free() == 0, "memory was lost"
    return sorted(found, key=repr)


@pytest.mark.parametrize("kind", one_in(3, list(DISTURBANCES)))
def test_a_saved_state_continues(kind: str) -> None:
    disturbed = batch(DISTURBANCES[kind](mixed(), Random(zlib.crc32(kind.encode()))))
    sizes = (7, 1, 30, 64)
    expected = run(split(disturbed, itertools.cycle(sizes)))
    assert len(expected) > 20
    assert run(split(disturbed, itertools.cycle(sizes)), saved=True) == expected


def test_other_bytes_are_refused() -> None:
    asked = questions()
    piece = batch(mixed()[:200])
    asked.engine.take(piece)
    state = saved_states(asked)[0]
    random = Random(1)
    for _ in range(fewer(30, 200)):
        changed = bytearray(state)
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        for damaged in (bytes(changed), state[: random.randrange(len(state))], state + b"\0", b"\x01\x02", b""):
            other = questions()
            with pytest.raises(ValueError, match="damaged, or of another version"):
                other.engine.load(damaged)


def test_what_an_answer_raises_is_raised_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions()

    def fails(_: Any) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(asked, "_answers", dict.fromkeys(range(11), fails))
    piece = batch(mixed()[:200])
    with pytest.raises(ZeroDivisionError):
        asked.engine.take(piece)


def test_endpoints_that_cannot_be_any_are_refused() -> None:
    before, after = Inspector(), Inspector()
    before.feed(batch(mixed()[:200]))
    saved = before.followed
    saved[0].endpoints = ((1 << 64, 0, 1), saved[0].endpoints[1])
    with pytest.raises(ValueError, match="endpoints"):
        after._feeder.load(saved, before.clocks)  # type: ignore[union-attr]
