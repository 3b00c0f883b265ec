"""Summaries that the kernel writes against those that Python makes, of bodies that are right and others."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.native.summaries import SummaryTable
from kafkasniff.sinks.summaries import templates
from kafkasniff.sinks.summaries.compiled import table_of
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word
from tests.choice import DEEP, one_in
from tests.conftest import shipped_captures
from tests.kafka.encode import Encoder, Plan
from tests.kafka.schemas import schemas_of
from tests.native.kernel_and_walker import Kind, the_kernel, without_kernel
from tests.native.kernel_summaries import TameEncoder, agree_on_summary, kinds_with_tables, table
from tests.native.summary_caller import SummaryCaller, items_of
from tests.vectors.reader import vectors

CAPTURES = {path.name: path for path in shipped_captures()}
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
    return SummaryCaller(the_kernel())


def by_api() -> dict[int, list[Kind]]:
    found: dict[int, list[Kind]] = defaultdict(list)
    for kind in kinds_with_tables():
        assert kind.key is not None
        found[kind.key].append(kind)
    return found


def test_all_templates_but_few_have_tables() -> None:
    the_kernel()
    made = {(kind.key, kind.direction) for kind in kinds_with_tables()}
    found = set()
    for name, direction in templates.titles():
        key = next(key for key in api_keys() if api(key).name == name)  # type: ignore[union-attr]
        if (key, direction) not in made:
            found.add(f"{name} {direction}")
    assert found == LEFT


@pytest.mark.parametrize("key", api_keys())
def test_every_version_of_an_api(key: int, caller: SummaryCaller) -> None:
    """The kernel writes summaries without errors and without odd characters."""
    rng = random.Random(key)
    for kind in by_api().get(key, []):
        for choices in CHOICES:
            encoder = TameEncoder(Plan(rng, **choices))
            raw, _ = encoder.body(kind.root)
            names = dict(
                zip(encoder.ids, rng.choices(["orders", "a b", 'say "x"', "t" * 70], k=len(encoder.ids)), strict=False)
            )
            caller.name_topics(names)
            data = b"\x01" * 3 + raw + b"\xfe" * 5
            session = rng.choice([0, 1, 7])
            assert agree_on_summary(caller, kind, data, 3, 3 + len(raw), names, session), raw.hex()


@pytest.mark.parametrize("key", api_keys())
def test_changed_and_cut_bytes(key: int, caller: SummaryCaller) -> None:
    rng = random.Random(3000 + key)
    for kind in by_api().get(key, []):
        for made in (Encoder, TameEncoder):
            encoder = made(Plan(rng, **rng.choice(CHOICES)))
            raw, _ = encoder.body(kind.root)
            names = dict.fromkeys(getattr(encoder, "ids", [])[::2], "orders")
            caller.name_topics(names)
            for _ in range(40 if DEEP else 5):
                changed = bytearray(raw or b"\x00")
                for _ in range(rng.choice([0, 1, 1, 2, 5])):
                    changed[rng.randrange(len(changed))] = rng.choice([*EDGES, rng.randrange(256)])
                data = bytes(changed)
                end = rng.choice([len(data), len(data), rng.randrange(len(data) + 1)])
                agree_on_summary(caller, kind, data, 0, end, names, rng.choice([-1, 3]))


def bodies_of(monkeypatch: pytest.MonkeyPatch, run: Any) -> list[tuple[Schema, bytes]]:
    """Bodies that are read during a run."""
    found: list[tuple[Schema, bytes]] = []

    def recording(schema: Schema) -> Any:
        def decode(data: bytes, position: int, end: int, context: Any) -> Any:
            found.append((schema, bytes(data[position:end])))
            return schema._decode_by_walker(data, position, end, context)

        return decode

    with monkeypatch.context() as patched, without_kernel():
        patched.setattr(Schema, "decode", property(recording))
        run()
    return found


def kinds_by_schema() -> dict[tuple[str, int], Kind]:
    found = {}
    for key, kinds in by_api().items():
        schemas = {(id(schema.root), schema.name) for schema in schemas_of(key)}
        for kind in kinds:
            found[next(name for root, name in schemas if root == id(kind.root)), kind.version] = kind
    return found


@pytest.mark.parametrize("path", one_in(3, list(CAPTURES.values())), ids=lambda path: path.name)
def test_shipped_captures(path: Path, monkeypatch: pytest.MonkeyPatch, caller: SummaryCaller) -> None:
    caller.name_topics({})
    known = kinds_by_schema()

    def run() -> None:
        inspector = Inspector(records="batches")
        with open_captures([str(path)], stdin=None) as source:
            for batch in source:
                inspector.feed(batch)
        inspector.close()

    taken: Counter[bool] = Counter()
    for schema, data in bodies_of(monkeypatch, run):
        kind = known.get((schema.name, schema.version))
        if kind is not None:
            taken[agree_on_summary(caller, kind, data, 0, len(data))] += 1
    assert taken[True] or taken[False] < 5


def test_vectors(monkeypatch: pytest.MonkeyPatch, caller: SummaryCaller) -> None:
    from kafkasniff import decode_request, decode_response

    caller.name_topics({})
    known = kinds_by_schema()

    def run() -> None:
        for vector in vectors():
            if vector.kind == "request":
                decode_request(vector.data)
            elif vector.kind == "response":
                assert vector.key is not None
                decode_response(vector.data, vector.key, vector.version)

    taken: Counter[bool] = Counter()
    for schema, data in bodies_of(monkeypatch, run):
        kind = known.get((schema.name, schema.version))
        if kind is not None:
            taken[agree_on_summary(caller, kind, data, 0, len(data), session=2)] += 1
    assert taken[True] > 700


def texts(caller: SummaryCaller, data: bytes, items: Any) -> list[str | None]:
    return [None if one is None else one.decode() for one in caller.summaries(data, items)]


def heartbeat(group: bytes) -> bytes:
    return len(group).to_bytes(2, "big") + group + bytes(4) + b"\x00\x01m"


def of_group(caller: SummaryCaller, groups: list[bytes]) -> list[str | None]:
    found = table(12, 0, "request")
    assert found is not None
    bodies = [heartbeat(group) for group in groups]
    ends = [sum(map(len, bodies[: index + 1])) for index in range(len(bodies))]
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


def test_there_is_room_for_many(caller: SummaryCaller) -> None:
    fresh = SummaryCaller(the_kernel())
    assert of_group(fresh, [b"g" * 60] * 5000) == [f"group {'g' * 60}, generation 0, member m"] * 5000


def test_amounts_are_rounded_as_python_does(caller: SummaryCaller) -> None:
    """By the size of records: a batch is as long as its header says."""
    found = table(0, 3, "request")
    assert found is not None
    from tests.kafka import records_craft as craft

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
    sizes += [rng.randrange(1000, 20_000_000) // 50 * 50 for _ in range(20)]
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
    SummaryTable(the_kernel(), good)
    refused = 0
    for place in range(0, len(good) - 4, 4):
        changed = bytearray(good)
        changed[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", rng.randbytes(4)])
        try:
            SummaryTable(the_kernel(), bytes(changed))
        except ValueError:
            refused += 1
    assert refused > len(good) // 16
    for size in (0, 3, 40, len(good) - 4):
        with pytest.raises(ValueError, match="not a table"):
            SummaryTable(the_kernel(), good[:size])
