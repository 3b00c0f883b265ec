"""Lines written by the kernel: the same, in the same order, as those of messages made one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.engine import lines_ahead
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.lines_ahead import LinesAhead
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import shows_nothing
from kafkasniff.kafka.connection.detail import LeftOut, Level
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.model import Lines, Summary
from kafkasniff.native import kernel
from kafkasniff.runtime.threads import Threads
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.native_lines import NativeLines
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.engine.test_in_step import BEGINNINGS, SAID, UNUSUAL, USUAL, talks
from tests.native.one_by_one import OneByOne

KERNEL = kernel()
pytestmark = pytest.mark.skipif(KERNEL is None, reason="no native kernel here")


class Shown:
    """Output of a run."""

    def __init__(self) -> None:
        self.out = BytesIO()
        self.native = 0
        """Messages whose lines the kernel wrote."""
        self.summary = Summary()
        self.left_out = LeftOut()


def packets_of(packets: list[list[Packet]], cuts: Sequence[int]) -> list[Any]:
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


def shown(  # noqa: PLR0917 - what a run is
    kind: type[Inspector],
    form: str,
    batches: list[Any],
    levels: Sequence[Level] = (),
    enricher: Enricher | None = None,
    threads: int | None = None,
) -> Shown:
    """The lines of all messages at these levels, which apply to one batch each, in rotation. `threads`: read ahead."""
    with ExitStack() as stack:
        ahead = None
        if threads is not None:
            several = [stack.enter_context(Threads(count, "test")) for count in (threads, 1)]
            ahead = LinesAhead(*several)
        return _shown(kind, form, batches, levels, Enricher() if enricher is None else enricher, ahead)


def _shown(  # noqa: PLR0917 - likewise
    kind: type[Inspector],
    form: str,
    batches: list[Any],
    levels: Sequence[Level],
    enricher: Enricher,
    ahead: LinesAhead | None,
) -> Shown:
    assert KERNEL is not None
    native, found = KERNEL, Shown()
    renderer = Renderer(native, "auto", shows_nothing) if form == "json" else None
    inspector = kind(
        exchanges=False, records="metadata" if form == "text" and not levels else "full", renderer=renderer
    )
    verbosity = 2 if form == "tree" else 0
    sink: TextSink | JsonSink = JsonSink(found.out) if form == "json" else TextSink(found.out, verbosity=verbosity)

    def make(
        ends: Callable[[int], Any], capture: Callable[[int], str | None], *, ahead: bool = False
    ) -> NativeLines | NativeText:
        if isinstance(sink, TextSink):
            return NativeText(native, sink, ends, capture, enricher)
        assert renderer is not None
        return NativeLines(native, renderer, ends, capture, enricher, ahead=ahead)

    enricher.count_into(inspector.summary)
    inspector.count_beside(enricher)
    inspector.write_lines(make, ahead=ahead)
    for number, one in enumerate(batches):
        if levels:
            inspector.level = levels[number % len(levels)]
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
    found.summary, found.left_out = inspector.summary, inspector.left_out
    return found


@given(
    said=st.lists(
        st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    skew_ns=st.sampled_from([0, 0, -150_000, -50_000, 350_000]),
    form=st.sampled_from(["text", "tree", "json"]),
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
    batches = packets_of(talks(said, skew_ns), cuts)
    found, expected = shown(Inspector, form, batches, threads=threads_of(form, threads)), shown(OneByOne, form, batches)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary
    assert not expected.native


@given(
    names=st.lists(st.sampled_from(sorted(BEGINNINGS)), min_size=1, max_size=8),
    gap_ns=st.sampled_from([0, 20_000, 10**9]),
    cuts=st.lists(st.integers(0, 100), max_size=8),
    form=st.sampled_from(["text", "tree", "json"]),
    threads=st.sampled_from([None, 1, 2]),
)
@example(names=list(BEGINNINGS), gap_ns=0, cuts=[*range(2, 100, 2)], form="json", threads=2)
@example(names=list(BEGINNINGS), gap_ns=20_000, cuts=[*range(3, 100, 3)], form="json", threads=1)
@example(names=list(BEGINNINGS), gap_ns=10**9, cuts=[*range(1, 100)], form="text", threads=1)
def test_connections_that_begin_in_the_kernel(
    names: list[str], gap_ns: int, cuts: list[int], form: str, threads: int | None
) -> None:
    """Connections begin in another thread while lines of connections with the same kernel slots are written."""
    packets = [
        one._replace(time_ns=one.time_ns + place * gap_ns)
        for place, name in enumerate(names)
        for one in BEGINNINGS[name]
    ]
    batches = packets_of([sorted(packets, key=lambda packet: packet.time_ns), []], cuts)
    found, expected = shown(Inspector, form, batches, threads=threads_of(form, threads)), shown(OneByOne, form, batches)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary


def threads_of(form: str, threads: int | None) -> int | None:
    """Lines of text are made on demand."""
    return threads if form == "json" or threads is None else 0


@pytest.mark.parametrize("bound", ["TASK_BYTES", "MAX_MADE", "MAX_WAITING", "MOST_WINDOWS"])
def test_bounds_of_threads(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any thread that makes a line, and any number of lines that may wait, lines are the same."""
    monkeypatch.setattr(lines_ahead, bound, 700)
    batches = packets_of(talks([["heartbeat", "produce"] * 20] * 4), [20, 30, 40, 50, 60, 70, 80])
    found = shown(Inspector, "json", batches, threads=2)
    assert found.native >= 100
    assert found.out.getvalue() == shown(OneByOne, "json", batches).out.getvalue()


