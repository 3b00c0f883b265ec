"""Clients that would be refused, from hand-written rows."""

from __future__ import annotations

from typing import Any

from kafkasniff.analysis.audit import Audit, AuditedClient, audit
from kafkasniff.analysis.questions.versions import ClientVersions, Offers, VersionParameters, highest
from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.kafka.apis.releases import releases, spoken_by
from tests.analysis.tables import Row, batch_of, exchange
from tests.choice import one_in


def audited(*rows: Row, target: str = "4.0") -> Audit:
    versions, offers = ClientVersions(VersionParameters(target=target, all=True)), Offers()
    for question in (versions, offers):
        # Row by row: the batches that rows arrive in make no difference.
        for row in rows:
            question.update(batch_of([row]))
    return audit(versions, offers)


def the_client(*rows: Row, target: str = "4.0") -> AuditedClient:
    [client] = audited(*rows, target=target).clients
    return client


def asking(offered: dict[str, int] | None = None, version: int = 2, **values: Any) -> Row:
    """ApiVersions, and the highest versions offered."""
    body = None
    if offered is not None:
        keys = [{"api_key": key(name), "min_version": 0, "max_version": top} for name, top in offered.items()]
        body = {"error_code": 0, "api_keys": keys}
    return exchange("ApiVersions", api_version=version, response_body=body, **values)


def key(name: str) -> int:
    found = api_by_name(name)
    return found.key


def test_the_limit_of_a_client_that_asks() -> None:
    """It takes the highest common version: whether it knows a higher one depends on what it was offered."""
    fetch = exchange("Fetch", 2, api_version=3)
    own = the_client(asking({"Fetch": 11}), fetch)
    assert (own.outcome, own.findings[0].certain) == ("refused", True)
    assert "offered up to v11" in own.findings[0].meaning
    brokers = the_client(asking({"Fetch": 3}), fetch)
    assert (brokers.outcome, brokers.findings[0].certain) == ("at-risk", False)
    assert "at most v3" in brokers.findings[0].meaning
    # Two brokers: the client may have talked to the one with the lower version.
    assert the_client(asking({"Fetch": 11}), asking({"Fetch": 3}), fetch).outcome == "at-risk"
    unknown = the_client(asking(), fetch)
    assert (unknown.outcome, unknown.findings[0].certain) == ("at-risk", False)
    both = the_client(asking({"Fetch": 11}), fetch, exchange("Fetch", 3, api_version=4))
    assert (both.outcome, both.findings[0].certain) == ("at-risk", False)
    assert "it also uses v4" in both.findings[0].meaning


def test_a_newer_client_uses_lower_versions() -> None:
    client = the_client(asking(version=4), exchange("Fetch", api_version=17), target="2.0")
    assert (client.outcome, client.findings, client.falls_back) == ("served", [], ["Fetch v17"])
    assert any("error 35" in note for note in client.notes)
    not_asking = the_client(exchange("Fetch", api_version=17), target="2.0")
    assert (not_asking.outcome, not_asking.findings[0].kind) == ("at-risk", "too-new")
    assert "Fetch v8 or older" in not_asking.upgrade
    # A release without ApiVersions does not announce its versions.
    before = the_client(asking(), exchange("Fetch", api_version=17), target="0.9.0")
    assert [(one.api, one.kind, one.certain) for one in before.findings] == [
        ("Fetch", "too-new", True),
        ("ApiVersions", "not-yet", True),
    ]


def test_brokers_are_not_clients() -> None:
    """APIs that only brokers use, and all traffic of a client with a broker's name, or with a number and such APIs."""
    found = audited(
        exchange("LeaderAndIsr", api_version=5, client_id="1"),
        exchange("CreateTopics", api_version=0, client_id="1"),
        exchange("Fetch", api_version=3, client_id="broker-1-fetcher-0"),
        exchange("Fetch", api_version=3, client_id="2"),
        exchange("WriteTxnMarkers", api_version=0, client_id="tool"),
        exchange("Produce", api_version=1, client_id="tool"),
        exchange("Produce", api_version=1, client_id="tool"),
        exchange("ControlledShutdown", api_version=0, client_id="tool"),
    )
    assert [(one.client_id, [finding.api for finding in one.findings]) for one in found.clients] == [
        ("2", ["Fetch"]),
        ("tool", ["Produce"]),
    ]
    assert [(one.api, one.api_version, one.verdict) for one in found.between_brokers] == [
        ("Fetch", 3, "too-old"),
        ("LeaderAndIsr", 5, "removed"),
        ("ControlledShutdown", 0, "removed"),
        ("CreateTopics", 0, "too-old"),
        ("WriteTxnMarkers", 0, "too-old"),
    ]
    only_brokers = audited(exchange("LeaderAndIsr", api_version=5, client_id="1"))
    assert (only_brokers.has_findings, only_brokers.clients) == (False, [])


def test_bodies_without_versions() -> None:
    for body in (
        *(None, [], "", {"api_keys": []}, {"error_code": 0, "api_keys": None}),
        {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 3}]},
        {"error_code": 0, "api_keys": [None, 5, {}, {"api_key": "0", "max_version": 3}, {"api_key": 1}]},
    ):
        assert highest(body) == {}
    row = asking()
    row["response_body"] = "{not json"
    assert the_client(row, exchange("Fetch", 1, api_version=3)).outcome == "at-risk"


def test_a_client_of_the_target_release_is_served() -> None:
    """Every release serves its own highest versions."""
    for target in one_in(6, releases()):
        rows = [
            exchange(None, api_key=api_key, api_version=spoken.high)
            for api_key, spoken in spoken_by(target).items()
            if spoken.unstable is None
        ]
        versions, offers = ClientVersions(VersionParameters(target=target, all=True)), Offers()
        for question in (versions, offers):
            question.update(batch_of(rows))
        assert audit(versions, offers).has_findings is False, target
