"""Responses that wait for their requests."""

from __future__ import annotations

from kafkasniff.kafka.connection import early
from kafkasniff.kafka.connection.early import EARLY_FRAMES, EarlyResponses
from kafkasniff.kafka.connection.framing import Frame


def frame(first_time: int, data: bytes = b"\0\0\0\1", around: bytes = b"") -> Frame:
    return Frame(
        order=0,
        direction=1,
        data=around + data + around,
        start=len(around),
        end=len(around) + len(data),
        size=len(data),
        first_packet=1,
        last_packet=1,
        first_time=first_time,
        time_ns=first_time,
        last_seen=1,
    )


def times(frames: list[Frame]) -> list[int]:
    return [each.first_time for each in frames]


def taken(waiting: EarlyResponses, correlation_id: int, time_ns: int, *, may_precede: bool) -> int | None:
    found = waiting.find(correlation_id, time_ns, may_precede=may_precede)
    if found is None:
        return None
    waiting.remove(found[0])
    return found[1].first_time


def test_found_by_id() -> None:
    waiting = EarlyResponses()
    for correlation_id, time in ((7, 10), (9, 20), (8, 30)):
        assert not waiting.add(correlation_id, frame(time))
    assert taken(waiting, 9, 5, may_precede=False) == 20
    assert taken(waiting, 9, 5, may_precede=True) is None
    assert taken(waiting, 6, 5, may_precede=True) is None
    assert times(waiting.drain()) == [10, 30]
    assert not waiting


def test_the_first_response_with_the_id_after_the_request() -> None:
    waiting = EarlyResponses()
    for time in (10, 20, 30, 40):
        waiting.add(0, frame(time))
    assert taken(waiting, 0, 25, may_precede=False) == 30
    # If all began before it, it depends on how certain the id is.
    assert taken(waiting, 0, 45, may_precede=False) is None
    assert taken(waiting, 0, 45, may_precede=True) == 10
    assert times(waiting.drain()) == [20, 40]


def test_earlier_responses_are_released() -> None:
    waiting = EarlyResponses()
    for correlation_id in range(5):
        waiting.add(correlation_id, frame(correlation_id))
    found = waiting.find(3, 0, may_precede=False)
    assert found is not None
    assert times(waiting.before(found[0])) == [0, 1, 2]
    assert times(waiting.drain()) == [3, 4]


def test_a_response_that_does_not_match_waits_for_one_more_request() -> None:
    waiting = EarlyResponses()
    for correlation_id, time in ((0, 10), (1, 20), (0, 30), (0, 40)):
        waiting.add(correlation_id, frame(time))
    first = waiting.find(0, 25, may_precede=False)
    assert first is not None
    # The response that began before the request answers none; those with another id stay in place.
    assert times(waiting.refuse(first[0])) == [10]
    assert waiting.find(0, 25, may_precede=False) == first
    assert times(waiting.refuse(first[0])) == [30]
    assert taken(waiting, 0, 25, may_precede=False) == 40
    assert times(waiting.drain()) == [20]


def test_patience_ends_in_turn() -> None:
    waiting = EarlyResponses()
    waiting.add(1, frame(1))
    assert waiting.tick() == []  # the frame itself
    waiting.add(2, frame(2))
    ends = [times(waiting.tick()) for _ in range(EARLY_FRAMES + 1)]
    assert ends == [[]] * (EARLY_FRAMES - 1) + [[1], [2]]


def test_the_batch_around_a_response_is_not_kept() -> None:
    waiting = EarlyResponses()
    waiting.add(1, frame(1, b"\0\0\0\1abc", around=b"x" * 1000))
    ((_, kept),) = [found for found in [waiting.find(1, 0, may_precede=False)] if found is not None]
    assert (kept.data, kept.start, kept.end, kept.size) == (b"\0\0\0\1abc", 0, 7, 7)


def test_both_bounds_release_the_oldest() -> None:
    waiting = EarlyResponses()
    for number in range(early.MAX_EARLY):
        assert not waiting.add(number, frame(number))
    assert times(waiting.add(-1, frame(-1))) == [0]
    assert len(waiting) == early.MAX_EARLY
    waiting = EarlyResponses()
    half = bytes(early.MAX_EARLY_BYTES // 2)
    assert not waiting.add(1, frame(1, half))
    assert not waiting.add(2, frame(2, half))
    assert times(waiting.add(3, frame(3, b"\0\0\0\3"))) == [1]
    # A response larger than the bound does not wait at all.
    assert times(waiting.add(4, frame(4, bytes(early.MAX_EARLY_BYTES + 1)))) == [2, 3, 4]
    assert not waiting.add(5, frame(5))
