"""What a connection reports of its authentication."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.model import Exchange, SaslToken
from kafkasniff.tables.rows import connections
from kafkasniff.tables.rows.connections import Login
from tests.sinks.messages import message

_KEYS = {"SaslHandshake": 17, "ApiVersions": 18, "SaslAuthenticate": 36, "Metadata": 3}


def exchange(api: str, asked: Any = None, answered: Any = None, number: int = 1) -> Exchange:
    made = {"api": api, "api_key": _KEYS[api], "api_version": 1, "exchange": number}
    response = None if answered is None else message("response", body=answered, **made)
    return Exchange(number, 3, "answered" if response else "unanswered", message(body=asked or {}, **made), response)


def handshake(mechanism: str, error: int = 0) -> Exchange:
    return exchange("SaslHandshake", {"mechanism": mechanism}, {"error_code": error, "mechanisms": ["PLAIN", "GSSAPI"]})


def token(said: Any, answered: Any) -> Exchange:
    response = {"error_code": 0, "error_message": None, "_auth_bytes": answered}
    return exchange("SaslAuthenticate", {"auth_bytes": None, "_auth_bytes": said}, response, 2)


_PLAIN = {"mechanism": "PLAIN", "message": "credentials", "username": "alice"}
_FIRST = {"mechanism": "SCRAM-SHA-256", "message": "client-first", "username": "bob", "token_auth": True}
_BEGUN = (handshake("SCRAM-SHA-256"), token(_FIRST, {"message": "server-first"}))
_FINAL = {"message": "client-final"}
_METADATA = exchange("Metadata", {}, {})
_SCRAM = ("SCRAM-SHA-256", "bob", True)
CASES: dict[str, tuple[tuple[Exchange, ...], tuple[str, str | None], tuple[str | None, str | None, bool]]] = {
    "no end": (_BEGUN, ("begun", None), _SCRAM),
    "the server's signature": ((*_BEGUN, token(_FINAL, {"message": "server-final"})), ("succeeded", None), _SCRAM),
    "a refusal": (
        (*_BEGUN, token(_FINAL, {"message": "server-final", "error": "invalid-proof"})),
        ("failed", "invalid-proof"),
        _SCRAM,
    ),
    "an answered request": ((*_BEGUN, _METADATA), ("succeeded", None), _SCRAM),
    "a request without an answer": ((*_BEGUN, exchange("Metadata", {})), ("begun", None), _SCRAM),
    "what anyone may send before": ((*_BEGUN, exchange("ApiVersions", {}, {})), ("begun", None), _SCRAM),
    "a second attempt": (
        (handshake("GSSAPI", 33), handshake("PLAIN"), token(_PLAIN, None)),
        ("succeeded", None),
        ("PLAIN", "alice", False),
    ),
    "not decoded": ((exchange("SaslHandshake"), exchange("SaslAuthenticate")), ("begun", None), (None, None, False)),
}


@pytest.mark.parametrize(("exchanges", "outcome", "of"), CASES.values(), ids=CASES)
def test_outcomes(
    exchanges: tuple[Exchange, ...], outcome: tuple[str, str | None], of: tuple[str | None, str | None, bool]
) -> None:
    login = Login()
    for one in exchanges:
        login.feed(one)
    assert (login.outcome, login.reason) == outcome
    assert (login.mechanism, login.principal, login.token) == of


def test_raw_tokens() -> None:
    login = Login()
    login.feed(handshake("PLAIN"))
    login.feed_token(SaslToken("request", 19, "PLAIN", None, 3, meaning=_PLAIN))
    assert (login.outcome, login.principal, login.credentials) == ("begun", "alice", True)
    login.feed(_METADATA)
    assert login.outcome == "succeeded"


def test_the_number_of_open_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_OPEN", 2)
    found = connections.Logins()
    for number in range(4):
        found.of(number).serve()
    assert [found.pop(number).served for number in range(4)] == [False, False, True, True]
