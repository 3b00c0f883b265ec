"""Summaries that the kernel writes against those that Python makes, of bodies that are right and others."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.messages.message_plan import response_plan
from kafkasniff.native import kernel
from kafkasniff.native.summaries import SummaryTable
from kafkasniff.sinks.summaries import templates
from kafkasniff.sinks.summaries.compiled import table_of
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word
from tests.choice import fewer
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_summaries import TameEncoder, agree_on_summary, kinds_with_tables, table
from tests.native.summary_caller import SummaryCaller, items_of
from tests.vectors.reader import vectors

CHOICES: list[dict[str, Any]] = [
    {"nulls": False, "count": 1},
    {"nulls": False, "count": 5, "tagged": True},
    {"nulls": True, "count": 2, "tagged": False},
    {"count": 0},
    {"nulls": False, "count": 3, "unknown_tags": True},
    {},
]
EDGES = (0, 1, 2, 0x5F, 0x7F, 0x80, 0xC3, 0xFF)
LEFT = frozenset({
    *("JoinGroup request", "JoinGroup response", "SyncGroup request", "SyncGroup response", "DescribeGroups response"),
    *("SaslHandshake request", "SaslHandshake response", "SaslAuthenticate request", "SaslAuthenticate response"),
    *("CreateTopics request", "AlterConfigs request", "IncrementalAlterConfigs request", "PushTelemetry request"),
    *("FetchSnapshot response", "ShareFetch response"),
})  # fmt: skip
"""Templates of which Python makes all summaries: they need what was read inside of bytes, or configuration values."""


@pytest.fixture(scope="module")
def caller() -> SummaryCaller:
    return SummaryCaller(kernel())


def test_all_templates_but_few_have_tables() -> None:
    made = {(kind.key, kind.direction) for kind in kinds_with_tables()}
    found = set()
    for name, direction in templates.titles():
        key = next(key for key in api_keys() if api(key).name == name)  # type: ignore[union-attr]
        if (key, direction) not in made:
            found.add(f"{name} {direction}")
    assert found == LEFT


def test_every_version(caller: SummaryCaller) -> None:
    """The kernel writes summaries of bodies without errors and odd characters, and of others it says nothing else."""
    rng = random.Random(7)
    for kind in kinds_with_tables():
        for choices in rng.sample(CHOICES, fewer(2, len(CHOICES))):
            encoder = TameEncoder(Plan(rng, **choices), rng.choice([0, 0.2, 1]))
            raw = encoder.body(kind.root)
            given = rng.choices(["orders", "a b", 'say "x"', "t" * 70], k=len(encoder.ids))
            names = dict(zip(encoder.ids, given, strict=True))
            caller.name_topics(names)
            data = b"\x01" * 3 + raw + b"\xfe" * 5
            session = rng.choice([0, 1, 7])
            taken = agree_on_summary(caller, kind, data, 3, 3 + len(raw), names, session)
            assert taken, (kind.key, kind.version, kind.direction, raw.hex())
        wild = Encoder(Plan(rng, **rng.choice(CHOICES))).body(kind.root)
        for whole in (raw, wild):
            for _ in range(fewer(3, 10)):
                changed = bytearray(whole or b"\x00")
                for _ in range(rng.choice([0, 1, 1, 2, 5])):
                    changed[rng.randrange(len(changed))] = rng.choice([*EDGES, rng.randrange(256)])
                end = rng.choice([len(changed), len(changed), rng.randrange(len(changed) + 1)])
                agree_on_summary(caller, kind, bytes(changed), 0, end, names, rng.choice([-1, 3]))


def test_vectors(caller: SummaryCaller) -> None:
    caller.name_topics({})
    known = {(kind.key, kind.version, kind.direction): kind for kind in kinds_with_tables()}
    taken = 0
    for vector in vectors():
        if vector.kind not in ("request", "response"):
            continue
        key, version, data = vector.key, vector.version, vector.data
        start = 4 + (vector.kind == "response" and response_plan(key or 0, version).header > 0)
        if vector.kind == "request":
            header = request_header(data, 0, len(data))
            assert header is not None
            start, key, version = header.length, int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        kind = known.get((key, version, vector.kind))
        if kind is not None:
            taken += agree_on_summary(caller, kind, data, start, len(data), session=2)
    assert taken > 700


def texts(caller: SummaryCaller, data: bytes, items: Any) -> list[str | None]:
    return [None if one is None else one.decode() for one in caller.summaries(data, items)]


def heartbeat(group: bytes) -> bytes:
    return len(group).to_bytes(2, "big") + group + bytes(4) + b"\x00\x01m"


def of_group(caller: SummaryCaller, groups: list[bytes]) -> list[str | None]:
    found = table(12, 0, "request")
    assert found is not None
    bodies = [heartbeat(group) for group in groups]
    ends = list(itertools.accumulate(map(len, bodies)))
    starts = [end - len(body) for end, body in zip(ends, bodies, strict=True)]
    return texts(caller, b"".join(bodies), items_of([found.address] * len(bodies), starts, ends))


def test_words(caller: SummaryCaller) -> None:
    groups = [bytes((character,)) * 3 for character in range(0x20, 0x7F)]
    groups += [b"", b"x" * 64, b"x" * 65, b"a b" * 30, b'"' * 64]
    made = of_group(caller, groups)
    for group, text in zip(groups, made, strict=True):
        if b"\\" in group or (b'"' in group and len(group) > 60):
            continue  # escapes are Python's
        assert text == f"group {word(group.decode())}, generation 0, member m"
    assert (
        of_group(caller, [b"a\\b", b"gr\xc3\xb6\xc3\x9fe", b"\x1b[31m", b"\xff", b"x" * 64 + b"\xc3\xa4"]) == [None] * 5
    )


def test_items_without_a_table_and_bodies_with_more_bytes(caller: SummaryCaller) -> None:
    found = table(12, 0, "request")
    assert found is not None
    body = heartbeat(b"g")
    data = body + b"\x00" + body
    items = items_of(
        [found.address, 0, found.address, found.address], [0, 0, len(body) + 1, 9], [len(body) + 1, 5, len(data), 3]
    )
    assert texts(caller, data, items) == [None, None, "group g, generation 0, member m", None]


def test_there_is_room_for_many() -> None:
    fresh = SummaryCaller(kernel())
    assert of_group(fresh, [b"g" * 60] * 2000) == [f"group {'g' * 60}, generation 0, member m"] * 2000


def test_amounts_are_rounded_as_python_does(caller: SummaryCaller) -> None:
    """By the size of records: a batch is as long as its header says."""
    found = table(0, 3, "request")
    assert found is not None
    rng = random.Random(1)
    sizes = [
        *range(61, 1100, 7),
        1050,
        1150,
        1250,
        1349,
        1350,
        1351,
        9949,
        9950,
        9951,
        99_500,
        999_499,
        999_500,
        999_501,
    ]
    sizes += [rng.randrange(1000, 20_000_000) // 50 * 50 for _ in range(5)]
    for size in sizes:
        batch = craft.batch(bytes(size - 61), 1)
        assert len(batch) == size
        body = b"\xff\xff\x00\x01" + bytes(4) + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01" + bytes(4)
        data = body + size.to_bytes(4, "big") + batch
        (text,) = texts(caller, data, items_of([found.address], [0], [len(data)]))
        assert text == f"t-0 1 record {amount(size)}, acks leader"


def test_a_damaged_table_is_refused() -> None:
    good = table_of(1, 12, "response")
    assert good is not None
    rng = random.Random(1)
    SummaryTable(kernel(), good)
    refused = 0
    for place in range(0, len(good) - 4, 4):
        changed = bytearray(good)
        changed[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", rng.randbytes(4)])
        try:
            SummaryTable(kernel(), bytes(changed))
        except ValueError:
            refused += 1
    assert refused > len(good) // 16
    for size in (0, 3, 40, len(good) - 4):
        with pytest.raises(ValueError, match="not a table"):
            SummaryTable(kernel(), good[:size])
