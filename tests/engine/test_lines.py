"""The law of lines: those that the kernel writes, filtered or not, are those of messages one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.connection.events import Level
from kafkasniff.kafka.schema.codes import uuid_text
from kafkasniff.redact.payload import Payload
from tests.choice import one_in
from tests.conftest import shipped_captures
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.conversation import START_NS
from tests.engine.shown import agree, same, shown
from tests.engine.talks import BEGINNINGS, SAID, TOPIC_ID, UNUSUAL, USUAL, packets_of, talk_from, talks
from tests.filters.expressions import expressions
from tests.oracle.inspector import ByPython
from tests.test_boundaries import cut

SPOKEN = st.lists(
    st.lists(st.sampled_from(sorted(SAID)) | st.sampled_from(sorted(USUAL)), max_size=12), min_size=1, max_size=4
)
CUTS = st.lists(st.integers(0, 100), max_size=6)
FORMS = st.sampled_from(["text", "tree", "json"])
THREADS = st.sampled_from([None, 1, 2])


# -- what is said, and at which level of detail ------------------------------------------------------------------------


@given(said=SPOKEN, cuts=CUTS, skew_ns=st.sampled_from([0, 0, -150_000, -50_000, 350_000]), form=FORMS, threads=THREADS)
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
def test_any_talk(said: list[list[str]], cuts: list[int], skew_ns: int, form: str, threads: int | None) -> None:
    agree(form, packets_of(talks(said, skew_ns), cuts), threads=threads)


@given(
    names=st.lists(st.sampled_from(sorted(BEGINNINGS)), min_size=1, max_size=8),
    gap_ns=st.sampled_from([0, 20_000, 10**9]),
    cuts=CUTS,
    form=FORMS,
    threads=THREADS,
)
@example(names=list(BEGINNINGS), gap_ns=0, cuts=[*range(2, 100, 2)], form="json", threads=2)
@example(names=list(BEGINNINGS), gap_ns=10**9, cuts=[*range(1, 100, 3)], form="text", threads=1)
def test_connections_that_begin_in_the_kernel(
    names: list[str], gap_ns: int, cuts: list[int], form: str, threads: int | None
) -> None:
    """Connections begin in another thread while lines of connections with the same kernel slots are written."""
    packets = [
        one._replace(time_ns=one.time_ns + place * gap_ns)
        for place, name in enumerate(names)
        for one in BEGINNINGS[name]
    ]
    agree(form, packets_of([sorted(packets, key=lambda packet: packet.time_ns), []], cuts), threads=threads)


THREE = [["heartbeat", "produce", "fetch"] * 3]
LATER = [
    ["an API of tomorrow", "in a row", "fetch", "Produce of tomorrow", "another id", "fetch", "an answer first"],
    ["a version of tomorrow"],
    [
        *["in a row", "an API of much later", "versions of tomorrow", "versions of tomorrow", "produce"],
        *["in a row", "produce", "no answer"],
    ],
]
"""The request of an API without definitions is hidden, and its response comes when nothing is."""


@given(said=SPOKEN, cuts=CUTS, levels=st.lists(st.sampled_from(list(Level)), min_size=1, max_size=6), form=FORMS)
@example(said=THREE, cuts=[30, 61], levels=[Level(0), Level(1)], form="json")
@example(said=THREE, cuts=[30, 61], levels=[Level(1), Level(2)], form="text")
@example(said=THREE, cuts=[31, 52, 73], levels=[Level(0), Level(3)], form="text")
@example(said=LATER, cuts=[43], levels=[Level(0), Level(3), Level(0)], form="text")
def test_the_same_messages_are_skipped(said: list[list[str]], cuts: list[int], levels: list[Level], form: str) -> None:
    agree(form, packets_of(talks(said, 0), cuts), levels=levels)


@pytest.mark.parametrize("form", ["text", "tree", "json"])
@pytest.mark.parametrize(
    ("said", "pythons"),
    [
        (["heartbeat", "produce"] * 6, 0),
        (["acks 0", "heartbeat"] * 6, 0),
        # Their responses have a list, and no template.
        (["the first header", "the first header, no body"] * 6, 24),
        (["acks 0, many"] * 3, 0),
        # Responses that teach a name.
        (["metadata"] * 12, 2),
        # Both messages of an exchange have to be in one batch.
        (["a version of tomorrow"] * 10, 12),
        (["secrets of tomorrow"] * 10, 12),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_kernel_writes_lines(said: list[str], pythons: int, form: str) -> None:
    """Else other tests would compare Python with Python. `pythons`: messages that Python writes."""
    for cuts in one_in(2, ([], [30, 50, 81])):
        found, _ = agree(form, packets_of(talks([said] * 2), cuts))
        # Messages of the first part show that it is Kafka. Python shows the bytes of bodies without definitions.
        if form != "tree" or "tomorrow" not in said[0]:
            assert found.native >= found.summary.requests + found.summary.responses - pythons - 2 * 6


# -- filters ----------------------------------------------------------------------------------------------------------

ATOMS = """
api == "Produce"                api in ("Fetch", "Heartbeat")       api_version > 4
correlation_id not in (1, 12, 14)   latency_ms > 0.1                duration_ms <= 0.2
latency_ms < 0                  size > 150                          request_size < 0.1kB
response_size != 30             client_id =~ "."                    client_port == 50000
host != "10.0.0.9:9092"         client_ip =~ '5$'                   connection == 1
exchange > 9                    exchange in (8, 9, 12)              time < "+3ms"
first_packet > 20               last_packet <= 40                   error
error == "NONE"                 error == "REBALANCE_IN_PROGRESS"    error_count >= 1
error != 0                      error == null                       topic == "orders"
topic != "orders"               topic == null                       partition == 0
record_count > 1                acks == 'all'                       group_id =~ "."
has transactional_id            has member_id                       throttle_time_ms == 0
has response                    status == "answered"                status == "open"
retransmits > 0                 has problems                        problems !~ 'tcp'
request.topics.partitions.partition == 0    response.error_code != "NONE"    software_name == null
trace_id                        broker != "10.0.0.9:9092"           capture =~ "java"
has record                      record.key == "k"                   record.value contains "vv"
record.value !~ "^v+$"          record.offset > 0                   record.value.$ == null
"""
FILTERS = [part.strip() for line in ATOMS.strip().splitlines() for part in line.split("  ") if part.strip()]


def combined() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(FILTERS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda parts: f"({''.join(parts)})"),
            inner.map("not ({})".format),
        ),
        max_leaves=4,
    )


@given(
    said=SPOKEN,
    cuts=CUTS,
    skew_ns=st.sampled_from([0, 0, -150_000, 350_000]),
    form=st.sampled_from(["text", "json"]),
    writes=st.booleans(),
    way=st.sampled_from([None, 0]) | st.lists(st.sampled_from(list(Level)), min_size=1, max_size=6),
    expression=combined() | expressions(),
)
@example(
    said=[[name, "heartbeat", "produce"] for name in UNUSUAL],
    cuts=[30, 60],
    skew_ns=0,
    form="text",
    writes=True,
    way=0,
    expression="latency_ms >= 0",
)
@example(
    said=[["fetch", name, "produce 9", "metadata"] for name in UNUSUAL],
    cuts=[45],
    skew_ns=-150_000,
    form="json",
    writes=True,
    way=0,
    expression='(error or topic == "orders")',
)
@example(
    said=[["a client id in Latin-1"]],
    cuts=[],
    skew_ns=0,
    form="text",
    writes=False,
    way=None,
    expression='api == "Produce"',
)
def test_filters(  # noqa: PLR0917 - given by name
    said: list[list[str]],
    cuts: list[int],
    skew_ns: int,
    form: str,
    writes: bool,
    way: list[Level] | int | None,
    expression: str,
) -> None:
    """`way`: levels of detail, or the number of threads that read packets ahead."""
    levels, threads = (way, None) if isinstance(way, list) else ([], way)
    batches = packets_of(talks(said, skew_ns), cuts)
    found = shown(Inspector, form, batches, levels, threads=threads, expression=expression, writes=writes)
    same(found, shown(ByPython, form, batches, levels, expression=expression))


MIXTURE = [
    *USUAL,
    *("error", "in a row", "crossing", "acks 0", "no answer", "more than a body", "versions", "join", "sync"),
]


def test_every_filter() -> None:
    """Selection by columns of each field is that of messages."""
    batches = packets_of(talks([MIXTURE]), [40, 70])
    for place, expression in enumerate(one_in(2, FILTERS)):
        agree(("text", "json")[place % 2], batches, expression=expression)


@pytest.mark.parametrize(
    ("said", "expression", "is_selected"),
    [
        *((["heartbeat", "produce"], 'api == "Produce"', True), (["heartbeat", "produce"], "latency_ms >= 0", True)),
        *((["heartbeat", "produce"], 'topic == "orders"', True), (["heartbeat", "produce"], "not (error)", True)),
        *(
            (["heartbeat", "produce"], "has client_id or acks == 0", True),
            (["heartbeat", "produce"], "error == 7", False),
        ),
        (["heartbeat", "produce"], "latency_ms > 1s", False),
        *(
            (["more than a body", "error"], "error_count == 1", True),
            (["more than a body", "error"], "error == 7", False),
        ),
        *((["fetch by id", "produce"], 'topic == "orders"', True), (["fetch by id", "produce"], 'topic == "x"', False)),
    ],
)
def test_filters_do_not_decode(said: list[str], expression: str, is_selected: bool) -> None:
    """Python neither decodes nor shows messages of complete exchanges, selected or not."""
    batches = packets_of(talks([said * 6] * 3), [])
    for form in ("text", "json"):
        enricher = Enricher()
        enricher.catalog.learn_topic(uuid_text(TOPIC_ID), "orders")
        found, expected = agree(form, batches, expression=expression, enricher=enricher)
        # Messages before the end of the first batch show that it is Kafka.
        assert expected.decoded - found.decoded >= 3 * 2 * 12
        assert bool(found.native) is is_selected


# -- options of inspectors and sinks, and what messages say ------------------------------------------------------------

DROPPED, HASHED = Payload("dropped"), Payload.hashed(b"salt of the tests")
WAYS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("json", {"records": "batches"}, {"form": "hex"}),
    ("text", {}, {"colour": True}),
    ("json", {"show_secrets": True}, {"form": "base64"}),
    ("tree", {}, {"colour": True}),
    ("json", {}, {"payload": DROPPED}),
    ("text", {}, {"verbosity": 1, "width": 60}),
    ("json", {}, {"form": "hex", "payload": HASHED}),
    ("json", {"headers": True}, {}),
    ("tree", {}, {"width": 1, "captures": True}),
    ("json", {"records": "skip"}, {"capture": True, "terminal": True}),
    ("text", {}, {"captures": True, "names": {"127.0.0.1": "a-rather-long-name"}}),
]


CAPTURES = {path.name: path for path in shipped_captures()}


@pytest.mark.parametrize("name", one_in(8, list(CAPTURES), 1))
def test_captures(name: str) -> None:
    """Each capture in one way, with a filter or without, and in batches of some size, chosen by its name."""
    choice = random.Random(name)
    form, options, sink = WAYS[list(CAPTURES).index(name) // 4 % len(WAYS)]
    first, second = choice.sample(FILTERS, 2)
    filters = [None, None, first, f"not ({second})", f"({first} or {second})"]
    expression = None if form == "tree" or "headers" in options else choice.choice(filters)
    size, threads = (
        choice.choice([7, 60, 1 << 20]),
        choice.choice([None, 2 if form == "json" and not expression else 0]),
    )
    with open_captures([CAPTURES[name]]) as source:
        wholes = list(source)
    batches = [part for whole in wholes for part in cut(whole, range(size, len(whole), size))]
    more: dict[str, Any] = {"expression": expression, "options": options, "sink": sink}
    found = shown(Inspector, form, batches, threads=threads, **more)
    same(found, shown(ByPython, form, wholes, **more))


LATENCIES = [10**n + off for n in range(12) for off in (-1, 0, 1)] + [995 * 10**n for n in range(9)]
LATENCIES += [9_995 * 10**n + off for n in range(8) for off in (-1, 0)]
LATENCIES += [1_005, 10_050, 1_125, 2_675, 999_500, 3 * 10**12]
LATENCIES += [-one for one in LATENCIES[:8]]
CLIENT_IDS = ["", "a", "a b", 'q"uote', "x" * 24, "x" * 25, "y z" * 30, "back\\slash", "\x1b[31m", "größe", None]
"""Names of clients: none, plain, quoted, cut, and for Python."""
STARTS = [-(10**18), -1, 1, 951_782_399_999_999_999, 951_782_400_000_000_000, 4_102_444_799 * 10**9, 2**63 - 10**18]
"""The first nanoseconds of connections: before 1970, in leap years, in other centuries."""


@pytest.mark.parametrize("start", STARTS)
def test_times_latencies_and_client_ids(start: int) -> None:
    rng = random.Random(start)
    talker = talk_from(40_000, start - START_NS)
    body = kafka.string("group") + kafka.int32(3) + kafka.string("member")
    for number, latency in enumerate(rng.sample(LATENCIES, len(LATENCIES))):
        talker.send("client", kafka.request(12, 0, number, body, client_id=rng.choice(CLIENT_IDS)))
        talker.wait(latency - talker.step_ns)
        talker.send("broker", kafka.response(number, kafka.int16(0)))
        talker.wait(rng.choice([0, 1, 999, 10**6, 10**9, 1800 * 10**9]) - latency)
    for form in ("text", "json"):
        found, _ = agree(form, cut(batch(talker.packets), range(40, len(talker.packets), 150)))
        assert found.native > len(LATENCIES)
