"""Lines that the kernel writes of any bodies are those of messages one by one; columns of text are padded later."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.dissectors import api, api_by_name, api_keys
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.schema.definition import FORMATS, Field
from kafkasniff.model import Direction
from kafkasniff.native import kernel, text_lines
from kafkasniff.native.text_lines import LAST, TextPadding, capture_mark, column_mark, day_mark
from kafkasniff.packets import PacketBatch
from kafkasniff.redact.payload import Payload
from kafkasniff.sinks.summaries import templates
from kafkasniff.sinks.summaries.compiled import table_of
from tests.choice import examples, fewer
from tests.craft import kafka_bytes as kafka
from tests.engine.shown import agree
from tests.engine.talks import Say, exchange_of, packets_of, talks
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan

HEARTBEAT, SASL_HANDSHAKE, UNKNOWN_API = 12, 17, 120
TOGETHER = 60
"""Exchanges of one connection."""
NAMES = [b"a", b"orders", b"a b", b'x"y', b"", b"t" * 64, b"u" * 65, b"z" * 200, b"::1"]
TEXTS = [
    *(b"", b"plain", b'q"uote', b"back\\slash", b"\x00\t\n\x7f", b"\x1b[31m", "größe €".encode()),
    *("漢字 ｗｉｄｅ".encode(), "e\u0301 \u200b\u202e\u2800 \U0001f600\U000e0001".encode(), "…".encode()),
    *(b"\xff", b"\xed\xa0\x80", b"\xc3", b"x" * 399, b"x" * 400, b"x" * 401, b"\xfe" * 401, b"\0" * 1000),
    *(b"y" * 399 + "é".encode(), b"y" * 398 + "漢z".encode(), b"y" * 399 + b"\xe6z", b"y" * 399 + b"\xe6"),
    *(b"y" * 398 + b"\xed\xa0zz", b"y" * 397 + "\U0001f600".encode(), b"y" * 397 + b"\xf4\x90\x80zz"),
    *("漢".encode() * 133 + b"ab", "漢".encode() * 500, b"y" * 399 + b"\xc0z", b"y" * 15 + b"\x80" + b"y" * 400),
]
"""Values and names: visible and not, wide, too long, cut in a character, not UTF-8."""
TIMES = [-2, -1, 0, 1, 1_700_000_000_123, 253_402_300_799_999, 253_402_300_800_000]


class NaturalEncoder(Encoder):
    """Bodies with plausible names, records and numbers; some names are odd texts."""

    def scalar(self, field: Field, nullable: bool) -> bytes:
        rng, width = self.rng, 2 if field.type == "string" else 4
        if field.type == "error" or field.name == "throttle_time_ms":
            code = rng.choice([-1, 1, 3, 6, 6, 14, 74, 129, 999]) if rng.random() < 0.2 else 0
            return code.to_bytes(FORMATS[field.type][1], "big", signed=True)
        if field.type == "int64" and rng.random() < 0.7:
            return rng.choice(TIMES).to_bytes(8, "big", signed=True)
        if field.type not in {"string", "bytes", "records"}:
            return super().scalar(field, nullable)
        if nullable and self.plan.flip(self.plan.nulls):
            return b"\x00" if field.compact else b"\xff" * width
        if field.type == "records":
            raw = b"".join(self._batch() for _ in range(rng.choice([0, 1, 1, 2, 5])))
            if raw and not field.whole and rng.random() < 0.3:
                raw += raw[: rng.randrange(len(raw))]
        elif field.type == "bytes":
            raw = rng.choice(TEXTS)
        else:
            raw = rng.choice(NAMES if rng.random() < 0.95 else TEXTS)
        return (kafka.unsigned_varint(len(raw) + 1) if field.compact else len(raw).to_bytes(width, "big")) + raw

    def _batch(self) -> bytes:
        rng = self.rng
        # Among them a codec and a bit that no release knows.
        attributes = rng.choice([0, 0, 1, 2, 3, 4]) | rng.choice([*[0] * 9, 0x10, 0x30, 0x40, 0x7, 0x80])
        payload = rng.randbytes(rng.choice([0, 1, 40, 2000]))
        return craft.batch(
            payload, rng.choice([0, 1, 12, 100_000]), attributes=attributes, base_offset=rng.randrange(1 << 40)
        )


def framed(key: int, version: int, direction: Direction, body: bytes) -> Callable[[int], bytes]:
    """A message with this body, by its correlation id."""
    if direction == "response":
        flexible = response_plan(key, version).header > 0
        return lambda number: kafka.response(number, body, flexible=flexible)
    header = request_plan(key, version).header
    if header == 0:
        return lambda number: kafka.frame(kafka.int16(key) + kafka.int16(version) + kafka.int32(number) + body)
    return lambda number: kafka.request(key, version, number, body, client_id="client", flexible=header > 1)


def speech(key: int, version: int, request: bytes, response: bytes) -> Say:
    return exchange_of(
        framed(key, version, "request", request), framed(key, version, "response", response), sizes=(60_000,)
    )


def spoken(exchanges: Sequence[Say]) -> list[PacketBatch]:
    """Packets of connections that have these exchanges, after a batch that shows that they are Kafka."""
    words = {str(number): say for number, say in enumerate(exchanges)}
    names = list(words)
    return packets_of(talks([names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)], words=words), [])


def versions() -> Iterator[tuple[int, int]]:
    for key in api_keys():
        found = api(key)
        assert found is not None
        # After a handshake of version 0 there are no messages.
        yield from ((key, version) for version in found.versions if key != SASL_HANDSHAKE or version)


def damaged(body: bytes, rng: Random) -> bytes:
    """A body as it is, cut, with more bytes, or with other ones."""
    changed = bytearray(body)
    for _ in range(rng.randrange(1, 3) if body else 0):
        changed[rng.randrange(len(body))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    more = body + b"\0\1"[: rng.randrange(3)]
    return rng.choice((body, body, body[: rng.randrange(len(body) + 1)], more, bytes(changed)))


WAYS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("json", {}, {}),
    ("text", {}, {"colour": True}),
    ("tree", {}, {"width": 40, "colour": True}),
    ("csv", {}, {}),
    ("json", {"show_secrets": True}, {"form": "hex", "payload": Payload.hashed(b"salt of the tests")}),
    ("text", {}, {"verbosity": 1, "width": 60}),
    ("tree", {}, {"width": 133}),
    ("json", {"records": "batches"}, {"form": "base64", "payload": Payload("dropped")}),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_bodies_of_every_version(way: int) -> None:
    form, options, sink = WAYS[way]
    rng, exchanges = Random(way), []
    for key, version in list(versions())[way % fewer(4, 2) :: fewer(4, 2)]:
        plan = rng.choice([Plan(rng, unknown_tags=False), Plan(rng, count=5, nulls=False), Plan(rng, nulls=True)])
        schemas = request_plan(key, version).schema, response_plan(key, version).schema
        request, response = (NaturalEncoder(plan).body(one.root) if one is not None else b"" for one in schemas)
        exchanges.append(speech(key, version, damaged(request, rng), damaged(response, rng)))
    found, _ = agree(form, spoken(exchanges), options=options, sink=sink)
    assert found.native > 0.6 * len(exchanges)


@pytest.mark.parametrize("payload", [Payload(), Payload("dropped")], ids=["shown", "dropped"])
@pytest.mark.parametrize("shows", [False, True])
def test_versions_that_are_not_known(payload: Payload, *, shows: bool) -> None:
    """The next version of each API, and an unknown API: the bytes of their bodies, or the number of bytes."""
    newest = {key: found.max_version for key in api_keys() if (found := api(key)) is not None}
    exchanges = [
        speech(key, version + 1, b"\xffbody", b"\xffbody") for key, version in (*newest.items(), (UNKNOWN_API, 0))
    ]
    found, _ = agree("json", spoken(exchanges), options={"show_secrets": shows}, sink={"payload": payload})
    assert found.native > len(exchanges)


@pytest.mark.parametrize(("first", "most"), [(200, 1 << 20), (200, 900)])
def test_a_long_line_makes_room(monkeypatch: pytest.MonkeyPatch, first: int, most: int) -> None:
    """Lines that are longer than there may be room for are Python's."""
    monkeypatch.setattr("kafkasniff.native.caller.FIRST_OUTPUT", first)
    monkeypatch.setattr("kafkasniff.sinks.native_lines.MAX_SIZE", most)
    exchanges = [speech(HEARTBEAT, 0, kafka.string("g" * size) + bytes(6), b"\0\0") for size in range(100, 3_000, 200)]
    found, _ = agree("json", spoken(exchanges))
    assert (found.decoded > 0) == (most < 1_000)


