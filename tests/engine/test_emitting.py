"""Emitting: slices of bounded size, whose events together are those of one piece."""

from __future__ import annotations

import pytest

from kafkasniff.engine import emitting
from kafkasniff.engine.emitting import SLICE
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Message, Problem
from kafkasniff.tcp.packets import Note
from tests.craft import kafka_bytes as kb
from tests.engine.test_inspector import Talk
from tests.native.one_by_one import OneByOne
from tests.tcp.batches import batch


def conversation(exchanges: int) -> Talk:
    talk = Talk()
    for number in range(1, exchanges + 1):
        talk.send(0, kb.metadata_request(number, ["orders"]))
        talk.send(1, kb.metadata_response(number, "host", 9092, ["orders"]))
    return talk.end()


def test_slices_have_all_events_in_order() -> None:
    packets = conversation(3 * SLICE).packets
    whole = Inspector().feed(batch(packets))
    slices = list(Inspector().feed_slices(batch(packets)))
    assert [event for events in slices for event in events] == whole
    # An event may be two outputs: a message and the exchange that ends with it.
    assert max(map(len, slices)) <= 2 * SLICE


def test_a_slice_ends_with_the_message_that_makes_it_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "SLICE_BYTES", 1)
    slices = list(OneByOne().feed_slices(batch(conversation(4).packets)))
    assert max(sum(isinstance(event, Message) for event in events) for events in slices) == 1


def test_problems_are_counted() -> None:
    packets = batch(conversation(1).packets)
    packets.notes += [Note(0, Problem("capture-loss", "x")), Note(1, Problem("capture-loss", "y"))]
    inspector = Inspector()
    events = inspector.feed(packets)
    assert sum(isinstance(event, Problem) for event in events) == inspector.summary.problems == 2
