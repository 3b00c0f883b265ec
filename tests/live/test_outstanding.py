from __future__ import annotations

import msgspec
import pytest

from kafkasniff.live import outstanding
from kafkasniff.live.outstanding import OpenRequests
from tests.live.scenes import START_NS, Scene, Talk


def test_requests_are_open_until_the_response_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "MAX_OUTSTANDING", 3)
    talk, kept = Talk(Scene(), 1, "c", "10.0.0.1", ""), OpenRequests()
    requests = [talk.request(at, "Metadata") for at in (30, 10, 20, 40)]
    for request in requests:
        kept.message(request)
    assert (len(kept), kept.overlooked) == (3, 1)
    assert [one.time_ns for one in kept.since(START_NS + 25)] == [START_NS + 10, START_NS + 20]
    kept.message(talk.response(requests[0], 5))
    kept.exchange(talk.end(requests[1], None, "unanswered"))
    kept.exchange(talk.end(requests[3], None, "open"))  # was never added
    assert list(kept.since(START_NS + 100)) == [requests[2]]


def test_requests_without_a_time_or_a_number() -> None:
    talk, kept = Talk(Scene(), 1, "c", "10.0.0.1", ""), OpenRequests()
    request = talk.request(0, "Metadata")
    kept.message(msgspec.structs.replace(request, exchange=None))
    assert len(kept) == 0
    kept.message(msgspec.structs.replace(request, time_ns=None))
    assert len(kept) == 1
    assert list(kept.since(2**63)) == []


def test_requested_waits_are_not_overdue() -> None:
    talk, kept = Talk(Scene(), 1, "c", "10.0.0.1", ""), OpenRequests()
    fetch = talk.request(0, "Fetch")
    fetch = msgspec.structs.replace(fetch, body={"max_wait_ms": 5000, "min_bytes": 1, "topics": []})
    produce = talk.request(0, "Produce")
    produce = msgspec.structs.replace(produce, body={"acks": -1, "timeout_ms": 30_000})
    for request in (fetch, produce):
        kept.message(request)
    assert list(kept.overdue(START_NS + 4_999_000_000)) == [produce]
    assert list(kept.overdue(START_NS + 5_000_000_000)) == [fetch, produce]
