"""Lines that the kernel writes: the same, in the same order, as those of messages that are made one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff import lines_ahead
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import shows_nothing
from kafkasniff.inspector import Inspector
from kafkasniff.kafka.rendered import Renderer
from kafkasniff.lines_ahead import LinesAhead
from kafkasniff.model import Lines, Summary
from kafkasniff.native import kernel
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.native_lines import NativeLines
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from kafkasniff.threads import Threads
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.test_in_step import SAID, UNUSUAL, USUAL, talks

KERNEL = kernel()
pytestmark = pytest.mark.skipif(KERNEL is None, reason="no native kernel here")


class _OneByOne(Inspector):
    _uses_kernel = False


class Shown:
    """What a run showed."""

    def __init__(self) -> None:
        self.out = BytesIO()
        self.native = 0
        """Messages whose lines the kernel wrote."""
        self.summary = Summary()


def _packets(packets: list[list[Packet]], cuts: Sequence[int]) -> list[Any]:
    """Batches, cut in percent of all packets."""
    whole = batch([*packets[0], *packets[1]])
    size = len(whole)
    parts = []
    gone = 0
    for border in sorted({len(packets[0]), *(size * cut // 100 for cut in cuts)} - {0, size}):
        head, whole = whole.split(border - gone)
        parts.append(head)
        gone = border
    return [*parts, whole]


def shown(kind: type[Inspector], form: str, batches: list[Any], threads: int | None = None) -> Shown:
    """The lines of all messages; `threads`: make them ahead."""
    with ExitStack() as stack:
        ahead = None
        if threads is not None:
            several = [stack.enter_context(Threads(count, "test")) for count in (threads, 1)]
            ahead = LinesAhead(*several)
        return _shown(kind, form, batches, ahead)


def _shown(kind: type[Inspector], form: str, batches: list[Any], ahead: LinesAhead | None) -> Shown:
    assert KERNEL is not None
    native, found = KERNEL, Shown()
    renderer = Renderer(native, "auto", shows_nothing) if form == "json" else None
    inspector = kind(exchanges=False, renderer=renderer)
    sink: TextSink | JsonSink = JsonSink(found.out) if form == "json" else TextSink(found.out)

    def make(ends: Callable[[int], Any], capture: Callable[[int], str | None]) -> NativeLines | NativeText:
        if isinstance(sink, TextSink):
            return NativeText(native, sink, ends, capture, shows_nothing)
        assert renderer is not None
        return NativeLines(native, renderer, ends, capture)

    enricher = Enricher(summary=inspector.summary)
    inspector.write_lines(make, ahead)
    for one in batches:
        for events in inspector.feed_lines(one):
            for event in enricher.feed(events):
                if isinstance(event, Lines):
                    sink.write_lines(event)
                    found.native += event.count
                else:
                    sink.write(event)  # type: ignore[arg-type]
    for rest in inspector.close_lines():
        for last in enricher.feed(rest):
            if isinstance(last, Lines):
                sink.write_lines(last)
                found.native += last.count
            else:
                sink.write(last)  # type: ignore[arg-type]
    sink.close()
    found.summary = inspector.summary
    return found


@given(
    said=st.lists(
        st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    skew_ns=st.sampled_from([0, 0, -150_000, -50_000, 350_000]),
    form=st.sampled_from(["text", "json"]),
    threads=st.sampled_from([None, 1, 2]),
)
@example(said=[[name, "heartbeat", "produce"] for name in UNUSUAL], cuts=[], skew_ns=0, form="json", threads=None)
@example(
    said=[["heartbeat", "produce", name] for name in UNUSUAL], cuts=[30, 60], skew_ns=-150_000, form="text", threads=1
)
@example(
    said=[["heartbeat", "produce", name] * 4 for name in UNUSUAL],
    cuts=[*range(10, 100, 10)],
    skew_ns=0,
    form="json",
    threads=2,
)
def test_the_same_as_one_by_one(
    said: list[list[str]], cuts: list[int], skew_ns: int, form: str, threads: int | None
) -> None:
    batches = _packets(talks(said, skew_ns), cuts)
    found, expected = shown(Inspector, form, batches, _threads(form, threads)), shown(_OneByOne, form, batches)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary
    assert not expected.native


def _threads(form: str, threads: int | None) -> int | None:
    """Lines of text are made where they are asked for."""
    return threads if form == "json" or threads is None else 0


@pytest.mark.parametrize("bound", ["TASK_BYTES", "MAX_MADE", "MAX_WAITING"])
def test_bounds_of_threads(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a line, and however few may wait: they are the same."""
    monkeypatch.setattr(lines_ahead, bound, 700)
    batches = _packets(talks([["heartbeat", "produce"] * 20] * 4), [20, 30, 40, 50, 60, 70, 80])
    found = shown(Inspector, "json", batches, 2)
    assert found.native >= 100
    assert found.out.getvalue() == shown(_OneByOne, "json", batches).out.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("cut", [None, 37, 50, 81])
def test_messages_are_the_kernels(form: str, cut: int | None) -> None:
    """Whether an exchange lies in one batch or in two: what nobody else looks at is written by the kernel."""
    batches = _packets(talks([["heartbeat", "produce"] * 6] * 3), [] if cut is None else [cut])
    found = shown(Inspector, form, batches)
    # Those in front of the first batch's end show that it is Kafka.
    assert found.native >= 3 * 2 * (12 if cut is None else 10)
    assert found.out.getvalue() == shown(_OneByOne, form, batches).out.getvalue()
