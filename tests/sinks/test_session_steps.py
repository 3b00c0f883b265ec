"""What Fetch requests do to their sessions, read by topics and partitions that the kernel copies."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich.sessions import FIRST_VERSION, SessionStep
from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.named_apis import FETCH
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.kafka.schema.wire import Odd
from kafkasniff.native.feed import VERSIONS
from kafkasniff.sinks import session_steps
from kafkasniff.sinks.session_steps import SessionSteps
from tests.craft.from_layout import encoded
from tests.native.kernel_and_walker import the_kernel

_VERSIONS = [version for version in api(FETCH).versions if version >= FIRST_VERSION]
_TOPICS = ["orders", "payments", "ünïcode"]
_IDS = [bytes([number]) * 16 for number in (1, 2, 3)]

_lists = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9), max_size=3)), max_size=3)


def _schema(version: int) -> Schema:
    schema = request_plan(FETCH, version).schema
    assert schema is not None
    return schema


def _request(version: int, epoch: int, added: Any, forgotten: Any, offset: int) -> bytes:
    """The body of a request of session 7."""
    by_id = version >= 13
    name, names = ("topic_id", _IDS) if by_id else ("topic", _TOPICS)
    topics = [
        {name: names[topic], "partitions": [{"partition": one, "fetch_offset": offset} for one in partitions]}
        for topic, partitions in added
    ]
    gone = [{name: names[topic], "partitions": partitions} for topic, partitions in forgotten]
    values = {"session_id": 7, "session_epoch": epoch, "topics": topics, "forgotten_topics_data": gone}
    return encoded(_schema(version).root, values)


def _of(steps: SessionSteps, version: int, body: bytes, epoch: int) -> SessionStep | None:
    """The step by the class under test: the body comes after five bytes of a header."""
    message = b"\xff" * 5 + body
    memory = ctypes.create_string_buffer(message, len(message))
    code = FETCH * VERSIONS + version
    return steps.of(code, memoryview(message), ctypes.addressof(memory), 5, (7, epoch))


def _decoded(version: int, body: bytes) -> SessionStep | None:
    found, _ = _schema(version).decode(body, 0, len(body), DecodeContext(DecodeOptions()))
    return SessionStep.of_request(found)


@given(
    st.sampled_from(_VERSIONS),
    st.lists(st.tuples(st.sampled_from([-1, 0, 1, 5]), _lists, _lists, st.integers(0, 1 << 40)), max_size=8),
)
def test_as_decoded(version: int, requests: list[Any]) -> None:
    steps = SessionSteps(the_kernel())
    # Every request again with other offsets: then most are known.
    for epoch, added, forgotten, offset in [*requests, *((a, b, c, d + 1) for a, b, c, d in requests)]:
        body = _request(version, epoch, added, forgotten, offset)
        assert _of(steps, version, body, epoch) == _decoded(version, body)


@pytest.mark.parametrize("version", _VERSIONS)
def test_known_requests_are_not_decoded(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = SessionSteps(the_kernel())
    first = _of(steps, version, _request(version, 1, [(0, [1, 2])], [(1, [3])], 100), 1)

    def fail(*_: object) -> SessionStep | None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(session_steps, "_read", fail)
    again = _of(steps, version, _request(version, 2, [(0, [1, 2])], [(1, [3])], 101), 2)
    assert first is not None
    assert again is not None
    assert (again.epoch, again.added, again.forgotten) == (2, first.added, first.forgotten)
    with pytest.raises(AssertionError, match="decoded again"):
        _of(steps, version, _request(version, 3, [(0, [1])], [(1, [3])], 101), 3)


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_body_that_ends_early(version: int) -> None:
    steps = SessionSteps(the_kernel())
    body = _request(version, 1, [(0, [1, 2])], [], 100)
    assert _of(steps, version, body, 1) == _decoded(version, body)
    for size in range(1, len(body) - 12):
        cut = body[: len(body) - size]
        try:
            wanted = _decoded(version, cut)
        except Odd:
            with pytest.raises(Odd):
                _of(steps, version, cut, 1)
        else:
            assert _of(steps, version, cut, 1) == wanted


def test_long_lists_are_decoded_every_time() -> None:
    steps = SessionSteps(the_kernel())
    many = [(0, list(range(session_steps.MAX_LIST // 4)))]
    for offset in (1, 2):
        body = _request(13, 1, many, [], offset)
        assert _of(steps, 13, body, 1) == _decoded(13, body)
    assert not steps._kept


def test_kept_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_steps, "MAX_KEPT", 4)
    steps = SessionSteps(the_kernel())
    for number in range(20):
        body = _request(13, 1, [(0, [number])], [], 0)
        assert _of(steps, 13, body, 1) == _decoded(13, body)
        assert len(steps._kept) <= 4
