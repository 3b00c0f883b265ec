"""Waits that requests ask for, who sends them, and delays by earlier requests and quotas."""

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.connection.waits import (
    UNLIMITED_NS,
    Wait,
    answers_at_once,
    delays_without,
    role_of,
    wait_of,
)
from kafkasniff.kafka.schema.definition_parser import parse_api
from kafkasniff.model import Message

MS = 1_000_000
FETCH = {"max_wait_ms": 500, "min_bytes": 100}
FETCH_KEY, PRODUCE, METADATA = 1, 0, 3


def test_a_fetch_waits_for_data() -> None:
    assert wait_of(1, FETCH, {}, 0, 0) == Wait("data", 500 * MS, sure=True)
    assert wait_of(78, FETCH, {}, 99, 0) == Wait("data", 500 * MS, sure=True)
    # The response may have come at once, or at the end.
    assert wait_of(1, FETCH, {}, 100, 0) == Wait("data", 500 * MS, sure=False)
    for value in (None, "x", -5, [], {}):
        assert wait_of(1, {"max_wait_ms": value, "min_bytes": 1}, {}, 0, 0) is None
    for request in ({**FETCH, "max_wait_ms": 0}, {**FETCH, "min_bytes": 0, "topics": []}, {}, None):
        assert wait_of(1, request, {}, 0, 0) is None
    # A request that is cut before its topics may be one to a controller.
    for request in ({"max_wait_ms": 500}, {**FETCH, "min_bytes": 0}):
        assert wait_of(1, request, {}, 1, 0) == Wait("data", 500 * MS, sure=False)
    # Controllers wait until there is data.
    for topic in ({"topic": "__cluster_metadata"}, {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}):
        request = {"max_wait_ms": 500, "min_bytes": 0, "topics": [topic]}
        assert wait_of(1, request, {}, 0, 0) == Wait("data", 500 * MS, sure=True)
        assert wait_of(1, request, {}, 1, 0) == Wait("data", 500 * MS, sure=False)
    # Errors, and fetches beyond a quota, may have come at once.
    assert wait_of(1, FETCH, {}, 0, 1) == Wait("data", 500 * MS, sure=False)
    assert wait_of(1, FETCH, {"throttle_time_ms": 20}, 0, 0) == Wait("data", 500 * MS, sure=False)
    assert wait_of(1, FETCH, None, 0, 0) == Wait("data", 500 * MS, sure=False)


def test_groups_wait_for_their_members() -> None:
    join = {"session_timeout_ms": 10, "rebalance_timeout_ms": 300}
    assert wait_of(11, join, {}, 0, 0) == Wait("members", 300 * MS, sure=True)
    assert wait_of(11, {"session_timeout_ms": 10}, {}, 0, 0) == Wait("members", 10 * MS, sure=True)
    # MEMBER_ID_REQUIRED comes at once, the end of a failed rebalance does not.
    assert wait_of(11, join, {}, 0, 1) == Wait("members", 300 * MS, sure=False)
    member, leader = {"assignments": []}, {"assignments": [{"member_id": "a"}]}
    assert wait_of(14, member, {"error_code": 0}, 0, 0) == Wait("leader", None, sure=True)
    assert wait_of(14, member, {"error_code": 27}, 0, 1) == Wait("leader", None, sure=True)
    assert wait_of(14, member, {"error_code": 25}, 0, 1) == Wait("leader", None, sure=False)
    assert wait_of(14, member, None, 0, 0) == Wait("leader", None, sure=False)
    assert wait_of(14, leader, {"error_code": 0}, 0, 0) is None


def test_produce_waits_for_replicas() -> None:
    request = {"acks": -1, "timeout_ms": 1500}
    assert wait_of(0, request, {}, 0, 0) == Wait("replicas", 1500 * MS, sure=False)
    assert wait_of(0, {**request, "acks": 1}, {}, 0, 0) is None
    assert wait_of(3, request, {}, 0, 0) is None
    assert wait_of(None, request, {}, 0, 0) is None
    assert wait_of(9_999, request, {}, 0, 0) is None