@pytest.mark.parametrize("colour", [False, True])
def test_words_and_amounts(colour: bool) -> None:
    """Each character of a group's name, and sizes of records, rounded."""
    groups = [bytes((character,)) * 3 for character in range(256)]
    groups += [b"", b"x" * 64, b"x" * 65, b"a b" * 30, b'"' * 64, b"gr\xc3\xb6\xc3\x9fe", b"x" * 64 + b"\xc3\xa4"]
    exchanges = [speech(HEARTBEAT, 0, len(one).to_bytes(2, "big") + one + bytes(6), b"\0\x1b") for one in groups]
    near = (at + off for at in (1350, 9950, 99_500, 999_500) for off in (-1, 0, 1))
    for size in [*range(61, 1100, fewer(70, 7)), 1050, 1150, 1250, *near]:
        field = kafka.int32(size) + craft.batch(bytes(size - 61), 1)
        body = b"\xff\xff\x00\x01" + bytes(4) + kafka.array([kafka.string("t") + kafka.array([bytes(4) + field])])
        exchanges.append(speech(0, 3, body, b""))
    found, _ = agree("text", spoken(exchanges), sink={"colour": colour})
    assert found.native > 1.5 * len(exchanges)


@given(st.lists(st.binary(max_size=500) | st.text(max_size=450).map(str.encode) | st.sampled_from(TEXTS), min_size=1))
def test_keys_and_values_in_trees(texts: list[bytes]) -> None:
    values = [None, *texts]
    records = [kafka.record(index, one, values[-1 - index], [("h", b"x")] * index) for index, one in enumerate(values)]
    batch = kafka.record_batch(records)
    say = exchange_of(lambda n: kafka.produce_request(n, "orders", batch), lambda n: kafka.produce_response(n, "a", n))
    found, _ = agree("tree", spoken([say]), sink={"width": 79})
    assert found.native == 8


