"""Exchanges as columns by the kernel: their rows, how many fit into a call, and what is left to Python.

`tests/tables/exports/test_columns.py` compares exports with those of Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.roles import EVERY_BODY, NO_BODY, ExchangeKinds, WantedBodies
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.native import columns as module
from kafkasniff.native import kernel
from kafkasniff.native.columns import PAIR, ExchangeColumns, ExchangeReader, Strings
from kafkasniff.native.feed import ARENA, KEYS, MESSAGE, REQUEST, VERSIONS
from tests.craft import kafka_bytes as kafka

TIME = 1_781_000_000_000_000_000
CLIENT_ID = b"crafted"


def batch(count: int, base: int = 0, **options: Any) -> bytes:
    return kafka.record_batch([kafka.record(at, b"k%d" % at, b"v") for at in range(count)], base, **options)


PRODUCE = (kafka.produce_request(1, "orders", batch(3)), kafka.produce_response(1, "orders", 40))
FAILED = (kafka.produce_request(2, "orders", batch(1)), kafka.produce_response(2, "orders", -1, error=6))
FETCH = (kafka.fetch_request(3, "paid", 7), kafka.fetch_response(3, "paid", batch(5, 7), 12))
EMPTY = (kafka.fetch_request(4, "paid", 12), kafka.fetch_response(4, "paid", b"", 12))

Talk = tuple[bytes, bytes]


class Call:
    """Exchanges as the feed has them: requests in the buffer of the batch, responses in the arena."""

    def __init__(self, talks: Sequence[Talk]) -> None:
        rows = np.zeros(2 * len(talks), MESSAGE)
        self.buffer = self.arena = b""
        for number, talk in enumerate(talks):
            key, version = (int.from_bytes(talk[0][at : at + 2], "big") for at in (4, 6))
            asked, answered = (one[4:] for one in talk)
            for row, data in ((rows[2 * number], asked), (rows[2 * number + 1], answered)):
                row["code"], row["size"] = key * VERSIONS + version, len(data)
                row["time"] = row["first_time"] = TIME + number
            first, second = rows[2 * number], rows[2 * number + 1]
            first["start"], first["flags"], first["client_id"] = len(self.buffer), REQUEST, len(CLIENT_ID)
            first["body"] = 10 + len(CLIENT_ID) + (request_plan(key, version).header > 1)
            second["start"], second["flags"], second["client_id"] = len(self.arena), ARENA, -1
            second["body"] = 4 + (response_plan(key, version).header > 0)
            self.buffer += asked
            self.arena += answered
        self.messages = rows
        self.pairs = np.array([(2 * at, 2 * at + 1) for at in range(len(talks))], PAIR)

    def read(self, reader: ExchangeReader, first: int = 0) -> tuple[ExchangeColumns, int]:
        return reader.read(self.messages, self.buffer, self.arena, self.pairs, first)

    def every(self, reader: ExchangeReader) -> list[ExchangeColumns]:
        """One call after the other."""
        found, first = [], 0
        while first < len(self.pairs):
            columns, after = self.read(reader, first)
            assert after > first
            found.append(columns)
            first = after
        return found


def reader_of(*, names: Any = None, bodies: WantedBodies = EVERY_BODY, **options: Any) -> ExchangeReader:
    kinds = ExchangeKinds(kernel(), show_secrets=False, names=True, bodies=bodies)
    kinds.are_known(np.arange(KEYS * VERSIONS))
    options = {"headers": False, "records": True, "most": 1 << 20, "max_records": 1000, **options}
    reader = ExchangeReader(kernel(), kinds.programs, names=names, bodies=kinds.bodies, **options)
    reader.kinds = kinds  # type: ignore[attr-defined] # owns the programs
    return reader


def texts(strings: Strings) -> list[str]:
    ends = strings.offsets.tolist()
    assert ends[-1] == len(strings.data)
    return [strings.data[start:end].tobytes().decode() for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_rows_of_several_calls(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """A call ends where the output is full; the next one continues there."""
    talks = [PRODUCE, FAILED, FETCH, EMPTY, PRODUCE]
    whole, _ = Call(talks).read(reader_of())
    monkeypatch.setattr(module, "MAX_ROWS", at_once)
    found = Call(talks).every(reader_of())
    assert [len(one.rows) for one in found] == [at_once] * (5 // at_once) + [5 % at_once] * (5 % at_once > 0)
    assert [text for one in found for text in texts(one.requests)] == texts(whole.requests)
    assert np.concatenate([one.rows["pair"] for one in found]).tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate([one.shared["count"] for one in found]).tolist() == whole.shared["count"].tolist()


@pytest.mark.parametrize(("bound", "room"), [("MAX_TEXT", 300), ("MAX_INSIDE", 1), ("MAX_NAME_BYTES", 14)])
def test_an_exchange_that_never_fits_is_pythons(monkeypatch: pytest.MonkeyPatch, bound: str, room: int) -> None:
    """Such an exchange is skipped; those around it have rows."""
    large = [
        (kafka.metadata_request(9, [f"topic-{at}" for at in range(40)]), kafka.metadata_response(9, "b", 9092, [])),
        (kafka.produce_request(9, "orders" * 9, batch(1)), kafka.produce_response(9, "orders" * 9, 0)),
    ]
    which = {"MAX_TEXT": large[0], "MAX_NAME_BYTES": large[1]}.get(bound, FAILED)
    fits = (kafka.fetch_request(4, "paid", 12), kafka.fetch_response(4, "paid", b"", 12))
    monkeypatch.setattr(module, bound, room)
    found = Call([fits, which, fits]).every(reader_of(bodies=EVERY_BODY if bound == "MAX_TEXT" else NO_BODY))
    pairs = np.concatenate([one.rows["pair"] for one in found]).tolist()
    assert pairs == ([0, 1, 2] if bound == "MAX_INSIDE" else [0, 2])


def test_misuse_raises() -> None:
    """A place after the last pair, instead of memory that is not theirs."""
    with pytest.raises(RuntimeError, match="the kernel refuses to read exchanges"):
        Call([PRODUCE]).read(reader_of(), 2)
