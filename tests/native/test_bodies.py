"""Bodies of every version, sound, cut, changed or longer: the kernel makes the JSON and dicts that the walker makes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from benchmarks.trouble_messages import odd_pairs
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.schema import packed, schema, walker
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, MAX_UNKNOWN_TAGS, DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import Struct, ops_of
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.walker import NOT_TEXT, NUMBERED, Span
from kafkasniff.sinks.jsonl import BytesForm
from tests.choice import DEEP, fewer
from tests.craft.kafka_bytes import unsigned_varint
from tests.kafka.encode import Encoder, Plan
from tests.kafka.schemas import data_schemas, schemas_of
from tests.native.kernel_and_walker import agree, agree_on_dicts, caller, program, walked

SHOW, HIDE = DecodeOptions(show_secrets=True), DecodeOptions()
CHOICES: list[dict[str, Any]] = [
    {"nulls": True, "tagged": False, "unknown_tags": False, "count": 1},
    {"nulls": False, "tagged": True, "unknown_tags": False, "count": 1},
    {"nulls": False, "tagged": True, "unknown_tags": True, "count": 2},
    {"nulls": False, "tagged": False, "unknown_tags": False, "count": 0},
    {},
]
FORMS: tuple[BytesForm, ...] = ("auto", "base64", "hex")
EDGES = (0, 1, 0x5C, 0x7F, 0x80, 0xC3, 0xED, 0xF4, 0xFF)
GROUPS = 6
each_group = pytest.mark.parametrize("group", range(GROUPS))
"""Layouts are tested in groups: each alone would be a thousand tests."""

asking = functools.cache(caller)
"""The caller that wants this; making one takes longer than a call."""


def layouts(group: int) -> Iterator[tuple[Schema, random.Random]]:
    """Layouts of messages and data blocks, each with its own random numbers."""
    found = [*(one for key in api_keys() for one in schemas_of(key)), *data_schemas()]
    for one in found[group::GROUPS]:
        yield one, random.Random(f"{one.name} {one.version}")


@contextmanager
def named(one: Schema) -> Iterator[None]:
    """An assertion that fails names the layout."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"{one!r}")
        raise


def both(root: Struct, data: bytes, options: DecodeOptions = SHOW, form: BytesForm = "auto") -> tuple[bool, bool]:
    """Whether the kernel took a body as JSON and as a dict; raises AssertionError where anything differs."""
    framed = b"\x01" * 3 + data + b"\xfe" * 5
    end = 3 + len(data)
    made = asking(form=form, show_secrets=options.show_secrets).body(program(root), framed, 3, end, lambda _: None)
    as_json = agree(made, root, framed, 3, end, options, form)
    return as_json, agree_on_dicts(root, framed, 3, end, options)


def leaves(one: Schema) -> bool:
    """Whether bodies of a layout may be left to Python though nothing is wrong with them."""
    ops = ops_of(one.root)
    if any("set" in op.flags for op in ops):
        return True  # names of operations are put beside a set
    return any(op.kind == "float64" or (op.kind == "records" and {"secret", "unaligned"} & {*op.flags}) for op in ops)


def is_left(root: Struct, data: bytes) -> bool:
    """Whether the walker has a problem to report that the kernel leaves to it, those of records included."""
    _, context = walked(root, data, 0, len(data), SHOW)
    kinds = {problem.kind for problem in context.problems}
    left = {"tags-not-ascending", "tag-size-mismatch", "too-many-elements"}
    return bool(kinds & left) or (root.records and len(kinds) > 1)


@each_group
def test_sound_bodies(group: int) -> None:
    for one, rng in layouts(group):
        for number, choices in enumerate(CHOICES):
            data = Encoder(Plan(rng, **choices)).body(one.root)
            with named(one):
                assert both(one.root, data, SHOW, FORMS[number % 3])[0] or leaves(one), data.hex()


