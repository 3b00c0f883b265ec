"""What brokers did not authorize."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.security import denials
from kafkasniff.analysis.security.denials import Denials
from kafkasniff.model import ErrorCode, Exchange
from tests.sinks.messages import message


def _answered(key: int, api: str, asked: Any, body: Any, *errors: tuple[int, str]) -> Exchange:
    made = {"api": api, "api_key": key, "api_version": 5}
    codes = tuple(ErrorCode(code, None, path) for code, path in errors)
    return Exchange(9, 3, "answered", message(body=asked, **made), message("response", body=body, errors=codes, **made))


_METADATA = _answered(
    *(3, "Metadata", {"topics": [{"name": "a"}, {"name": "b"}]}),
    {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 29}]},
    (29, "topics[1].error_code"),
)


def _found(*exchanges: Exchange, principal: str | None = "alice") -> list[tuple[Any, ...]]:
    counted = Denials(5)
    for one in exchanges:
        counted.feed(one, principal)
    return [(one.error, one.kind, one.resource, one.api, one.principal, one.count) for one in counted.found.values()]


def test_several_partitions_of_a_topic_are_one_denial_of_an_exchange() -> None:
    body = {"responses": [{"name": "x", "partition_responses": [{"error_code": 29}, {"error_code": 29}]}]}
    errors = [(29, f"responses[0].partition_responses[{one}].error_code") for one in (0, 1)]
    assert [one[5] for one in _found(_answered(0, "Produce", {}, body, *errors))] == [1]


def test_other_errors_are_no_denials() -> None:
    # 3 may be the answer about a topic that must not be described, and is mostly not.
    assert not _found(_answered(3, "Metadata", {}, {"topics": [{"name": "a"}]}, (3, "topics[0].error_code")))


@pytest.mark.parametrize("path", ["", "topics[7].error_code", "nowhere[0].x", "topics[x]", "topics[1]"])
def test_paths_that_lead_nowhere(path: str) -> None:
    topics = {"topics": [{"name": "a"}, {"name": "b"}]}
    found = _found(_answered(3, "Metadata", topics, topics, (29, path)))
    assert [one[2] in {None, "b"} for one in found] == [True]


def test_principals_are_kept_apart_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "MAX_DENIALS", 2)
    counted = Denials(5)
    for name in ("a", "b", "c", "a", None):
        counted.feed(_METADATA, name)
    assert [(one.principal, one.count) for one in counted.found.values()] == [("a", 2), ("b", 1)]
    assert counted.beyond == 2
