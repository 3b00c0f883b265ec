"""Requests of earlier batches as columns: the same as in a dict."""

from __future__ import annotations

import ctypes
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine import outstanding
from kafkasniff.engine.outstanding import ORDINAL_BITS, ROW, BegunRequests, OutstandingRequests
from kafkasniff.native.feed import ARENA, MESSAGE

CLIENT_IDS = (None, b"", b"client", b"\xff\xfe", "größe".encode(), b"x" * 300)

step = st.tuples(
    st.sampled_from(["add", "take", "number", "connection"]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from(CLIENT_IDS)), max_size=8),
)


def _keys(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array([(connection << ORDINAL_BITS) + ordinal for connection, ordinal in pairs], np.int64)


@given(st.lists(step, max_size=20))
def test_the_same_as_a_dict(steps: list[tuple[str, list[tuple[int, int, bytes | None]]]]) -> None:
    with mock.patch.object(outstanding, "SPARE_IDS", 2):
        _compare(steps)


def _compare(steps: list[tuple[str, list[tuple[int, int, bytes | None]]]]) -> None:
    held, model = OutstandingRequests(), dict[tuple[int, int], list]()
    for number, (what, items) in enumerate(steps):
        named = {(connection, ordinal): client_id for connection, ordinal, client_id in items}
        pairs = list(named)
        if what == "add":
            pairs = [pair for pair in pairs if pair not in model]
            rows = np.zeros(len(pairs), ROW)
            rows["ordinal"] = [ordinal for _, ordinal in pairs]
            rows["client_id"] = held.indices([named[pair] for pair in pairs])
            held.add(_keys(pairs), rows)
            model.update({pair: [0, named[pair]] for pair in pairs})
        elif what == "number":
            numbers = np.arange(len(pairs), dtype=np.int64) + number * 100
            here = held.number(_keys(pairs), numbers)
            assert here.tolist() == [pair in model for pair in pairs]
            for pair, given_number in zip(pairs, numbers.tolist(), strict=True):
                if pair in model:
                    model[pair][0] = given_number
        elif what == "take":
            found, rows = held.take(_keys(pairs))
            assert found.tolist() == [pair in model for pair in pairs]
            _same(held, rows, [model.pop(pair) for pair in pairs if pair in model])
        else:
            connection = number % 4
            rows = held.take_connection(connection)
            ordered = sorted(pair for pair in model if pair[0] == connection)
            assert rows["ordinal"].tolist() == [ordinal for _, ordinal in ordered]
            _same(held, rows, [model.pop(pair) for pair in ordered])


def _same(held: OutstandingRequests, rows: np.ndarray, expected: list[list]) -> None:
    assert rows["number"].tolist() == [number for number, _ in expected]
    sizes, addresses = held.texts(rows)
    found = [
        None if size < 0 else ctypes.string_at(address, size)
        for size, address in zip(sizes.tolist(), addresses.tolist(), strict=True)
    ]
    assert found == [client_id for _, client_id in expected]
    texts = [held.client_id(row) for row in rows]
    assert [text.encode() if isinstance(text, str) else text for text in texts] == found


def test_memory_is_proportional_to_the_requests_held() -> None:
    held = OutstandingRequests()
    for batch in range(50):
        rows = np.zeros(1000, ROW)
        rows["ordinal"] = np.arange(1000) + batch * 1000
        rows["client_id"] = held.indices([b"%d-%d" % (batch, number) for number in range(1000)])
        keys = rows["ordinal"].astype(np.int64)
        held.add(keys, rows)
        found, _ = held.take(keys)
        assert found.all()
    assert held.memory < 500_000


begun_step = st.tuples(
    st.sampled_from(["add", "take", "connection"]),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 9)), st.tuples(st.binary(max_size=9), st.booleans())),
)


@given(st.lists(begun_step, max_size=20))
def test_begun_requests_match_those_of_a_dict(
    steps: list[tuple[str, dict[tuple[int, int], tuple[bytes, bool]]]],
) -> None:
    held, model = BegunRequests(), dict[tuple[int, int], bytes]()
    for number, (what, items) in enumerate(steps):
        if what == "add":
            new = {pair: item for pair, item in items.items() if pair not in model}
            rows, data = np.zeros(len(new), MESSAGE), {False: b"-", True: b"--"}
            for row, ((connection, ordinal), (one, in_arena)) in zip(rows, new.items(), strict=True):
                row["connection"], row["ordinal"], row["size"] = connection, ordinal, len(one)
                row["start"], row["flags"] = len(data[in_arena]), ARENA * in_arena
                data[in_arena] += one
            held.add(rows, data[False], data[True])
            model.update({pair: one for pair, (one, _) in new.items()})
        elif what == "take":
            found, rows = held.take(_keys(list(items)))
            assert found.tolist() == [pair in model for pair in items]
            assert _bytes(held, rows) == [model.pop(pair) for pair in items if pair in model]
        else:
            ordered = sorted(pair for pair in model if pair[0] == number % 4)
            assert _bytes(held, held.take_connection(number % 4)) == [model.pop(pair) for pair in ordered]


def _bytes(held: BegunRequests, rows: np.ndarray) -> list[bytes]:
    assert (rows["flags"] == ARENA).all()
    return [held.data[row["start"] : int(row["start"]) + int(row["size"])] for row in rows]


def test_client_ids_are_kept_while_others_begin() -> None:
    """Ids of taken requests are found after the next requests, which are more."""
    held = OutstandingRequests()
    with mock.patch.object(outstanding, "SPARE_IDS", 2):
        rows = np.zeros(9, ROW)
        rows["client_id"] = held.indices([b"%d" % number for number in range(9)])
        held.add(_keys([(0, number) for number in range(9)]), rows)
        _, taken = held.take(_keys([(0, number) for number in range(9)]))
        more = np.zeros(1, ROW)
        more["client_id"] = held.indices([b"another"])
        held.add(_keys([(0, 9)]), more)
        sizes, addresses = held.texts(taken)
        assert [ctypes.string_at(*one) for one in zip(addresses.tolist(), sizes.tolist(), strict=True)] == [
            b"%d" % number for number in range(9)
        ]
        assert [held.client_id(row) for row in taken] == [str(number) for number in range(9)]