@each_group
def test_cut_changed_and_trailing_bytes(group: int) -> None:
    most = 100_000 if DEEP else fewer(3, 15)
    for one, rng in layouts(group):
        data = Encoder(Plan(rng)).body(one.root)
        with named(one):
            for size in rng.sample(range(len(data)), min(len(data), most)):
                assert both(one.root, data[:size])[1], data[:size].hex()
            for _ in range(most // 3):
                longer = data + rng.randbytes(rng.randrange(1, 9))
                assert both(one.root, longer)[1], longer.hex()
            for _ in range(most):
                changed = bytearray(data or b"\0")
                for _ in range(rng.choice([1, 1, 2, 5])):
                    changed[rng.randrange(len(changed))] = rng.choice([*EDGES, rng.randrange(256)])
                both(one.root, bytes(changed[: rng.choice([len(data), len(data), rng.randrange(len(data) + 1)])]))


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


@each_group
def test_nulls_and_counts(group: int) -> None:
    """Some lengths and counts are null, with their value and without, or another number."""
    for one, rng in layouts(group):
        data = Encoder(Plan(rng, tagged=False)).body(one.root)
        places = list(lengths(one.root, data))
        for start, end, compact, is_count in places if DEEP else rng.sample(places, min(len(places), fewer(2, 6))):
            size = end - start
            right = int.from_bytes(data[start:end], "big") if not compact else data[start] - 1
            with named(one):
                for value in (-1, -2, right + 1, right - 1, len(data), 0x7FFFFFFF):
                    changed = data[:start] + number(value, size, compact=compact) + data[end:]
                    assert both(one.root, changed)[1] or is_left(one.root, changed), changed.hex()
                if not is_count and right >= 0:
                    assert both(one.root, data[:start] + number(-1, size, compact=compact) + data[end + right :])[1]


def test_secrets_stay_hidden() -> None:
    """Without leave to show secrets: whatever the kernel takes is what the walker makes of it."""
    for group in range(GROUPS):
        for one, rng in layouts(group):
            if not one.has_secrets:
                continue
            for choices in CHOICES:
                data = Encoder(Plan(rng, **choices)).body(one.root)
                with named(one):
                    both(one.root, data, HIDE)
                    for size in rng.sample(range(len(data)), min(len(data), fewer(4, 20))):
                        both(one.root, data[:size], HIDE)
                        changed = bytearray(data)
                        changed[size] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
                        both(one.root, bytes(changed), HIDE)


# -- single bodies ----------------------------------------------------------------------------------------------------


def root_of(key: int, version: int) -> Struct:
    """The layout of a request."""
    found = api(key)
    assert found is not None
    return found.request(version).root


def heartbeat(group: bytes) -> bytes:
    return len(group).to_bytes(2, "big") + group + bytes(4) + b"\x00\x00"


def test_text() -> None:
    """Every character is escaped as orjson does; what is not UTF-8 is bytes. Text is looked at 16 bytes at a time."""
    root = root_of(12, 0)
    for code in [*range(0x250), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]:
        for front in (0, 15, 16, 40):
            assert all(both(root, heartbeat(("y" * front + chr(code) + "z" * 20).encode())))
    for text in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe6\x97", b"ab\xff", b"\xf8\x88\x80\x80\x80"):
        for front in (0, 13, 16, 31):
            raw = heartbeat(b"x" * front + text)
            assert all(both(root, raw))
            made = asking().body(program(root), raw, 0, len(raw), lambda _: None)
            assert made is not None
            assert NUMBERED[made.problems[0].number - 1] is NOT_TEXT


def test_bounds_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and sizes that the bytes cannot hold are refused before anything is made of them; so are large bodies."""
    root = root_of(3, 1)
    for count in (1, 2, 1000, 0x7FFFFFFF, -2):
        raw = count.to_bytes(4, "big", signed=True)
        made = asking(show_secrets=True).body(program(root), raw, 0, 4, lambda _: None)
        assert agree(made, root, raw, 0, 4, SHOW)
        assert made is not None
        assert made.json == b"{}"
    assert asking().body(program(root_of(18, 0)), b"", 0, 0, lambda _: None) is not None
    raw = (200).to_bytes(4, "big") + b"\x00\x05topic" * 200
    monkeypatch.setattr("kafkasniff.native.caller.FIRST_OUTPUT", 64)
    assert agree(caller().body(program(root), raw, 0, len(raw), lambda _: None), root, raw, 0, len(raw), SHOW)
    monkeypatch.setattr("kafkasniff.native.caller.MAX_OUTPUT", 1024)
    assert caller().body(program(root), raw, 0, len(raw), lambda _: None) is None


def test_many_problems_and_unknown_tags_are_left_to_the_walker() -> None:
    for count in (MAX_PROBLEMS - 1, MAX_PROBLEMS, MAX_PROBLEMS + 1):
        raw = count.to_bytes(4, "big") + b"\xff\xff" * count
        assert both(root_of(3, 1), raw)[1] is (count <= MAX_PROBLEMS)
    root, front = root_of(12, 4), b"\x02g" + bytes(4) + b"\x02m" + b"\x00"
    for count in (MAX_UNKNOWN_TAGS, MAX_UNKNOWN_TAGS + 1):
        tags = b"".join(unsigned_varint(tag) + b"\x00" for tag in range(count))
        data = front + unsigned_varint(count) + tags
        assert agree_on_dicts(root, data, 0, len(data), SHOW) is (count == MAX_UNKNOWN_TAGS)
    assert both(root, front + unsigned_varint(3) + b"\x00\x01a\x05\x00\x06\x09b")[1]


# -- whole messages: the walker is not asked, and would read the same -------------------------------------------------


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


def decoded(pairs: list[tuple[bytes, bytes]], *, cut: bool) -> list[Any]:
    """Both messages of each pair, without what differs from one reading to the next."""
    found: list[Any] = []
    for request, response in pairs:
        key, version = int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")
        found += [
            decode_request(request, 4, len(request), HIDE, cut=cut),
            decode_response(response, 4, len(response), key, version, HIDE, cut=cut),
        ]
    return [msgspec.structs.replace(one, carry=None) for one in found]


def with_secrets() -> list[tuple[bytes, bytes]]:
    """SASL, configurations and topics with configurations, cut anywhere: what is withheld may be misread."""
    rng, found = random.Random(3), []
    for key in (19, 29, 32, 33, 36, 38, 44, 51, 58):
        known = api(key)
        assert known is not None
        for version in known.versions:
            tags = b"\x00" if known.request_header(version) > 1 else b""
            head = bytes(4) + key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + tags
            bodies = [Encoder(Plan(rng)).body(one.root) for one in (known.request(version), known.response(version))]
            for _ in range(fewer(3, 8)):
                request, response = (body[: rng.randrange(len(body) + 1)] for body in bodies)
                found.append((head + request, bytes(9) + response + bytes(rng.randrange(2))))
    return found


@pytest.mark.parametrize("cut", [False, True])
def test_whole_messages(monkeypatch: pytest.MonkeyPatch, cut: bool) -> None:
    pairs, secret = odd_pairs(7, 0.3), with_secrets()
    asked = count_walks(monkeypatch)
    native = decoded(pairs, cut=cut)
    assert asked == []
    kinds = {problem.kind for one in native for problem in one.problems}
    assert {"body-truncated", "array-too-long", "trailing-bytes", "null-not-allowed"} <= kinds
    hidden = decoded(secret, cut=cut)
    assert any(problem.kind == "body-withheld" for one in hidden for problem in one.problems)
    leave_to_walker(monkeypatch)
    assert decoded(pairs, cut=cut) == native
    assert asked
    for one, other in zip(hidden, decoded(secret, cut=cut), strict=True):
        assert repr(one) == repr(other)
