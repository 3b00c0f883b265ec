"""The state of the stream engine: it continues where it was saved, and gives its memory back."""

from __future__ import annotations

import itertools
import zlib
from random import Random
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.stream_questions import StreamQuestions
from kafkasniff.kafka.connection.events import MAX_FRAME
from kafkasniff.native.library import kernel
from kafkasniff.native.streams import Follows
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls.keylog import KeyLog
from tests.baseline.inputs import DISTURBANCES
from tests.choice import fewer, one_in
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.kernel.followers import results, split


def questions() -> StreamQuestions:
    native = kernel()
    keys = KeyLog()
    more: dict[str, Any] = {"follows": Follows.EXCHANGES, "remembered": 1_000}
    return StreamQuestions(native, lambda: keys, max_frame=MAX_FRAME, ports=frozenset(), **more)


@pytest.mark.parametrize("kind", one_in(3, list(DISTURBANCES)))
def test_a_saved_state_continues(kind: str) -> None:
    """After each batch, in another process as it were; the engine before gives all of its memory back."""
    disturbed = batch(DISTURBANCES[kind](mixed(), Random(zlib.crc32(kind.encode()))))
    expected, summary = results(Inspector, [disturbed], network="exchanges")
    inspector = Inspector(connections=True, network="exchanges")
    found = []
    for piece in split(disturbed, itertools.cycle((7, 1, 30, 64))):
        found += inspector.feed(piece)
        state = dump(inspector)
        assert inspector._feeder._engine.free() == 0, "memory was lost"  # type: ignore[union-attr]
        inspector = load(state, Inspector)
        # Loading gives connections new places.
        again = dump(inspector)
        assert dump(load(again, Inspector)) == again
    assert (found + inspector.close(), inspector.summary) == (expected, summary)


def test_other_bytes_are_refused() -> None:
    asked = questions()
    piece = batch(mixed()[:200])
    asked.engine.take(piece)
    state = asked.engine.save(asked.engine.holdings().tolist()[0][-1])
    random = Random(1)
    for _ in range(fewer(30, 60)):
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