@pytest.mark.parametrize("form", ["text", "tree", "json"])
@pytest.mark.parametrize("cut", [None, 37, 50, 81])
def test_the_kernel_makes_the_messages(form: str, cut: int | None) -> None:
    """Whether an exchange lies in one batch or two, the kernel writes messages that nothing else reads."""
    batches = packets_of(talks([["heartbeat", "produce"] * 6] * 3), [] if cut is None else [cut])
    found = shown(Inspector, form, batches)
    # Messages before the end of the first batch show that it is Kafka.
    assert found.native >= 3 * 2 * (12 if cut is None else 10)
    assert found.out.getvalue() == shown(OneByOne, form, batches).out.getvalue()


@pytest.mark.parametrize("form", ["text", "tree", "json"])
@pytest.mark.parametrize("cuts", [[], [37], [30, 50, 81]])
@pytest.mark.parametrize(
    ("said", "others"),
    [(["acks 0", "heartbeat"] * 20, 0), (["acks 0"] * 100, 0), (["acks 0, many"] * 5, 0), (["metadata"] * 30, 2)],
)
def test_unanswered_exchanges_and_those_that_are_read_inside(
    form: str, cuts: list[int], said: list[str], others: int
) -> None:
    """Requests with acks 0, and Metadata, whose responses are interpreted. `others`: responses that teach a name."""
    batches = packets_of(talks([said] * 2), cuts)
    found, expected = shown(Inspector, form, batches), shown(OneByOne, form, batches)
    assert found.out.getvalue() == expected.out.getvalue()
    assert found.summary == expected.summary
    # Messages of the first part show that it is Kafka.
    assert found.native >= found.summary.requests + found.summary.responses - others - 2 * 6


@pytest.mark.parametrize("form", ["text", "tree", "json"])
@pytest.mark.parametrize("cuts", [[], [37], [30, 50, 81]])
@pytest.mark.parametrize(
    "name", ["a version of tomorrow", "an API of tomorrow", "secrets of tomorrow", "configurations of tomorrow"]
)
def test_the_kernel_handles_unknown_versions(form: str, cuts: list[int], name: str) -> None:
    """Versions newer than the definitions, with both messages of an exchange in one batch."""
    batches = packets_of(talks([[name] * 20] * 2), cuts)
    found, expected = shown(Inspector, form, batches), shown(OneByOne, form, batches)
    assert found.out.getvalue() == expected.out.getvalue()
    assert found.summary == expected.summary
    assert found.summary.problems == 2 * 20 * 2
    # Python shows the bytes of bodies without definitions.
    assert form == "tree" or found.native >= 2 * (20 - len(cuts) - 2) * 2
    levels = [Level.ALL, Level.NO_RECORDS, Level.NO_BODIES]
    found, expected = (shown(kind, form, batches, levels) for kind in (Inspector, OneByOne))
    assert found.out.getvalue() == expected.out.getvalue()
    assert (found.summary, found.left_out) == (expected.summary, expected.left_out)


@given(
    said=st.lists(
        st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(0, 100), max_size=6),
    levels=st.lists(st.sampled_from(list(Level)), min_size=1, max_size=6),
    form=st.sampled_from(["text", "tree", "json"]),
)
@example(said=[["heartbeat", "produce", "fetch"] * 3], cuts=[30, 61], levels=[Level(0), Level(1)], form="json")
@example(said=[["heartbeat", "produce", "fetch"] * 3], cuts=[30, 61], levels=[Level(1), Level(2)], form="text")
@example(said=[["heartbeat", "produce", "fetch"] * 3], cuts=[31, 52, 73], levels=[Level(0), Level(3)], form="text")
@example(
    # The request of an API without definitions is hidden, and its response comes when nothing is.
    said=[
        ["an API of tomorrow", "in a row", "fetch", "Produce of tomorrow", "another id", "fetch", "an answer first"],
        ["a version of tomorrow"],
        [
            *["in a row", "an API of much later", "versions of tomorrow", "versions of tomorrow", "produce"],
            *["in a row", "produce", "no answer"],
        ],
    ],
    cuts=[43],
    levels=[Level(0), Level(3), Level(0)],
    form="text",
)
def test_the_same_messages_are_skipped(said: list[list[str]], cuts: list[int], levels: list[Level], form: str) -> None:
    batches = packets_of(talks(said, 0), cuts)
    found, expected = (shown(kind, form, batches, levels) for kind in (Inspector, OneByOne))
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert (found.summary, found.left_out) == (expected.summary, expected.left_out)


@pytest.mark.parametrize("form", ["text", "tree", "json"])
@pytest.mark.parametrize("level", [Level.NO_RECORDS, Level.NO_BODIES, Level.NO_MESSAGES])
def test_connections_stay_in_the_kernel_at_each_level(level: Level, form: str) -> None:
    batches = packets_of(talks([["heartbeat", "produce", "fetch"] * 6] * 3, 0), [40, 60, 80])
    found = shown(Inspector, form, batches, [Level.ALL, Level.ALL, level, level, level])
    expected = shown(OneByOne, form, batches, [Level.ALL, Level.ALL, level, level, level])
    assert found.out.getvalue() == expected.out.getvalue()
    assert found.left_out == expected.left_out != LeftOut()
    if level < Level.NO_MESSAGES:
        assert found.native >= 3 * 3 * 2 * 5
    else:
        assert found.left_out.requests >= 3 * 3 * 3
