"""What Kafka's classes wrote, from their JSON."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.kafka_json import encode, values_of
from tests.test_vectors import MESSAGES, root
from tests.vectors.reader import vectors


def test_kafkas_json_becomes_kafkas_bytes() -> None:
    """Except for tagged fields without a definition and for records, which that JSON omits."""
    count = 0
    for vector in vectors():
        if vector.kind not in MESSAGES or "_unknown" in repr(vector.body):
            continue
        sizes: list[int] = []
        made = encode(root(vector), values_of(root(vector), vector.body, sizes))
        if not sizes:
            assert vector.data.endswith(made), vector
            assert vector.kind != "data" or vector.data == made
            count += 1
    assert count > 4000


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="not-an-object"),
        pytest.param({}, id="no-fields"),
        pytest.param({"topics": {}}, id="not-a-list"),
        pytest.param({"topics": [1]}, id="not-a-struct"),
        pytest.param({"topics": [{"name": 1}]}, id="not-a-text"),
        pytest.param({"topics": [{"name": None}]}, id="null"),
        pytest.param({"topics": [], "others": []}, id="unknown-fields"),
    ],
)
def test_json_that_is_not_of_the_message(body: object) -> None:
    metadata = api(3)
    assert metadata is not None
    with pytest.raises((TypeError, ValueError)):
        values_of(metadata.request(1).root, body, [])


def test_names_of_another_release_are_matched_by_their_place() -> None:
    commit = api(8)
    assert commit is not None
    newer = {"groupId": "g", "generationIdOrMemberEpoch": 3, "memberId": "m", "retentionTimeMs": -1, "topics": []}
    older = {"groupId": "g", "generationId": 3, "memberId": "m", "retentionTimeMs": -1, "topics": []}
    found = [values_of(commit.request(2).root, body, []) for body in (newer, older)]
    assert found[0] == found[1]
