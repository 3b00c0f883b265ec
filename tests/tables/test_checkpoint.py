"""Runs resumed from saved states yield the same as one run. A state cannot do harm, even if an attacker wrote it."""

from __future__ import annotations

import functools
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Output
from kafkasniff.enrich import Enricher
from kafkasniff.errors import UsageError
from kafkasniff.kafka.records.batches import Batch, HeldRecords
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Endpoint, Exchange, Message
from kafkasniff.tables.checkpoint import ShardState, dump, load
from kafkasniff.tables.checkpoint.graph import Graph
from kafkasniff.tables.checkpoint.layouts import layouts
from kafkasniff.tables.checkpoint.wire import Values
from tests.choice import one_in

CAPTURES = sorted((Path(__file__).parents[2] / "captures").glob("*.pcap*"))


def run(capture: Path, *, cut: bool, **options: Any) -> list[Output]:
    inspector = Inspector(**options)
    events: list[Output] = []
    with open_captures([capture], chunk_size=5_000) as source:
        for batch in source:
            events += inspector.feed(batch)
            if cut:
                inspector = load(dump(inspector), Inspector)
    return events + inspector.close()


@pytest.mark.parametrize("capture", one_in(5, CAPTURES), ids=lambda path: path.name)
def test_resumed_runs_equal_one_run(capture: Path) -> None:
    """In every other capture, records are kept for later in the way exports keep them."""
    columns = CAPTURES.index(capture) % 2 == 0
    options: dict[str, Any] = {"records": "columns", "connections": True} if columns else {}
    whole, parts = run(capture, cut=False, **options), run(capture, cut=True, **options)
    assert parts == whole
    assert [list(batches(one)) for one in parts] == [list(batches(one)) for one in whole]


