"""What is looked up once for messages of a kind, against the definitions."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.apis.named_apis import API_VERSIONS, FETCH, PRODUCE, SASL_HANDSHAKE
from kafkasniff.kafka.messages.message_plan import (
    HEADER_OF_UNKNOWN,
    VERSION_MARGIN,
    MessagePlan,
    client_software,
    request_plan,
    response_plan,
)

HEARTBEAT, UNKNOWN, SASL_AUTHENTICATE, FETCH_SNAPSHOT = 12, 9999, 36, 59


@pytest.mark.parametrize("key", sorted(api_keys()))
def test_known_versions_have_a_schema(key: int) -> None:
    found = api(key)
    assert found is not None
    for version in (found.versions[0] - 1, *found.versions, found.max_version + 1):
        for plan, schema in (
            (request_plan(key, version), found.request),
            (response_plan(key, version), found.response),
        ):
            known = version in found.versions
            assert (plan.api, plan.version, plan.known_version) == (found.name, version, known)
            # Other tests may have emptied the cache of either.
            assert repr(plan.schema) == repr(schema(version) if known else None)
            assert not (plan.alone and plan.schema is None)
        assert request_plan(key, version).header == found.request_header(version)
        assert response_plan(key, version).header == found.response_header(version)


def test_only_requests_state_a_version_that_may_be_implausible() -> None:
    found = api(HEARTBEAT)
    assert found is not None
    top = found.max_version + VERSION_MARGIN
    versions = (-1, 0, top, top + 1)
    assert [request_plan(HEARTBEAT, version).plausible_version for version in versions] == [False, True, True, False]
    assert all(response_plan(HEARTBEAT, version).plausible_version for version in versions)


def test_an_unknown_api() -> None:
    plan = request_plan(UNKNOWN, 3)
    assert (plan.api, plan.schema, plan.header, plan.plausible_version) == (None, None, HEADER_OF_UNKNOWN, True)
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


def test_marks_of_secrets() -> None:
    assert request_plan(HEARTBEAT, 0).secret_marks == ()
    assert b"__cluster_metadata" in response_plan(FETCH, 4).secret_marks
    assert len(response_plan(FETCH, 4).secret_marks) > 1


def test_the_clients_software() -> None:
    assert client_software(API_VERSIONS) == ("client_software_name", "client_software_version")
    assert [client_software(key) for key in (HEARTBEAT, UNKNOWN, None)] == [None, None, None]