def test_operations_take_their_time() -> None:
    assert wait_of(19, {"timeout_ms": 60_000}, {}, 0, 0) == Wait("operation", 60_000 * MS, sure=False)
    assert wait_of(19, {"timeout_ms": -1}, {}, 0, 0) is None


def test_invalid_waits_in_definitions() -> None:
    for line in ("waits boredom limit", "waits data nothing", "waits data name"):
        fields = "request headers 1:0\n  limit   int32\n  name   string\n\nresponse headers 0:0\n"
        text = f"api 1 Wait   versions 0\n{line}\n\n{fields}"
        with pytest.raises(DefinitionError, match=r"reason to wait|could limit a wait"):
            parse_api(None, text)  # type: ignore[arg-type]


def test_versions_that_let_the_client_wait() -> None:
    """KIP-219 raised the version of each API by one, and a response must be able to hold a throttle time.

    The numbers are those of `shouldClientThrottle` of the classes in org.apache.kafka.common.requests, Kafka 4.3.
    """
    assert answers_at_once(0, 6)
    assert not answers_at_once(0, 5)
    assert not answers_at_once(None, 6)
    assert not answers_at_once(0, None)
    assert not answers_at_once(17, 1)  # SaslHandshake has no throttle time
    assert answers_at_once(44, 0)
    assert answers_at_once(1, 99)
    first = {0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 18: 2, 19: 3, 21: 1, 22: 1, 32: 2, 42: 1}
    assert {key: dissectors.api(key).definition.mutes.low for key in first} == first  # type: ignore[union-attr]
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        mutes = api.definition.mutes
        if mutes.low > mutes.high:
            continue
        names = {field.name for field in api.response(mutes.low).root.fields}
        assert "throttle_time_ms" in names, api.name
        if mutes.low > api.min_version and api.name != "OffsetForLeaderEpoch":
            before = {field.name for field in api.response(mutes.low - 1).root.fields}
            assert "throttle_time_ms" in before, api.name


def test_roles_of_senders() -> None:
    assert role_of(1, {"replica_id": -1}) == "client"
    assert role_of(1, {"replica_id": 3}) == "replica"
    assert role_of(1, {"replica_state": {"replica_id": 3, "replica_epoch": 1}}) == "replica"
    assert role_of(1, {"replica_state": {"replica_id": 0, "replica_epoch": 1}}) == "replica"
    assert role_of(1, {"max_wait_ms": 5, "topics": []}) == "client"  # version 15 and later, without the tagged struct
    assert role_of(1, {"max_wait_ms": 5}) is None  # cut before it
    assert role_of(1, {"replica_id": 3, "topics": [{"topic": "__cluster_metadata"}]}) == "quorum"
    assert role_of(1, {"topics": [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}]}) == "quorum"
    assert role_of(2, {"replica_id": -2}) == "client"  # a tool that reads from a replica
    assert role_of(23, {"replica_id": 1}) == "replica"
    assert role_of(0, {"replica_id": 1}) is None
    assert role_of(1, None) is None
    assert role_of(None, {}) is None


def message(kind: str, key: int, at_ms: float, version: int = 12, **body: object) -> Message:
    return Message(kind, 10, 1, key, None, version, None, body=body, time_ns=round(at_ms * MS))  # type: ignore[arg-type]


def test_requests_after_one_that_may_wait() -> None:
    join = message("request", 11, 0, 5, rebalance_timeout_ms=300_000)
    assert delays_without(join, None, None) == (0, 0, 300_000 * MS)
    beat = message("request", 12, 1000, 4)
    assert delays_without(beat, 300_000 * MS, None) == (299_000 * MS, 0, 300_000 * MS)
    # A message that was not captured may have had a wait.
    assert delays_without(None, 5, 7) == (None, None, 5)
    sync = message("request", 14, 0, 5, assignments=[])
    assert delays_without(sync, None, None) == (0, 0, UNLIMITED_NS)
    # A request without a response is muted, too.
    assert delays_without(message("request", METADATA, 105), None, 1005 * MS) == (0, 900 * MS, None)
