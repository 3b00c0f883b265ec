"""Lines that a filter selects have the order that they have without a filter."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.cli.running import pipeline
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import DecidedRequest, Message
from kafkasniff.sinks import lines as sink_lines
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.lines import OrderedSink
from tests.choice import examples
from tests.cli.console import kafkasniff
from tests.craft.conversation import Conversation, interleaved
from tests.craft.write import write_pcap
from tests.engine.talks import SAID
from tests.sinks.messages import TIME_NS, message

DAY_NS = 86_400 * 10**9


def is_part(some: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether all of `some` are in `whole`, in its order."""
    rest: Iterator[Any] = iter(whole)
    return all(one in rest for one in some)


# -- places -----------------------------------------------------------------------------------------------------------

OPEN, SHOW, HIDE, WRITE = "open", "show", "hide", "write"
STEPS = st.lists(
    st.sampled_from([OPEN, WRITE]) | st.tuples(st.sampled_from([SHOW, HIDE]), st.integers(0, 5)), max_size=30
)


def request(number: int) -> Message:
    """The request of an exchange; every third one is of the next day, and each has wider columns."""
    time_ns = TIME_NS + number // 3 * DAY_NS
    correlation = 10 ** min(number, 9)
    return message(exchange=number, correlation_id=correlation, client_id="c" * number, time_ns=time_ns)


def played(sink: OrderedSink, steps: Sequence[Any], limit: int | None = None) -> list[int]:
    """Plays these steps; returns the numbers of the messages to be shown, in order."""
    shown: dict[int, bool] = {}
    held: list[int] = []
    for number, step in enumerate(steps, 1):
        if limit is not None and sink.shown >= limit:
            break
        if step == OPEN:
            held.append(number)
            shown[number] = False
            sink.hold(request(number))
        elif step == WRITE:
            shown[number] = True
            sink.write(request(number))
        elif held:
            other = held.pop(step[1] % len(held))
            shown[other] = step[0] == SHOW
            sink.decide(DecidedRequest(other, 1, shown[other]))
    sink.close()
    return [number for number, is_shown in shown.items() if is_shown]


@given(steps=STEPS, limit=st.none() | st.integers(1, 5))
@example(steps=[OPEN, WRITE, (SHOW, 0)], limit=1)
@example(steps=[OPEN, WRITE, WRITE, (HIDE, 0)], limit=1)
@example(steps=[OPEN, OPEN, WRITE, (SHOW, 1), (SHOW, 0)], limit=2)
def test_places_are_filled_in_any_order(steps: list[Any], limit: int | None) -> None:
    out = io.BytesIO()
    sink = OrderedSink(JsonSink(out), limit)
    expected = played(sink, steps, limit)[:limit]
    assert [int(line.split(b",")[1].split(b":")[1]) for line in out.getvalue().splitlines()] == expected
    assert sink.shown == len(expected)


def test_output_is_passed_on_up_to_the_first_request_that_waits() -> None:
    out = io.BytesIO()
    sink = OrderedSink(JsonSink(out))
    sink.write(request(1))
    sink.hold(request(2))
    sink.write(request(3))
    sink.flush()
    assert out.getvalue().count(b"\n") == 1
    sink.decide(DecidedRequest(2, 1, False))
    sink.flush()
    assert out.getvalue().count(b"\n") == 2


@pytest.mark.parametrize(("name", "bound"), [("MAX_HELD", 2_000), ("MAX_PLACES", 1)])
def test_with_too_much_waiting_a_request_is_shown_when_it_is_decided(
    name: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_lines, name, bound)
    out = io.BytesIO()
    sink = OrderedSink(JsonSink(out))
    shown = played(sink, [OPEN, OPEN, *[WRITE] * 9, (SHOW, 0)])
    assert shown[0] == 1
    numbers = [int(line.split(b",")[1].split(b":")[1]) for line in out.getvalue().splitlines()]
    assert numbers == [*shown[1:], 1]
    assert sink.late == 1
    assert not sink.dropped


def test_requests_that_wait_without_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_lines, "MAX_PLACES", 2)
    out = io.BytesIO()
    sink = OrderedSink(JsonSink(out))
    played(sink, [*[OPEN] * 5, *[(SHOW, 0)] * 5])
    assert (sink.shown, sink.late, sink.dropped) == (4, 2, 1)
    assert out.getvalue().count(b"\n") == 4


# -- commands ---------------------------------------------------------------------------------------------------------

FILTERS = ["latency_ms > 1", "error == 'NONE'", "topic =~ '.'", "not exists(response) or response_size > 40"]


BATCHES = [1, 7, 1000]
"""Packets that are processed at a time."""


def lines_of(capture: Path, *options: str) -> list[str]:
    """The lines of messages and problems."""
    return kafkasniff("decode", "-q", capture, *options).lines


def words_of(lines: Sequence[str]) -> list[str]:
    """Lines of messages: numbers and words, since columns of text grow with what is shown."""
    return [" ".join(line.split()) for line in lines if "#" in line or line.startswith("{")]


def is_message(line: str) -> bool:
    return line.startswith(('{"type":"request"', '{"type":"response"')) or " → " in line or " ← " in line


def check_order(capture: Path, form: str, expression: str) -> None:
    options = ("--format", form)
    exact = lines_of(capture, *options, "--filter", expression)
    for rows in BATCHES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "FIRST_ROWS", rows)
            patch.setattr(pipeline, "MAX_ROWS", rows)
            jobs = ("--jobs", "2") if rows == BATCHES[1] else ()
            assert lines_of(capture, *options, "--filter", expression, *jobs) == exact
    some = words_of(exact)
    assert is_part(some, words_of(lines_of(capture, *options)))
    # Problems do not count.
    messages = [place for place, line in enumerate(some) if is_message(line)]
    most = messages[6] + 1 if len(messages) >= 7 else len(some)
    assert words_of(lines_of(capture, *options, "--filter", expression, "-c", "7")) == some[:most]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inspector, "write_lines", lambda *_, **_named: False)
        assert lines_of(capture, *options, "--filter", expression) == exact


@examples(10)
@given(
    said=st.lists(st.lists(st.sampled_from(sorted(SAID)), min_size=1, max_size=4), min_size=2, max_size=3),
    wait_ms=st.sampled_from([0, 3]),
    form=st.sampled_from(["text", "json"]),
    expression=st.sampled_from(FILTERS),
)
@example(
    said=[["an answer first", "a body cut"], ["fetch", "a size below zero"]],
    wait_ms=0,
    form="json",
    expression=FILTERS[1],
)
@example(said=[["fetch"] * 4, ["fetch"] * 4], wait_ms=3, form="text", expression=FILTERS[1])
def test_any_talk_keeps_its_order(
    tmp_path_factory: pytest.TempPathFactory, said: list[list[str]], wait_ms: int, form: str, expression: str
) -> None:
    talks = []
    for place, what in enumerate(said):
        talk = Conversation(("10.0.0.5", 50_000 + place), ("10.0.0.9", 9092), step_ns=170_000 + place * 1_300)
        talk.handshake()
        for number, one in enumerate(what):
            SAID[one](talk, number)
            talk.wait(wait_ms * 1_000_000 * place)
        talks.append(talk)
    path = write_pcap(tmp_path_factory.getbasetemp() / "order.pcap", interleaved(talks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "FIRST_ROWS", 5)
        patch.setattr(pipeline, "MAX_ROWS", 20)
        check_order(path, form, expression)
