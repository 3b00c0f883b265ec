"""Filters on columns: selection, order and counts match those of `Selector` on the messages."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.lines_ahead import LinesAhead
from kafkasniff.engine.selection import Selection
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import shows_nothing
from kafkasniff.filters import Selector
from kafkasniff.filters.expression import parse_filter
from kafkasniff.kafka.connection.detail import Level
from kafkasniff.kafka.messages.rendered import Renderer
from kafkasniff.model import Exchange, Lines, Message, Summary
from kafkasniff.native import kernel
from kafkasniff.runtime.threads import Threads
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.native_lines import NativeLines
from kafkasniff.sinks.native_text import NativeText
from kafkasniff.sinks.text import TextSink
from kafkasniff.tcp.packets import NO_TIME, PacketBatch
from tests.choice import ALL
from tests.conftest import ROOT
from tests.engine.test_in_step import SAID, UNUSUAL, USUAL, talks
from tests.engine.test_line_runs import packets_of
from tests.filters.expressions import expressions
from tests.native.one_by_one import OneByOne

KERNEL = kernel()
pytestmark = pytest.mark.skipif(KERNEL is None, reason="no native kernel here")

ATOMS = (
    *('api == "Produce"', 'api in ("Fetch", "Heartbeat")', "api_version > 4", "correlation_id not in (1, 12, 14)"),
    *("latency_ms > 0.1", "duration_ms <= 0.2", "latency_ms < 0", "size > 150", "request_size < 0.1kB"),
    *(
        "response_size != 30",
        'client_id =~ "."',
        "client_port == 50000",
        'host != "10.0.0.9:9092"',
        "client_ip =~ '5$'",
    ),
    *("connection == 1", "exchange > 9", "exchange in (8, 9, 12)", 'time < "+3ms"', "first_packet > 20"),
    *(
        "error",
        'error == "NONE"',
        'error == "REBALANCE_IN_PROGRESS"',
        "error_count >= 1",
        "error != 0",
        "error == null",
    ),
    *('topic == "orders"', 'topic != "orders"', "topic == null", "partition == 0", "record_count > 1", "acks == 'all'"),
    *('group_id =~ "."', "has transactional_id", "has member_id", "throttle_time_ms == 0", "has response"),
    *('status == "answered"', 'status == "open"', "retransmits > 0", "has problems", "problems !~ 'tcp'"),
    *("request.topics.partitions.partition == 0", 'response.error_code != "NONE"', "software_name == null", "trace_id"),
)


def combined() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda parts: f"({''.join(parts)})"),
            inner.map("not ({})".format),
        ),
        max_leaves=4,
    )


class Shown:
    """Output of a run."""

    def __init__(self) -> None:
        self.out = BytesIO()
        self.native = 0
        """Messages whose lines the kernel wrote."""
        self.decoded = 0
        """Messages that Python looked at."""
        self.summary = Summary()


def shown(
    kind: type[Inspector],
    form: str,
    batches: Iterable[PacketBatch],
    expression: str,
    *,
    writes: bool = True,
    levels: Sequence[Level] = (),
    is_ahead: bool = False,
) -> Shown:
    """Lines selected by an expression. Without `writes` the kernel only reads messages that are not selected.

    `is_ahead`: a thread reads packets ahead.
    """
    with ExitStack() as stack:
        ahead = None
        if is_ahead:
            ahead = LinesAhead(*(stack.enter_context(Threads(count, "test")) for count in (0, 1)))
        return _shown(kind, form, batches, expression, writes, levels, ahead)


def _shown(  # noqa: PLR0917 - likewise
    kind: type[Inspector],
    form: str,
    batches: Iterable[PacketBatch],
    expression: str,
    writes: bool,
    levels: Sequence[Level],
    ahead: LinesAhead | None,
) -> Shown:
    assert KERNEL is not None
    native, found = KERNEL, Shown()
    predicate = parse_filter(expression)
    selector, enricher = Selector(predicate), Enricher()
    records: Any = "full" if form == "json" else "metadata"
    inspector = kind(exchanges=True, records=records)
    sink: TextSink | JsonSink = JsonSink(found.out) if form == "json" else TextSink(found.out)
    renderer = Renderer(native, "auto", shows_nothing)

    def make(
        ends: Callable[[int], Any], capture: Callable[[int], str | None], *, ahead: bool = False
    ) -> NativeLines | NativeText:
        if writes and isinstance(sink, TextSink):
            return NativeText(native, sink, ends, capture, enricher)
        return NativeLines(native, renderer, ends, capture, enricher, ahead=ahead)

    enricher.count_into(inspector.summary)
    inspector.write_lines(make, Selection(predicate, selector, native, show_secrets=False, writes=writes), ahead=ahead)

    def take(events: Iterable[Any]) -> None:
        events = list(enricher.feed(events))
        found.decoded += sum(isinstance(event, Message) for event in events)
        for event in selector.feed(events):
            if isinstance(event, Lines):
                sink.write_lines(event)
                found.native += event.count
            elif not isinstance(event, Exchange):
                sink.write(event)

    for number, one in enumerate(batches):
        if levels:
            inspector.level = levels[number % len(levels)]
        times = one.time_ns[one.time_ns != NO_TIME]
        if selector.start_ns is None and len(times):
            selector.start_ns = int(times[0])
        for events in inspector.feed_lines(one):
            take(events)
    for rest in inspector.close_lines():
        take(rest)
    sink.close()
    assert not selector._decided
    found.summary = inspector.summary
    return found


def same(found: Shown, expected: Shown) -> None:
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary
    assert not expected.native


SPOKEN = st.lists(
    st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
)


@given(
    said=SPOKEN,
    cuts=st.lists(st.integers(0, 100), max_size=4),
    skew_ns=st.sampled_from([0, 0, -150_000, 350_000]),
    form=st.sampled_from(["text", "json"]),
    writes=st.booleans(),
    is_ahead=st.booleans(),
    expression=combined() | expressions(),
)
@example(
    said=[[name, "heartbeat", "produce"] for name in UNUSUAL],
    cuts=[30, 60],
    skew_ns=0,
    form="text",
    writes=True,
    is_ahead=True,
    expression="latency_ms >= 0",
)
@example(
    said=[["fetch", name, "produce 9", "metadata"] for name in UNUSUAL],
    cuts=[45],
    skew_ns=-150_000,
    form="json",
    writes=True,
    is_ahead=True,
    expression='(error or topic == "orders")',
)
@example(
    said=[["a client id in Latin-1"]],
    cuts=[],
    skew_ns=0,
    form="text",
    writes=False,
    is_ahead=False,
    expression='api == "Produce"',
)
def test_the_same_as_one_by_one(  # noqa: PLR0917 - given by name
    said: list[list[str]], cuts: list[int], skew_ns: int, form: str, writes: bool, is_ahead: bool, expression: str
) -> None:
    batches = packets_of(talks(said, skew_ns), cuts)
    found = shown(Inspector, form, batches, expression, writes=writes, is_ahead=is_ahead)
    same(found, shown(OneByOne, form, batches, expression))


@given(
    said=SPOKEN,
    cuts=st.lists(st.integers(0, 100), max_size=6),
    levels=st.lists(st.sampled_from(list(Level)), min_size=1, max_size=6),
    form=st.sampled_from(["text", "json"]),
    expression=st.sampled_from(ATOMS),
)
def test_the_same_messages_are_skipped(
    said: list[list[str]], cuts: list[int], levels: list[Level], form: str, expression: str
) -> None:
    batches = packets_of(talks(said, 0), cuts)
    found, expected = (shown(kind, form, batches, expression, levels=levels) for kind in (Inspector, OneByOne))
    same(found, expected)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "expression",
    [
        *('api == "Produce"', "latency_ms >= 0", 'topic == "orders"', "not (error)", 'host == "10.0.0.9"'),
        *("has client_id or acks == 0", "latency_ms > 1s", "error == 7"),
    ],
)
def test_the_kernel_makes_the_messages(form: str, expression: str) -> None:
    """Python neither decodes nor shows messages of complete exchanges, selected or not."""
    batches = packets_of(talks([["heartbeat", "produce"] * 6] * 3), [])
    found, expected = (shown(kind, form, batches, expression) for kind in (Inspector, OneByOne))
    same(found, expected)
    # Messages before the end of the first batch show that it is Kafka.
    assert expected.decoded - found.decoded >= 3 * 2 * 12
    assert bool(found.native) == (expression not in ("latency_ms > 1s", "error == 7"))


NAMES = sorted(path.name for path in (ROOT / "captures").glob("*.pcap"))


@functools.cache
def batches_of(name: str) -> list[PacketBatch]:
    with open_captures([str(ROOT / "captures" / name)]) as source:
        return list(source)


@pytest.mark.parametrize("name", NAMES)
def test_captures(name: str) -> None:
    """By default each capture is tested with one output format and one expression, in turn."""
    place = NAMES.index(name)
    choice = random.Random(name)
    for number, form in enumerate(("text", "json")):
        first, second = choice.sample(ATOMS, 2)
        rows, writes, is_ahead = choice.choice([7, 60, 1 << 20]), choice.random() < 0.8, choice.random() < 0.5
        batches = [part for whole in batches_of(name) for part in parts(whole, rows)]
        for kind, expression in enumerate((first, f"not ({second})", f"({first} or {second})")):
            if ALL or place % 6 == 2 * kind + number:
                found = shown(Inspector, form, batches, expression, writes=writes, is_ahead=is_ahead)
                same(found, shown(OneByOne, form, batches_of(name), expression))


def parts(batch: PacketBatch, rows: int) -> Iterator[PacketBatch]:
    """A batch in pieces with this many rows."""
    while len(batch) > rows:
        head, batch = batch.split(rows)
        yield head
    yield batch
