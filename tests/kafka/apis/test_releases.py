"""Versions of releases; the samples are from the releases' own documentation."""

from __future__ import annotations

import pytest

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


def test_versions_removed_in_4_0() -> None:
    # KIP-896 removed old versions in 4.0; KRaft removed the controller's requests of ZooKeeper mode.
    spoken_4 = spoken_by("4.0")
    assert str(spoken_4[key("Fetch")]) == "4-17"
    assert str(spoken_4[key("Produce")]) == "3-12"
    assert str(spoken_by("3.9")[key("Fetch")]) == "0-17"
    for name in ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"):
        assert removed_in(key(name)) == "4.0"
        assert key(name) not in spoken_4
    assert removed_in(key("Fetch")) is None


def test_versions_that_are_not_stable() -> None:
    assert spoken_by("3.9")[key("ShareFetch")].unstable == 0
    assert not is_stable(key("ShareFetch"), 0)
    assert first_release(key("ShareFetch"), 0) == "3.9"
    assert is_stable(key("ShareFetch"), 1)
    # In 3.5 only with an opt-in, stable since 3.7.
    assert first_release(key("ConsumerGroupHeartbeat"), 0) == "3.7"


@pytest.mark.parametrize(
    ("text", "release"),
    [("3.9", "3.9"), ("3.9.1", "3.9"), ("v3.9.1", "3.9"), ("0.10.2.1", "0.10.2"), ("4.0.0", "4.0"), ("9.9", None)],
)
def test_find_release(text: str, release: str | None) -> None:
    assert find_release(text) == release
    assert find_release("") is None


def test_versions_that_were_dropped() -> None:
    """KIP-896: Kafka 4.0 dropped the versions of clients before 2.1."""
    assert dropped_in(0, 2) == ("4.0", 3)
    assert dropped_in(1, 3) == ("4.0", 4)
    assert dropped_in(0, 3) is None  # still accepted
    assert dropped_in(0, 99) is None  # in no release
    assert dropped_in(3, 0) is None  # Metadata v0 was kept
    assert dropped_in(4, 0) is None  # the whole API was removed, not only the version
    assert dropped_in(9_999, 0) is None
