"""Which messages a filter shows, and in which order. `test_selection.py` has the decisions of real filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.in_step_messages import Edges, Messages
from kafkasniff.engine.outstanding import ROW
from kafkasniff.engine.selected_messages import DEFERRED, REJECTED, SELECTED, UNDECIDED, SelectedMessages
from kafkasniff.model import Lines
from kafkasniff.native.feed import MESSAGE, NONE, REQUEST
from kafkasniff.native.lines import EARLIER, LEFT, READ, WRITTEN, LineBatch

MOVABLE, FIXED = 5, 6
"""Codes of requests whose lines may come later, and may not."""
DECISIONS = SELECTED, REJECTED, DEFERRED, UNDECIDED


class _Selects:
    """Decides as given, by the index of a response."""

    def __init__(self, decisions: dict[int, int]) -> None:
        self._decisions = decisions

    def requests(self, messages: Messages, capture: Any) -> NDArray[np.uint8]:
        raise AssertionError("these were decided before")

    def exchanges(
        self, messages: Messages, answers: NDArray[np.intp], numbers: NDArray[np.int64], capture: Any
    ) -> NDArray[np.uint8]:
        assert [int(numbers[index]) for index in answers] == [int(messages.rows["ordinal"][index]) for index in answers]
        return np.array([self._decisions[int(index)] for index in answers], np.uint8)

    def can_move(self, code: int) -> bool:
        return code == MOVABLE

    def pin(self, exchange: int, answer: bool) -> None:
        raise AssertionError("nothing is decoded here")

    def unpin(self, exchange: int) -> None:
        raise AssertionError("nothing is decoded here")


def _made(
    pairs: list[tuple[int, int]], decisions: dict[int, int], *, code: int = MOVABLE, others: tuple[int, ...] = ()
) -> tuple[SelectedMessages, LineBatch]:
    """`pairs`: requests and responses by index; `others`: messages that have no lines."""
    rows = np.zeros(2 * len(pairs), MESSAGE)
    rows["code"], rows["pair"] = code, NONE
    rows["time"] = np.arange(len(rows)) * 10
    for ordinal, (request, response) in enumerate(pairs):
        rows["flags"][request] = REQUEST
        rows["pair"][response], rows["pair"][request] = request, response
        rows["ordinal"][[request, response]] = ordinal
    nothing = np.zeros(0, np.intp)
    edges = Edges(np.zeros(len(rows), bool), nothing, np.zeros(0, np.uint8), nothing, np.zeros(0, ROW), [])
    native = np.ones(len(rows), bool)
    native[list(others)] = False
    messages = Messages(rows, b"", b"", [])
    numbers = rows["ordinal"].copy()
    made = SelectedMessages(_Selects(decisions), messages, edges, numbers, native, lambda _: None)
    data = np.zeros(0, np.uint8)
    return made, made.bind(LineBatch(rows, numbers, data, data, np.zeros(0, EARLIER)))


def _written(made: SelectedMessages, batch: LineBatch, left: tuple[int, ...] = ()) -> list[Any]:
    """All that is yielded for the batch, if the maker has a line for all but the messages at the places `left`."""

    def take(first: int, last: int) -> Iterator[Lines | int]:
        while first < last:
            stop = min((place for place in left if first <= place < last), default=last)
            if stop > first:
                yield Lines(b"", stop - first)
            if stop < last:
                yield stop
            first = stop + 1

    count = int((batch.numbers >= 0).sum()) - int(made._is_copy.sum())
    found = made.write(0, count, take)
    return [(one.count, one.time_ns) if isinstance(one, Lines) else one for one in found]


def test_selected_exchanges_have_lines_and_rejected_ones_are_read() -> None:
    made, batch = _made([(0, 1), (2, 3)], {1: SELECTED, 3: REJECTED})
    assert batch.shown is not None
    assert batch.shown.tolist() == [WRITTEN, WRITTEN, READ, READ]
    assert [made.answer(index) for index in range(4)] == [True, True, False, False]
    assert _written(made, batch) == [(2, 30)]


def test_undecided_exchanges_are_pythons() -> None:
    made, batch = _made([(0, 1), (2, 3)], {1: UNDECIDED, 3: SELECTED})
    assert batch.shown is not None
    assert batch.shown.tolist() == [LEFT, LEFT, WRITTEN, WRITTEN]
    assert [made.answer(index) for index in range(4)] == [None, None, True, True]
    # Together, since they are processed the same way.
    assert _written(made, batch) == [[0, 1], (2, 30)]


def test_a_request_is_shown_with_the_response_that_decided() -> None:
    made, batch = _made([(0, 2), (1, 3)], {2: DEFERRED, 3: REJECTED})
    assert batch.shown is not None
    # The request is read in its place, and has its line before the response.
    assert batch.messages["time"].tolist() == [0, 10, 0, 20, 30]
    assert batch.shown.tolist() == [READ, READ, WRITTEN, WRITTEN, READ]
    assert batch.numbers.tolist() == [0, 1, 0, 0, 1]
    # Pairs are positions in the new order.
    assert batch.messages["pair"].tolist() == [3, 4, 3, 0, 1]
    assert _written(made, batch) == [(2, 30)]


def test_requests_that_cannot_move_are_decided_by_python() -> None:
    for others, code in (((), FIXED), ((0,), MOVABLE)):
        made, batch = _made([(0, 1)], {1: DEFERRED}, code=code, others=others)
        assert [made.answer(0), made.answer(1)] == [None, None]
        assert _written(made, batch) == [[0, 1]]


def test_a_deferred_request_that_is_left_to_python_leaves_its_response_too() -> None:
    made, batch = _made([(0, 2), (1, 3)], {2: DEFERRED, 3: SELECTED})
    # Order: the first request, the second one, the first one's copy, its response, the second response.
    assert _written(made, batch, left=(0,)) == [0, (1, 10), [2], (1, 30)]
    assert made.answer(2) is None


def test_a_copy_that_is_left_to_python() -> None:
    """Its request was processed before: this is the number of the request's index below -1."""
    made, batch = _made([(1, 2), (0, 3)], {2: DEFERRED, 3: SELECTED})
    assert _written(made, batch, left=(2,)) == [(1, 10), -1 - 1, (2, 30)]


def test_messages_without_lines_that_are_decided() -> None:
    made, batch = _made([(0, 1), (2, 3)], {1: SELECTED, 3: REJECTED}, others=(1, 2))
    assert _written(made, batch) == [(1, 0), 1, 2]


def test_exchanges_that_began_earlier_or_end_later() -> None:
    rows = np.zeros(3, MESSAGE)
    rows["pair"] = NONE
    rows["flags"] = [REQUEST, 0, REQUEST]
    answered = np.zeros(1, ROW)
    answered["selected"] = REJECTED
    edges = Edges(
        np.ones(3, bool),
        np.array([0, 2]),
        np.array([SELECTED, UNDECIDED], np.uint8),
        np.array([1]),
        answered,
        [],
    )
    made = SelectedMessages(
        _Selects({}), Messages(rows, b"", b"", []), edges, np.arange(3), np.ones(3, bool), lambda _: None
    )
    assert [made.answer(index) for index in range(3)] == [True, False, None]
