"""Feeding: parts of a batch, numbers of connections, notes between packets."""

from __future__ import annotations

from kafkasniff.engine.feeding import FEW_ROWS
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Problem
from kafkasniff.tcp.packets import Note
from tests.engine.test_inspector import Talk
from tests.tcp.batches import Raw, batch


def test_a_batch_in_parts_is_the_same_batch() -> None:
    packets = [Raw(0, 1 + number, b"x") for number in range(3 * FEW_ROWS)]
    whole = batch(packets)
    whole.notes.append(Note(FEW_ROWS + 1, Problem("capture-loss", "x")))
    parts = list(Inspector()._feeder.parts(whole))
    assert sum(map(len, parts)) == len(whole)
    assert [int(order) for part in parts for order in part.order] == [int(order) for order in whole.order]
    assert [note.order for part in parts for note in part.notes] == [FEW_ROWS + 1]
    assert parts[-1].end_order == whole.end_order
    if len(parts) > 1:
        assert len(parts[0]) <= FEW_ROWS


def test_connections_are_numbered_by_their_first_packets() -> None:
    later, earlier = Talk(conversation=1), Talk(conversation=2)
    inspector = Inspector()
    inspector.feed(batch([*earlier.packets, *later.packets]))
    numbers = {tcp.owner.number: tcp.first_order for tcp in inspector.reassembler}  # type: ignore[attr-defined]
    assert sorted(numbers, key=numbers.__getitem__) == [1, 2]
    assert inspector.summary.connections == 2


def test_notes_keep_their_places() -> None:
    packets = batch([Raw(0, 1, b"x"), Raw(0, 2, b"x")])
    first, second = Problem("capture-loss", "first"), Problem("capture-loss", "second")
    packets.notes += [Note(0, first), Note(1, ("10.0.0.1", "host")), Note(2, second)]
    inspector = Inspector()
    assert inspector.feed(packets) == [first, second]
    assert inspector.names == {"10.0.0.1": "host"}
