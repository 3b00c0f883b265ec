"""Versions of releases; the samples are from the releases' own documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import releases
from kafkasniff.kafka.apis.dissectors import api, api_by_name, api_keys
from kafkasniff.kafka.apis.releases import (
    Proof,
    Proven,
    defined_data,
    defined_pairs,
    dropped_in,
    first_release,
    is_stable,
    proven,
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


def test_versions_and_apis_that_were_dropped() -> None:
    """Kafka 4.0 dropped the versions of clients before 2.1 (KIP-896), and the controller's requests with ZooKeeper."""
    assert (dropped_in(0, 2), dropped_in(1, 3)) == (("4.0", 3), ("4.0", 4))
    # Still accepted, in no release, kept, removed with the whole API, and no API.
    assert {dropped_in(*pair) for pair in ((0, 3), (0, 99), (3, 0), (4, 0), (9_999, 0))} == {None}
    assert (removed_in(key("LeaderAndIsr")), removed_in(key("Fetch"))) == ("4.0", None)
    assert str(spoken_by("4.0")[key("Fetch")]) == "4-17"


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of proven versions, instead of the checkout's; the definitions, which are read once, stay."""
    assert defined_pairs()
    assert defined_data()
    (tmp_path / "dissectors").mkdir()
    monkeypatch.setattr(releases, "data_folder", lambda: tmp_path / "dissectors")
    monkeypatch.setattr("kafkasniff.kafka.schema.data_files.data_folder", lambda: tmp_path / "dissectors")
    return tmp_path / "dissectors" / "proven.txt"


def test_lines(listed: Path) -> None:
    assert proven() == Proven({}, {}, {}), "nothing is proven without the file"
    listed.write_text(
        "# Head.\n"
        "Produce 9 captures 4.4.0 a.pcap b.pcap\n"
        "Produce 9 captures 3.9.2 c.pcap a.pcap\n"
        "\n"
        "Produce 9 vectors 4.4.0\n"
        "Vote 2 vectors 4.0.2 4.4.0\n"
        "data ConfigRecord 0 vectors 4.4.0\n"
        "batches 1 captures 3.9.2 c.pcap\n"
    )
    assert proven() == Proven(
        {(0, 9): Proof(("4.4.0",), ("a.pcap", "b.pcap", "c.pcap")), (52, 2): Proof(("4.0.2", "4.4.0"))},
        {("ConfigRecord", 0): Proof(("4.4.0",))},
        {1: Proof(captures=("c.pcap",))},
    )


def test_lines_that_prove_nothing(listed: Path) -> None:
    for line in (
        *("Produce", "Produce 9", "Produce 9 vectors", "Produce 9 captures 4.4.0", "Produce 9 hearsay 4.4.0"),
        *("Produce 99 vectors 4.4.0", "Produce nine vectors 4.4.0", "Product 9 vectors 4.4.0", "data"),
        *("data ConfigRecord 7 vectors 4.4.0", "data NoSuchRecord 0 vectors 4.4.0", "ConfigRecord 0 vectors 4.4.0"),
        "batches two vectors 4.4.0",
    ):
        listed.write_text(f"# Head.\n{line}\n")
        with pytest.raises(DefinitionError, match=r"proven\.txt:2: "):
            proven()
