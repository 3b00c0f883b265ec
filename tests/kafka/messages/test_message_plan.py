"""What is looked up once for messages of a kind, against the definitions."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.named_apis import API_VERSIONS, FETCH, PRODUCE, SASL_HANDSHAKE
from kafkasniff.kafka.messages.message_plan import (
    VERSION_MARGIN,
    MessagePlan,
    request_plan,
    response_plan,
)

HEARTBEAT, UNKNOWN, SASL_AUTHENTICATE, FETCH_SNAPSHOT = 12, 9999, 36, 59


def test_only_requests_state_a_version_that_may_be_implausible() -> None:
    found = api(HEARTBEAT)
    assert found is not None
    top = found.max_version + VERSION_MARGIN
    versions = (-1, 0, top, top + 1)
    assert [request_plan(HEARTBEAT, version).plausible_version for version in versions] == [False, True, True, False]
    assert all(response_plan(HEARTBEAT, version).plausible_version for version in versions)
    unknown = request_plan(UNKNOWN, 3)
    assert (unknown.api, unknown.schema, unknown.header, unknown.plausible_version) == (None, None, 1, True)
    assert not request_plan(UNKNOWN, -1).plausible_version
    assert response_plan(UNKNOWN, 3).header == 0


def traits(plan: MessagePlan) -> set[str]:
    names = ("has_secrets", "has_records", "whole_records", "asks_connection", "needed", "alone", "reads_records")
    return {name for name in names if getattr(plan, name)}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (request_plan(HEARTBEAT, 0), {"alone"}),
        (request_plan(PRODUCE, 3), {"has_records", "whole_records", "alone", "reads_records"}),
        (response_plan(FETCH, 4), {"has_records", "alone", "reads_records"}),
        # It names the client's software.
        (request_plan(API_VERSIONS, 3), {"alone", "needed"}),
        (request_plan(SASL_HANDSHAKE, 1), {"needed", "asks_connection"}),
        (request_plan(SASL_AUTHENTICATE, 0), {"has_secrets", "needed", "asks_connection"}),
        (response_plan(FETCH_SNAPSHOT, 0), {"has_records", "has_secrets"}),
    ],
    ids=lambda value: f"{value.api}-{value.version}" if isinstance(value, MessagePlan) else "",
)
def test_traits(plan: MessagePlan, expected: set[str]) -> None:
    assert traits(plan) == expected
    marks = plan.secret_marks
    assert (b"__cluster_metadata" in marks) is ("reads_records" in expected)
