from __future__ import annotations

import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import answers, asked, exchange, moment, pick


def test_versions_that_4_0_removed() -> None:
    """KIP-896:

    Kafka 4.0 removed the versions that only clients older than 2.1 use, and the ZooKeeper APIs between brokers.
    """
    rows = [
        exchange("Produce", 1, api_version=2, client_id="old"),
        exchange("Produce", 2, api_version=2, client_id="old"),
        exchange("Produce", 3, api_version=9, client_id="new"),
        exchange("Produce", 3, api_version=13, client_id="newest"),
        exchange("ApiVersions", 3, api_version=9, client_id="newest"),
        exchange("LeaderAndIsr", 4, api_version=5, client_id="broker"),
        exchange(None, 4, client_id="orphan", api_version=None),
    ]
    found = answers("versions", rows, target="4.0")
    names = ("client_id", "api", "api_version", "verdict", "target_min", "target_max", "requests")
    assert pick(found, *names) == [
        ("broker", "LeaderAndIsr", 5, "removed", None, None, 1),
        ("newest", "Produce", 13, "too-new", 3, 12, 1),
        ("old", "Produce", 2, "too-old", 3, 12, 2),
    ]
    assert pick(found, "first", "last")[2] == (moment(1), moment(2))
    assert answers("versions", rows[2:3], target="3.9") == []
    assert pick(answers("versions", rows[2:3], target="3.9", all=True), "verdict") == [("supported",)]


def test_an_api_that_is_not_released_yet() -> None:
    rows = [exchange("ShareFetch", api_version=1), exchange(None, api_key=9999, api_version=0)]
    assert pick(answers("versions", rows, target="2.0"), "api", "verdict") == [
        ("9999", "not-yet"),
        ("ShareFetch", "not-yet"),
    ]


@pytest.mark.parametrize("target", ["5.9", "", "four"])
def test_an_unknown_release(target: str) -> None:
    with pytest.raises(UsageError, match="is unknown"):
        asked("versions", target=target)
