"""Versions of releases; the samples are from the releases' own documentation."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import api, api_by_name, api_keys
from kafkasniff.kafka.apis.releases import (
    dropped_in,
    find_release,
    first_release,
    is_stable,
    removed_in,
    spoken,
    spoken_by,
)


def key(name: str) -> int:
    found = api_by_name(name)
    assert found is not None
    return found.key


def test_every_version_of_every_api_came_with_a_release_but_one() -> None:
    never = []
    for number in api_keys():
        found = api(number)
        assert found is not None
        never += [(found.name, version) for version in found.versions if first_release(number, version) is None]
        assert first_release(number, found.max_version + 1) is None
        for release, versions in spoken(number).items():
            assert 0 <= versions.low <= versions.high <= found.max_version, (found.name, release)
    # KAFKA-20441 removed it again before 4.3.0.
    assert never == [("BrokerRegistration", 5)]


def test_versions_that_are_not_stable() -> None:
    assert [is_stable(key("ShareFetch"), version) for version in (0, 1)] == [False, True]
    # In 3.5 only with an opt-in, stable since 3.7.
    assert first_release(key("ConsumerGroupHeartbeat"), 0) == "3.7"


def test_find_release() -> None:
    texts = ("3.9", "3.9.1", "v3.9.1", "0.10.2.1", "9.9", "")
    assert [find_release(text) for text in texts] == ["3.9", "3.9", "3.9", "0.10.2", None, None]


def test_versions_and_apis_that_were_dropped() -> None:
    """Kafka 4.0 dropped the versions of clients before 2.1 (KIP-896), and the controller's requests with ZooKeeper."""
    assert (dropped_in(0, 2), dropped_in(1, 3)) == (("4.0", 3), ("4.0", 4))
    # Still accepted, in no release, kept, removed with the whole API, and no API.
    assert {dropped_in(*pair) for pair in ((0, 3), (0, 99), (3, 0), (4, 0), (9_999, 0))} == {None}
    assert (removed_in(key("LeaderAndIsr")), removed_in(key("Fetch"))) == ("4.0", None)
    assert str(spoken_by("4.0")[key("Fetch")]) == "4-17"
