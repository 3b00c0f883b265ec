"""Messages of entries: those that the decoders of frames return, for all shipped captures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.in_step_messages import Messages
from kafkasniff.engine.paired import PairedRun
from kafkasniff.engine.paired_messages import request_message, response_message
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.memory import ConnectionMemory
from kafkasniff.model import Endpoint, Message
from kafkasniff.native.feed import NONE, VERSIONS
from tests.choice import in_turn
from tests.conftest import shipped_captures
from tests.native.feed_messages import Batch, batches, crafted, recorded

OPTIONS = {
    "usual": DecodeOptions(),
    "without records": DecodeOptions(records="skip"),
    "with secrets": DecodeOptions(show_secrets=True),
    "headers": DecodeOptions(bodies=False, headers=True),
}
CLIENT, BROKER = Endpoint("10.0.0.5", 50_000), Endpoint("10.0.0.9", 9092)


def _messages(batch: Batch, options: DecodeOptions) -> list[Message]:
    """The messages of whole exchanges."""
    memory = ConnectionMemory()
    connection: Any = SimpleNamespace(
        number=3, place=3, client=CLIENT, broker=BROKER, kafka=SimpleNamespace(memory=memory)
    )
    owners = [connection] * (1 + int(batch.messages["connection"].max()))
    run = PairedRun(Messages(batch.messages, batch.buffer.tobytes(), batch.arena.tobytes(), owners), options)
    found = []
    for entry in run.entries():
        paired, exchange, version = entry[4], entry[5], entry[13]
        if version is not None:
            message, carry = request_message(entry, 7, "capture")
            paired.open[exchange] = 7, version, message.client_id, carry, None
        else:
            opened = paired.open[exchange]
            assert opened is not None
            message = response_message(entry, opened, "capture")
        found.append(message)
    return found


@pytest.mark.parametrize(("capture", "options"), in_turn(shipped_captures(), OPTIONS, 3))
def test_the_same_as_of_frames(capture: Any, options: str) -> None:
    with open_captures([str(capture)], stdin=None) as source:
        _, seen = recorded(source)
    chosen = OPTIONS[options]
    memory = ConnectionMemory()
    carried: dict[int | None, object] = {}
    for batch in batches(seen, 500):
        # Entries are in the order of packets.
        order = np.lexsort((batch.messages["step"], batch.messages["order"]))
        whole = [index for index in order.tolist() if batch.messages["pair"][index] != NONE]
        for message, index in zip(_messages(batch, chosen), whole, strict=True):
            one = batch.seen[index]
            key, version = divmod(int(batch.messages["code"][index]), VERSIONS)
            if one.event.is_request:
                decoded = decode_request(one.data, 0, len(one.data), chosen, memory=memory)
                carried[one.message.exchange] = decoded.carry
                assert message.client_id == decoded.client_id
            else:
                carry = carried[one.message.exchange]
                decoded = decode_response(
                    one.data, 0, len(one.data), key, version, chosen, memory=memory, request=carry
                )
                assert (message.latency_ns, message.duration_ns) == (one.event.latency_ns, one.event.duration_ns)
            names = "api_key", "api", "api_version", "correlation_id", "body", "raw", "errors", "problems", "header"
            for name in names:
                assert getattr(message, name) == getattr(decoded, name), name
            frame = one.event.frame
            assert (message.type, message.size) == (one.message.type, len(one.data))
            assert (message.exchange, message.connection, message.capture) == (7, 3, "capture")
            assert (message.client, message.broker, message.time_ns) == (CLIENT, BROKER, frame.time_ns)
            assert (message.first_packet, message.last_packet) == (frame.first_packet, frame.last_packet)


def test_a_client_id_that_is_not_text() -> None:
    request = b"\0\x0c\0\0\0\0\0\5\0\2\xff\xfe" + b"\0\1g\0\0\0\3\0\1m"
    options = DecodeOptions()
    asked, answered = crafted(request, None, options), crafted(b"\0\0\0\5\0\0", (12, 0), options)
    assert asked is not None
    assert answered is not None
    (batch,) = batches([asked, answered], 2)
    message, response = _messages(batch, options)
    expected = decode_request(request, 0, len(request), options)
    assert (message.client_id, message.problems) == (expected.client_id, expected.problems)
    assert message.problems
    assert response.client_id == message.client_id
