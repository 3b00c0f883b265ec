"""Refused authentications: whose fault they are."""

from __future__ import annotations

import pytest

from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import Row, connection, exchange

USERS = ("alice", "bob", "carol")


def attempts(*tries: tuple[str, bool], mechanism: str = "PLAIN", by_token: bool = False, apps: str = "a") -> list[str]:
    """What findings say about authentications of these users, one a second, that succeed or not.

    `apps` names the clients of the first ones; the last one has the others, too.
    """
    connections: list[Row] = []
    refused: list[Row] = []
    for number, (user, accepted) in enumerate(tries):
        app = apps[min(number, len(apps) - 1)]
        said = "succeeded" if accepted else "failed"
        own = {"connection_id": number, "client_ids": [app], "sasl_mechanism": mechanism, "principal": user}
        own |= {"broker_ip": "10.0.0.9", "broker_port": 9092, "authentication": said, "by_token": by_token}
        connections.append({**connection(at=number), **own})
        if not accepted:
            own = {"connection_id": number, "client_id": app}
            refused.append({**exchange("SaslAuthenticate", at=number + 0.5, error_code=58), **own})
    found = findings_of("sasl-failures", refused, connections=connections)
    return [f"{one.title} {one.meaning} {one.advice}" for one in found]


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ([(user, True) for user in USERS] + [(user, False) for user in USERS], "all of them were accepted before"),
        ([(user, False) for user in USERS], "nobody is accepted"),
    ],
    ids=["worked-before", "never-worked"],
)
def test_several_principals_at_once(tries: list[tuple[str, bool]], expected: str) -> None:
    (words,) = attempts(*tries)
    assert "3 authentications of 3 principals (alice, bob, carol)" in words
    assert expected in words


@pytest.mark.parametrize(
    ("mechanism", "by_token", "advice"),
    [
        ("PLAIN", False, "give the client the new ones"),
        ("OAUTHBEARER", False, "gets a new token in time"),
        ("SCRAM-SHA-256", True, "Renew the delegation token"),
    ],
)
def test_credentials_that_worked_before(mechanism: str, by_token: bool, advice: str) -> None:
    (words,) = attempts(("alice", True), ("alice", False), ("bob", True), mechanism=mechanism, by_token=by_token)
    assert "was accepted before" in words
    assert advice in words
    (words,) = attempts(("alice", True), ("alice", False), ("alice", True), mechanism=mechanism, by_token=by_token)
    assert "was accepted before" not in words


def test_a_token_that_was_never_accepted() -> None:
    (words,) = attempts(("alice", False), mechanism="SCRAM-SHA-256", by_token=True)
    assert "does not know this delegation token" in words
    assert "Renew the delegation token" in words


def test_another_client_of_the_same_user() -> None:
    """That it was accepted says nothing about the password that this one has."""
    (words,) = attempts(("alice", True), ("alice", False), apps="ab")
    assert "the password or token is wrong" in words