LEFT = frozenset({
    *("JoinGroup request", "JoinGroup response", "SyncGroup request", "SyncGroup response", "DescribeGroups response"),
    *("SaslHandshake request", "SaslHandshake response", "SaslAuthenticate request", "SaslAuthenticate response"),
    *("CreateTopics request", "AlterConfigs request", "IncrementalAlterConfigs request", "PushTelemetry request"),
    *("FetchSnapshot response", "ShareFetch response"),
})  # fmt: skip
"""Templates of which Python makes all summaries: they need what was read inside of bytes, or configuration values."""


def test_all_summaries_but_few_are_the_kernels() -> None:
    left = set()
    for name, direction in templates.titles():
        found = api_by_name(name)
        assert found is not None
        if all(table_of(found.key, version, direction) is None for version in found.versions):  # type: ignore[arg-type]
            left.add(f"{name} {direction}")
    assert left == LEFT


# -- columns of text ---------------------------------------------------------------------------------------------------


WIDTHS = {"ends": 0, "api": 3, "exchange": 4, "correlation": 7, "client": 8}
CAPTURES = ("", "capture a", "capture b.pcap")
MARK = re.compile("\x1f(?:([eaxrc])(..)|d(.{10})|f(.{4})|l)")

columns = st.tuples(st.sampled_from(sorted(WIDTHS)), st.integers(0, 40) | st.just(2000))
lines = st.tuples(
    st.integers(0, 2),
    st.sampled_from([None, "2026-11-21", "2026-11-22"]),
    st.lists(columns, max_size=5),
    st.sampled_from(["", "orders-0", "x" * 300, "a\n    below"]),
)


def marked(capture: int, day: str | None, cells: list[tuple[str, int]], summary: str) -> str:
    """A line as a sink writes it."""
    head = "".join(f"{'w' * min(width, 60)}{column_mark(name, width)}  " for name, width in cells)
    return f"{capture_mark(capture)}{day_mark(day)}12:00  {head}{summary}{'' if summary else LAST}\n"


def padded(text: str) -> str:
    """The same as it is shown: the specification."""
    widths = dict(zip("eaxrc", WIDTHS.values(), strict=True))
    capture, today, made, at = 0, "", "", 0

    def number(digits: str) -> int:
        return sum((ord(digit) - 0x40) << 5 * place for place, digit in enumerate(reversed(digits)))

    for mark in MARK.finditer(text):
        made, at = made + text[at : mark.start()], mark.end()
        column, width, day, of = mark.groups()
        if column:
            widths[column] = max(widths[column], number(width))
            made += " " * (widths[column] - number(width))
        elif day is not None:
            made += f"{day} UTC\n" if day.strip() and day != today else ""
            today = day if day.strip() else today
        elif of is not None:
            made += f"{CAPTURES[number(of)]}\n" if number(of) and number(of) != capture else ""
            capture = number(of)
        else:
            made = made.rstrip(" ")
    return made + text[at:]


@pytest.mark.parametrize("room", [64 << 10, 256 << 10])
@examples(60)
@given(some=st.lists(lines, max_size=12), at=st.integers(0, 12), blocks=st.integers(0, 400))
@example(some=[(1, None, [("client", 9)], ""), (1, "2026-11-21", [("client", 3)], "")], at=1, blocks=0)
def test_lines_are_padded_in_any_pieces(
    some: list[tuple[int, str | None, list[tuple[str, int]], str]], at: int, blocks: int, room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "OUTPUT", room)
        padding = TextPadding(kernel(), (b"", b""), WIDTHS)
    for line in CAPTURES[1:]:
        padding.add_capture(line.encode())
    made = [marked(*one) for one in some]
    made.insert(at, f"{'y' * 500 * blocks}\n")
    first, rest = "".join(made[:at]), "".join(made[at:])
    shown = b"".join(bytes(padding.pad(part.encode())) for part in (first, rest))
    assert shown.decode() == padded(first + rest)
