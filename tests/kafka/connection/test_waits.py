"""Waits that requests ask for, and versions that let the client wait."""

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.connection.waits import Wait, answers_at_once, wait_of

MS = 1_000_000
FETCH = {"max_wait_ms": 500, "min_bytes": 100}


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
