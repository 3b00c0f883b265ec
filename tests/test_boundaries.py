"""Batch boundaries and other connections change nothing that a connection yields."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.packets import PacketBatch
from tests.baseline.inputs import DISTURBANCES
from tests.choice import examples, one_in
from tests.conftest import shipped_captures
from tests.craft import damage, disturb
from tests.craft.batches import batch
from tests.craft.outcome import Line, Output, outcome, output
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.enrich.talks import both

SHIPPED = {path.name: path for path in shipped_captures()}

UNREST = {"calm": damage.composed(), "resegmented": disturb.resegmented, **DISTURBANCES}


@functools.cache
def scene(name: str, seed: int) -> list[Packet]:
    """The crafted sample, disturbed; topics by id with their names on another connection; or an unchanged capture."""
    if name in SHIPPED:
        return read_packets(SHIPPED[name])
    return both() if name == "names" else UNREST[name](mixed(), Random(seed))


@functools.cache
def in_one(name: str, seed: int) -> Output:
    """With names learned from other connections."""
    return output([batch(scene(name, seed))], enriched=True)


def cut(whole: PacketBatch, rows: Iterable[int]) -> list[PacketBatch]:
    """`whole` cut before each of `rows`."""
    parts: list[PacketBatch] = []
    rest, gone = whole, 0
    for row in sorted(set(rows)):
        head, rest = rest.split(row - gone)
        parts.append(head)
        gone = row
    return [*parts, rest]


def same(found: Output, expected: Output) -> None:
    """Fail with the first line that differs, which is easier to read than all of them."""
    for these, those in ((found.json, expected.json), (found.text, expected.text)):
        for one, other in itertools.zip_longest(these.splitlines(), those.splitlines()):
            assert one == other
    assert found == expected


@given(name=st.sampled_from(sorted([*UNREST, *one_in(9, list(SHIPPED))])), seed=st.integers(0, 1), data=st.data())
@examples(36)
def test_batches_cut_anywhere(name: str, seed: int, data: st.DataObject) -> None:
    packets = scene(name, seed)
    rows = data.draw(st.sets(st.integers(1, len(packets) - 1), min_size=1, max_size=12))
    same(output(cut(batch(packets), rows), enriched=True), in_one(name, seed))


# -- one connection alone


def by_connection(lines: Sequence[Line]) -> dict[tuple[str, int], list[Line]]:
    """Lines of each Kafka connection by (its endpoints, its index among connections with the same endpoints).

    Exchanges are numbered within the connection. "Not Kafka" is left aside: it is the one report that depends on other
    connections, because it appears only where the endpoint spoke Kafka before.
    """
    ends: dict[int, str] = {}
    lines = [line for line in lines if line.get("kind") != "not-kafka"]
    for line in lines:
        if line["type"] != "problem":
            ends[line["connection"]] = f"{line['client']} {line['broker']}"
    seen: dict[str, int] = defaultdict(int)
    names = {}
    for number in sorted(ends):
        names[number] = (ends[number], seen[ends[number]])
        seen[ends[number]] += 1
    found: dict[tuple[str, int], list[Line]] = defaultdict(list)
    exchanges: dict[int, dict[int, int]] = defaultdict(dict)
    for line in lines:
        number = line["connection"]
        if number not in names:
            continue
        plain = {key: value for key, value in line.items() if key not in {"connection", "exchange"}}
        if "exchange" in line:
            own = exchanges[number]
            plain["exchange"] = own.setdefault(line["exchange"], len(own))
        if line["type"] == "problem":
            # The number of the exchange is part of the sentence.
            plain["detail"] = plain["detail"].partition(": ")[2] or plain["detail"]
        found[names[number]].append(plain)
    return found


def alone(packets: Sequence[Packet]) -> dict[tuple[str, int], list[Line]]:
    """The same, from runs that each see only the packets of one pair of endpoints."""
    places: dict[object, list[int]] = defaultdict(list)
    for index, packet in enumerate(packets):
        places[packet.connection].append(index)
    merged: dict[tuple[str, int], list[Line]] = {}
    for indices in places.values():
        part = batch([packets[index] for index in indices], indices)
        merged.update(by_connection(outcome([part]).lines))
    return merged


@pytest.mark.parametrize("name", [*one_in(4, list(UNREST)), *one_in(14, list(SHIPPED), 1)])
def test_a_connection_alone_yields_the_same(name: str) -> None:
    packets = scene(name, 1)
    # Without names, which connections learn from each other.
    together = by_connection(outcome([batch(packets)]).lines)
    apart = alone(packets)
    assert sorted(apart) == sorted(together)
    for connection, lines in together.items():
        for one, other in itertools.zip_longest(apart[connection], lines):
            assert one == other