def batches(value: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, Batch):
        yield value.held, value.records, value.uncompressed
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from batches(getattr(value, name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from batches(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from batches(one)


@functools.cache
def small() -> bytes:
    """The state of one connection with an open request."""
    inspector = Inspector(connections=True, records="columns")
    with open_captures([CAPTURES[0]], chunk_size=400) as source:
        for batch in source:
            inspector.feed(batch)
            if any(len(one.exchanges) for one in inspector.followed):
                break
    return dump(inspector)


def table(state: bytes) -> list[list[Any]]:
    found: list[list[Any]] = msgspec.msgpack.decode(state.split(b"\n", 1)[1])
    return found


def forged(objects: Any) -> bytes:
    return small().split(b"\n", 1)[0] + b"\n" + msgspec.msgpack.encode(objects)


def tag(kind: type) -> int:
    return [layout.of for layout in layouts()].index(kind)


@functools.cache
def existing() -> Inspector:
    return Inspector()


def process() -> Mapping[Any, Any]:
    """Everything that a state must not change: classes, defaults and objects of the process."""
    classes = {layout.of for layout in layouts()} | {DecodeContext, DecodeOptions, Message, Exchange, Endpoint, Batch}
    found: dict[Any, Any] = {(one, name): id(value) for one in classes for name, value in vars(one).items()}
    found["options"] = repr(DecodeOptions())
    found["redacted"] = repr(DecodeContext(DecodeOptions()).withhold(b"secret"))
    found["existing"] = dump(existing())
    found["fresh"] = dump(ShardState(Inspector(), Enricher(), set()))
    return found


def loads(state: bytes) -> bool:
    """Whether the state becomes an inspector; if not, it is refused."""
    try:
        found = load(state, Inspector)
    except UsageError:
        return False
    assert type(found) is Inspector
    return True


def refused(state: bytes, match: str = "damaged") -> None:
    with pytest.raises(UsageError, match=match) as raised:
        load(state, Inspector)
    assert "\n" not in str(raised.value)
    assert "--discard-state" in str(raised.value)


# -- written by other programs and older versions -------------------------------------------------------------------


def test_unusable_states() -> None:
    header, rest = small().split(b"\n", 1)
    word, form, layout, version = header.split(b" ")
    refused(b"", "not a state of kafkasniff")
    refused(header, "not a state of kafkasniff")
    refused(b" ".join((word, b"2", layout, version)) + b"\n" + rest, "in a format that")
    refused(b" ".join((word, form, layout[::-1], b"0.0.7")) + b"\n" + rest, r"written by kafkasniff 0\.0\.7, in")
    refused(b" ".join((word, form, layout, b"0.0.7\x1b[2J")) + b"\n" + rest, "not a state of kafkasniff")
    # Its contents follow from its layout, not from its version.
    assert type(load(b" ".join((word, form, layout, b"0.0.7")) + b"\n" + rest, Inspector)) is Inspector
    refused(dump(Enricher()), "not the state of an inspector")
    refused(small() + b"\0")
    refused(forged([]), "not the state of an inspector")


# -- hostile bytes ----------------------------------------------------------------------------------------------------


OTHERS: list[Any] = [None, True, 1 << 63, "text", b"bytes", [[]], {"a": 1}]
"""One of each kind that the form knows."""


def test_values_of_other_types() -> None:
    """Every field of objects of every class, with values of all types."""
    before = process()
    objects = table(small())
    loaded = tried = 0
    for kind in {fields[0] for fields in objects}:
        # Each connection has objects of nearly every class.
        for number in one_in(16, [number for number, fields in enumerate(objects) if fields[0] == kind]):
            fields = objects[number]
            for place in range(len(fields)):
                for other in OTHERS:
                    changed = [*fields[:place], other, *fields[place + 1 :]]
                    loaded += loads(forged([*objects[:number], changed, *objects[number + 1 :]]))
                    tried += 1
    assert loaded < tried * 4 / len(OTHERS), "most values are of one type"
    assert process() == before


def test_objects_of_other_classes() -> None:
    """A field's object must have the field's class, and only classes allowed in a state exist."""
    objects = table(small())
    kinds = [layout.of for layout in layouts()]
    for number in range(1, len(objects)):
        other = objects[number - 1] if objects[number - 1][0] != objects[number][0] else objects[0]
        swapped = [*objects]
        swapped[number] = other
        with pytest.raises(UsageError):
            load(forged(swapped), Inspector)
    refused(forged([[len(kinds)], *objects[1:]]))
    refused(forged([["Inspector", *objects[0][1:]], *objects[1:]]))


def test_references_beyond_the_table() -> None:
    objects = table(small())
    where = 1 + ["_ports", "_show_secrets", "_detail"].index("_detail")
    for place in (len(objects), 1 << 40, -1, 0):
        refused(forged([[*objects[0][:where], place, *objects[0][where + 1 :]], *objects[1:]]))


def test_values_refer_only_to_earlier_values() -> None:
    """A value that is built in one step cannot contain itself."""
    from kafkasniff.kafka.messages import envelope

    objects = table(small())
    itself = [tag(envelope._Inner), 0, 0, len(objects)]
    refused(forged([*objects, itself]), "IndexError")
    assert type(load(forged([*objects, [tag(envelope._Inner), 0, 0, None]]), Inspector)) is Inspector


def test_a_small_state_cannot_take_much_memory() -> None:
    """Counts are limited by the bytes present, and depth has a bound."""
    header = small().split(b"\n", 1)[0] + b"\n"
    had = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (
        *(b"\xdd\x7f\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"),
        b"\xdd\x00\x0f\xff\xff" * 5000,
        b"\x91" * 1_000_000,
        b"\x91\x92" + bytes((0,)) + b"\xdd\x7f\xff\xff\xff\x00",
        b"\xc9\x7f\xff\xff\xff\x01",
    ):
        refused(header + data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - had < 100_000


# -- classes and their layouts ----------------------------------------------------------------------------------------


def test_which_exports_can_be_continued() -> None:
    """A change of the fingerprint, even by a rename, refuses the states of all exports."""
    assert Graph(layouts()).fingerprint == "bedc7be8a5fe6cff"


def test_names_in_bodies_are_text() -> None:
    """Writers of JSON expect that."""
    values = Values[Message](Message)
    for body in ({"a": {1: 2}}, {"a": [{b"x": 1}]}, {"a": [[{"b": {None: 1}}]]}):
        with pytest.raises(UsageError, match="a name in a body is not text"):
            values.load(values.dump(Message("request", 1, body=body)))


# -- single values ------------------------------------------------------------------------------------------------


def test_a_batch_keeps_its_bytes_and_records() -> None:
    values = Values[Message](Message)
    batch = Batch({"compression": "gzip"})
    batch.held, batch.records, batch.uncompressed = HeldRecords(b"wire", 9), [{"key": b"k"}], 12
    given = Message("request", 1, body={"topic_data": [{"records": {"batches": [{}, batch]}}]})
    again = values.load(values.dump(given))
    assert list(batches(again)) == [(HeldRecords(b"wire", 9), [{"key": b"k"}], 12)]
    assert again == given
    inner = msgspec.msgpack.encode([{"records": [msgspec.msgpack.Ext(1, b"")]}, None, 0, None, None])
    with pytest.raises(UsageError, match="an extension in a batch"):
        values.load(values.dump(Message("request", 1, body={"batches": [msgspec.msgpack.Ext(1, inner)]})))


def test_a_capture_whose_name_is_no_text() -> None:
    r"""Tables show it as `\xNN`, and so do events."""
    values = Values[Message](Message)
    again = values.load(values.dump(Message("request", 1, capture="a\udcff.pcap", body={"name": "ü"})))
    assert (again.capture, again.body) == (r"a\xff.pcap", {"name": "ü"})
    inspector = Inspector()
    inspector._state.captures = ("a\udcff.pcap",)
    assert load(dump(inspector), Inspector)._state.captures == (r"a\xff.pcap",)


def test_damaged_output_of_a_task() -> None:
    for data in (b"", b"\xc0", b"\x92\x01\x02", b"\xc1", b"\x93\x01", b"\xd4\x02\x00", b"\x91" * 5000):
        with pytest.raises(UsageError, match="what a task wrote is damaged") as raised:
            Values[Any](tuple[Exchange, bool]).load(data)
        assert "\n" not in str(raised.value)


def test_equal_sets_are_stored_alike() -> None:
    """Whatever they have had before, since strings in sets have another order in each process."""
    given = [Enricher(), Enricher()]
    names = [f"topic {number}" for number in range(50)]
    for enricher, order in zip(given, (names, names[::-1]), strict=True):
        enricher._unknown.update(f"{name} of before" for name in order)
        enricher._unknown.clear()
        enricher._unknown.update(order)
        enricher.missed.update(range(0, 10**6, 7919) if order is names else reversed(range(0, 10**6, 7919)))
    assert dump(given[0]) == dump(given[1])
    again = load(dump(given[0]), Enricher)
    assert (again._unknown, again.missed) == (set(names), set(range(0, 10**6, 7919)))
