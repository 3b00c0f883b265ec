"""Bodies that are cut, or have trailing bytes, nulls or wrong counts: the kernel reports what the walker reports."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.odd_messages import odd_pairs
from benchmarks.small_messages import write
from kafkasniff.capture import open_captures
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.schema import body_problems, packed, schema, walker
from kafkasniff.kafka.schema.body_problems import NUMBERED, Template
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.spans import Span
from kafkasniff.kafka.schema.wire import MAX_UNKNOWN_TAGS
from tests.choice import DEEP, examples, fewer
from tests.craft.kafka_bytes import unsigned_varint
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import agree, agree_on_dicts, caller, program, roots, the_kernel, walked
from tests.native.test_caller import data_schemas, schemas_of
from tests.native.test_captures import lines

SHOW = DecodeOptions(show_secrets=True)
HIDE = DecodeOptions()
MOST_CUTS = 100_000 if DEEP else fewer(20, 60)
"""Lengths that a body is cut at: all of them, up to this many."""


asking = functools.cache(caller)
"""The caller that wants this; making one takes longer than a call."""


def both(root: Struct, data: bytes, options: DecodeOptions = SHOW) -> bool:
    """Whether the kernel took a body as a dict; raises AssertionError where anything differs, as JSON too."""
    framed = b"\x01" * 3 + data + b"\xfe" * 5
    end = 3 + len(data)
    asks = asking(show_secrets=options.show_secrets)
    agree(asks.body(program(root), framed, 3, end, lambda _: None), root, framed, 3, end, options)
    return agree_on_dicts(root, framed, 3, end, options)


def is_left(root: Struct, data: bytes) -> bool:
    """Whether the walker has a problem to report that the kernel leaves to it, those of records included."""
    _, context = walked(root, data, 0, len(data), SHOW)
    kinds = {problem.kind for problem in context.problems}
    left = {"tags-not-ascending", "tag-size-mismatch", "too-many-elements"}
    return bool(kinds & left) or (root.records and len(kinds) > 1)


def cuts(data: bytes, rng: random.Random) -> list[int]:
    """Lengths to cut at."""
    every = range(len(data))
    return list(every) if len(every) <= MOST_CUTS else rng.sample(every, MOST_CUTS)


def lengths(root: Struct, data: bytes) -> Iterator[tuple[int, int, bool, bool]]:
    """Where lengths and counts lie: start, end, whether they are varints, and whether they are counts."""
    spans: list[Span] = []
    walker.walk(root, data, 0, len(data), DecodeContext(SHOW), record_sets, spans=spans)
    for span in spans:
        is_count = span.type.startswith("count of ") and "tagged" not in span.type
        if is_count or (span.field is not None and span.type.split()[-1] in {"string", "bytes", "records"}):
            compact = "compact" in span.type
            if compact:
                size = 1
                while data[span.start + size - 1] > 0x7F:
                    size += 1
            else:
                size = 2 if span.type == "string" else 4
            yield span.start, span.start + size, compact, is_count


def number(value: int, size: int, *, compact: bool) -> bytes:
    """A length or count as it is written; one that is too large for its size is as large as it can be."""
    if compact:
        return unsigned_varint(max(value + 1, 0))
    return min(value, (1 << (8 * size - 1)) - 1).to_bytes(size, "big", signed=True)


@pytest.mark.parametrize("key", api_keys())
def test_cut_at_every_length(key: int) -> None:
    rng = random.Random(key)
    for one in schemas_of(key):
        data, _ = Encoder(Plan(rng)).body(one.root)
        for size in cuts(data, rng):
            assert both(one.root, data[:size]), (one, data[:size].hex())


def test_data_blocks_cut_at_every_length() -> None:
    rng = random.Random(1)
    for one in data_schemas():
        data, _ = Encoder(Plan(rng)).body(one.root)
        for size in cuts(data, rng):
            assert both(one.root, data[:size]), (one, data[:size].hex())


@pytest.mark.parametrize("key", api_keys())
def test_trailing_bytes(key: int) -> None:
    rng = random.Random(key)
    for one in schemas_of(key):
        data, _ = Encoder(Plan(rng)).body(one.root)
        for _ in range(20 if DEEP else 3):
            assert both(one.root, data + rng.randbytes(rng.randrange(1, 9)))


@pytest.mark.parametrize("key", api_keys())
def test_nulls_and_counts(key: int) -> None:
    """Each length and count in turn is null, with its value and without, or another number."""
    rng = random.Random(key)
    for one in schemas_of(key):
        data, _ = Encoder(Plan(rng, tagged=False)).body(one.root)
        places = list(lengths(one.root, data))
        for start, end, compact, is_count in places if DEEP else rng.sample(places, min(len(places), fewer(3, 6))):
            size = end - start
            right = int.from_bytes(data[start:end], "big") if not compact else data[start] - 1
            for value in (-1, -2, right + 1, right - 1, len(data), 0x7FFFFFFF):
                changed = data[:start] + number(value, size, compact=compact) + data[end:]
                assert both(one.root, changed) or is_left(one.root, changed), (one, changed.hex())
            if not is_count and right >= 0:
                assert both(one.root, data[:start] + number(-1, size, compact=compact) + data[end + right :])


@pytest.mark.parametrize("key", api_keys())
def test_secrets_stay_hidden(key: int) -> None:
    """Without leave to show secrets: whatever the kernel takes is what the walker makes of it."""
    rng = random.Random(key)
    for one in schemas_of(key):
        if one.has_secrets:
            data, _ = Encoder(Plan(rng)).body(one.root)
            for size in cuts(data, rng):
                both(one.root, data[:size], HIDE)
                changed = bytearray(data)
                changed[size] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
                both(one.root, bytes(changed), HIDE)


LAYOUTS = list(roots())


@examples(200)
@given(st.integers(0, len(LAYOUTS) - 1), st.integers(0, 1 << 32), st.data())
def test_any_changes(index: int, seed: int, draw: Any) -> None:
    root = LAYOUTS[index]
    data = bytearray(Encoder(Plan(random.Random(seed))).body(root)[0])
    for _ in range(draw.draw(st.integers(0, 4))):
        if data:
            at = draw.draw(st.integers(0, len(data) - 1))
            data[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=4))
    records = draw.draw(st.sampled_from(["full", "batches", "skip", "metadata"]))
    options = DecodeOptions(show_secrets=draw.draw(st.booleans()), records=records)
    agree_on_dicts(root, bytes(data), 0, len(data), options)


def messages(share: float) -> list[tuple[bytes, bytes]]:
    return odd_pairs(7, share)


def decoded(pairs: list[tuple[bytes, bytes]], options: DecodeOptions, *, cut: bool) -> list[Any]:
    """Both messages of each pair, without what differs from one reading to the next."""
    found: list[Any] = []
    for request, response in pairs:
        key, version = int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")
        found += [
            decode_request(request, 4, len(request), options, cut=cut),
            decode_response(response, 4, len(response), key, version, options, cut=cut),
        ]
    return [msgspec.structs.replace(one, carry=None) for one in found]


@pytest.mark.parametrize("cut", [False, True])
def test_whole_messages(monkeypatch: pytest.MonkeyPatch, cut: bool) -> None:
    """Header, body, raw bytes and problems are those of the walker; and the walker was not asked."""
    the_kernel()
    pairs = messages(0.3)
    asked = count_walks(monkeypatch)
    native = decoded(pairs, HIDE, cut=cut)
    assert asked == []
    kinds = {problem.kind for one in native for problem in one.problems}
    assert {"body-truncated", "array-too-long", "trailing-bytes", "null-not-allowed"} <= kinds
    leave_to_walker(monkeypatch)
    expected = decoded(pairs, HIDE, cut=cut)
    assert asked
    assert native == expected


@pytest.mark.parametrize("cut", [False, True])
def test_whole_messages_with_secrets(monkeypatch: pytest.MonkeyPatch, cut: bool) -> None:
    """Both withhold the same from a body that may be misread; SASL, configurations, topics with configurations."""
    the_kernel()
    rng = random.Random(3)
    found: list[tuple[int, int, bytes, bytes]] = []
    for key in (19, 29, 32, 33, 36, 38, 44, 51, 58):
        known = api(key)
        assert known is not None
        for version in known.versions:
            bodies = [Encoder(Plan(rng)).body(one.root)[0] for one in (known.request(version), known.response(version))]
            for _ in range(8):
                sizes = [rng.randrange(len(body) + 1) for body in bodies]
                found.append((key, version, bodies[0][: sizes[0]], bodies[1][: sizes[1]] + bytes(rng.randrange(2))))

    def read() -> list[Any]:
        return [
            one
            for key, version, request, response in found
            for one in (
                decode_request(head(key, version) + request, 0, len(head(key, version) + request), cut=cut),
                decode_response(bytes(5) + response, 0, 5 + len(response), key, version, cut=cut),
            )
        ]

    native = read()
    assert any(problem.kind == "body-withheld" for one in native for problem in one.problems)
    leave_to_walker(monkeypatch)
    for one, other in zip(native, read(), strict=True):
        assert repr(msgspec.structs.replace(one, carry=None)) == repr(msgspec.structs.replace(other, carry=None))


def head(key: int, version: int) -> bytes:
    """A request's header without a client id."""
    known = api(key)
    assert known is not None
    tags = b"\x00" if known.request_header(version) > 1 else b""
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + tags


