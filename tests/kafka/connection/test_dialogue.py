"""Frames of both streams one by one: what each is, and how the exchanges end."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection import dialogue as module
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.dialogue import Dialogue
from kafkasniff.kafka.connection.ends import CLOSED_BEFORE
from kafkasniff.kafka.connection.events import EventLog, ExchangeEvent, MessageEvent, ProblemEvent, TokenEvent
from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.craft import kafka_bytes as kafka
from tests.craft.from_layout import request_bytes, response_bytes

CLIENT, BROKER, MS = 0, 1, 1_000_000
SASL_HANDSHAKE = 17


class Frames:
    """A dialogue whose frames come a millisecond apart."""

    def __init__(self) -> None:
        self.log = EventLog(CLIENT)
        self.dialogue = Dialogue(self.log, Detail(DecodeOptions()))
        self.dialogue.requests = "here"
        self.order = 0

    def send(self, direction: int, data: bytes, *, missing: int = 0, at: int | None = None) -> None:
        """A frame with its length; `missing`: bytes at its end that are not in the capture."""
        self.order += 1
        message = data[4:]
        time = MS * (self.order if at is None else at)
        have = len(message) - missing
        place = self.order, self.order, time, time, self.order
        self.dialogue.frame(Frame(self.order, direction, message, 0, have, len(message), *place))

    def ask(self, number: int) -> None:
        self.send(CLIENT, kafka.metadata_request(number, ["orders"]))

    def answer(self, number: int) -> None:
        self.send(BROKER, kafka.metadata_response(number, "h", 9092, ["orders"]))

    def ends(self) -> dict[int, str]:
        return {one.ordinal: one.status for one in self.log.events if isinstance(one, ExchangeEvent)}

    def problems(self) -> list[str]:
        found = [one.kind for one in self.log.events if isinstance(one, ProblemEvent)]
        for one in self.log.events:
            if isinstance(one, MessageEvent | ExchangeEvent):
                found += [problem.kind for problem in one.problems]
        return found


def test_latency_and_duration() -> None:
    frames = Frames()
    frames.ask(1)
    frames.answer(1)
    (end,) = (one for one in frames.log.events if isinstance(one, ExchangeEvent))
    assert (end.status, end.latency_ns, end.duration_ns) == ("answered", MS, MS)
    assert frames.problems() == []


def test_pipelined_requests_are_paired_by_id() -> None:
    frames = Frames()
    for number in (1, 2, 3):
        frames.ask(number)
    for number in (1, 3, 2):
        frames.answer(number)
    assert frames.ends() == {0: "answered", 1: "answered", 2: "answered"}
    assert frames.problems() == ["response-out-of-order"]


def test_a_response_before_its_request() -> None:
    """Capture points may disagree about the order: it waits for the request."""
    frames = Frames()
    frames.answer(1)
    frames.send(CLIENT, kafka.metadata_request(1, ["orders"]), at=3)
    assert frames.ends() == {0: "answered"}
    assert frames.problems() == ["latency-negative"]


def test_a_response_without_a_request() -> None:
    frames = Frames()
    frames.dialogue.requests = "none"
    frames.answer(1)
    assert frames.ends() == {0: "orphan"}
    assert frames.problems() == ["orphan-response"]


@pytest.mark.parametrize(
    ("direction", "data"),
    [(CLIENT, b"\x7f\xff" + bytes(20)), (BROKER, b"\1\2"), (BROKER, b"\x7f\xff\xff\xff secret")],
)
def test_frames_that_are_no_messages_are_not_shown(direction: int, data: bytes) -> None:
    frames = Frames()
    frames.ask(1)
    frames.send(direction, kafka.frame(data))
    frames.dialogue.close("fin")
    assert "frame-unreadable" in frames.problems()
    assert frames.dialogue.unread_of[direction] == 4 + len(data)
    assert "secret" not in repr([one for one in frames.log.events if isinstance(one, ProblemEvent)])


def test_a_frame_cut_within_its_header_loses_requests() -> None:
    frames = Frames()
    data = kafka.metadata_request(1, ["orders"])
    frames.send(CLIENT, data, missing=len(data) - 4 - 6)
    assert frames.problems() == ["frame-unreadable"]
    frames.send(CLIENT, data, missing=3)
    assert "frame-incomplete" in frames.problems()


@pytest.mark.parametrize(("reason", "status"), [("fin", "unanswered"), ("rst", "unanswered"), ("end", "open")])
def test_the_end_of_a_connection(reason: str, status: str) -> None:
    frames = Frames()
    frames.ask(1)
    frames.dialogue.close(reason)  # type: ignore[arg-type]
    assert frames.ends() == {0: status}
    assert frames.problems() == (["request-unanswered"] if status == "unanswered" else [])


@pytest.mark.parametrize(("after", "text"), [(5, "5 ms"), (2_500, "2.5 s")])
def test_a_request_after_the_broker_had_closed(after: int, text: str) -> None:
    frames = Frames()
    frames.send(CLIENT, kafka.metadata_request(1, ["orders"]), at=10 + after)
    frames.dialogue.close("end", 10 * MS)
    (end,) = (one for one in frames.log.events if isinstance(one, ExchangeEvent))
    assert end.problems[0].detail.endswith(f"{CLOSED_BEFORE} {text} before the request")


def test_requests_without_a_response() -> None:
    """A Produce request with acks 0 ends with the next response, or with the connection."""
    frames = Frames()
    batch = kafka.record_batch([kafka.record(0, None, b"v")])
    frames.send(CLIENT, kafka.produce_request(1, "orders", batch, acks=0))
    frames.ask(2)
    frames.answer(2)
    assert frames.ends() == {0: "no_response", 1: "answered"}
    frames.send(CLIENT, kafka.produce_request(3, "orders", batch, acks=0))
    frames.send(BROKER, kafka.produce_response(3, "orders", 5))
    assert frames.problems() == ["response-to-acks-0"]


def test_raw_tokens_after_a_handshake() -> None:
    frames = Frames()
    frames.send(CLIENT, request_bytes(SASL_HANDSHAKE, 0, 1, mechanism="PLAIN"))
    frames.send(BROKER, response_bytes(SASL_HANDSHAKE, 0, 1, mechanisms=["PLAIN"]))
    frames.send(CLIENT, kafka.frame(b"\0user\0password"))
    frames.send(BROKER, kafka.frame(b""))
    frames.ask(1)
    frames.answer(1)
    tokens = [(one.is_request, one.mechanism) for one in frames.log.events if isinstance(one, TokenEvent)]
    assert tokens == [(True, "PLAIN"), (False, "PLAIN")]
    assert list(frames.ends().values()) == ["answered", "answered"]


def test_a_dialogue_in_step() -> None:
    frames = Frames()
    for number in (1, 2):
        frames.ask(number)
        frames.answer(number)
    assert frames.dialogue.is_plain()
    turn = frames.dialogue.hand_over()
    assert (turn.ordinal, turn.last_id, turn.last_answer, turn.ids_rise) == (2, 2, 2, True)
    frames.dialogue.take_back(turn._replace(ordinal=7, retransmits=module.MOST_RETRANSMITS + 1))
    # The kernel counts these in 16 bits.
    assert not frames.dialogue.is_plain()
    frames.ask(8)
    assert frames.log.events[-1].ordinal == 7  # type: ignore[union-attr]


def test_memory_of_what_waits() -> None:
    frames = Frames()
    assert frames.dialogue.memory_bytes == 0
    frames.ask(1)
    one = frames.dialogue.memory_bytes
    frames.ask(2)
    assert frames.dialogue.memory_bytes == 2 * one > 0
    frames.answer(9)
    assert frames.dialogue.early_bytes > 0
    frames.answer(1)
    frames.dialogue.close("fin")
    assert (frames.dialogue.memory_bytes, frames.dialogue.early_bytes) == (0, 0)