def count_walks(monkeypatch: pytest.MonkeyPatch) -> list[Struct]:
    """The layouts that the walker is asked to read by."""
    asked: list[Struct] = []

    def walk(root: Struct, *arguments: Any, **options: Any) -> walker.Walk:
        asked.append(root)
        return walker.walk(root, *arguments, **options)

    monkeypatch.setattr(schema, "walk", walk)
    return asked


def leave_to_walker(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on schemas leave every body to the walker."""

    def decode(*_: Any) -> Any:
        raise packed.Odd

    monkeypatch.setattr(Schema, "decode", property(lambda _: decode))


@pytest.mark.parametrize("native", [False, True])
def test_lines_of_a_capture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native: bool) -> None:
    """JSON lines of odd messages, with the renderer and as dicts: the walker's, which is not asked."""
    the_kernel()
    capture = tmp_path / "odd.pcap"
    write(capture, 20, 3000, 1, messages(0.2))
    with open_captures([str(capture)], stdin=None) as source:
        batches = list(source)
    asked = count_walks(monkeypatch)
    printed, rendered = lines(batches, "auto", native=native)
    assert asked == []
    assert (rendered > 100) is native
    assert printed.count(b"null-not-allowed") > 10
    assert printed.count(b"trailing-bytes") > 10
    assert printed.count(b"body-truncated") > 10
    leave_to_walker(monkeypatch)
    assert lines(batches, "auto", native=False)[0] == printed
    assert asked


def test_many_problems_are_left_to_the_walker() -> None:
    metadata = api(3)
    assert metadata is not None
    root = metadata.request(1).root
    for count in (MAX_PROBLEMS - 1, MAX_PROBLEMS, MAX_PROBLEMS + 1):
        assert both(root, count.to_bytes(4, "big") + b"\xff\xff" * count) is (count <= MAX_PROBLEMS)


def test_unknown_tags_are_bounded() -> None:
    heartbeat = api(12)
    assert heartbeat is not None
    root = heartbeat.request(4).root
    front = b"\x02g" + bytes(4) + b"\x02m" + b"\x00"
    for count in (MAX_UNKNOWN_TAGS, MAX_UNKNOWN_TAGS + 1):
        tags = b"".join(unsigned_varint(tag) + b"\x00" for tag in range(count))
        data = front + unsigned_varint(count) + tags
        assert agree_on_dicts(root, data, 0, len(data), SHOW) is (count == MAX_UNKNOWN_TAGS)
    cut = front + unsigned_varint(3) + b"\x00\x01a\x05\x00\x06\x09b"
    assert both(root, cut)


def test_numbers_of_problems_are_the_kernels() -> None:
    """By the names in the kernel's source."""
    source = (Path(body_problems.__file__).parents[2] / "kernel" / "walk_notes.zig").read_text()
    inside = source.split("const Problem = enum(u16) {")[1].split("};")[0]
    stated = [line.strip().rstrip(",").split(" = ") for line in inside.splitlines() if " = " in line]
    names = {id(value): name for name, value in vars(body_problems).items() if isinstance(value, Template)}
    assert [(name.upper(), int(at)) for name, at in stated] == [
        (names[id(template)], at) for at, template in enumerate(NUMBERED, start=1)
    ]
