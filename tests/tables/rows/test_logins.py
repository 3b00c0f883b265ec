"""What a connection shows of its authentication."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.model import Exchange, SaslToken
from kafkasniff.tables.rows import logins
from kafkasniff.tables.rows.logins import Login
from tests.sinks.messages import message

_KEYS = {"SaslHandshake": 17, "ApiVersions": 18, "SaslAuthenticate": 36, "Metadata": 3}


def exchange(api: str, asked: Any = None, answered: Any = None, number: int = 1, **fields: Any) -> Exchange:
    made = {"api": api, "api_key": _KEYS.get(api, 1), "api_version": 1, "exchange": number, **fields}
    response = None if answered is None else message("response", body=answered, **made)
    return Exchange(number, 3, "answered" if response else "unanswered", message(body=asked or {}, **made), response)


def handshake(mechanism: str, error: int = 0) -> Exchange:
    return exchange("SaslHandshake", {"mechanism": mechanism}, {"error_code": error, "mechanisms": ["PLAIN", "GSSAPI"]})


def token(said: Any, answered: Any, error: int = 0, words: str | None = None) -> Exchange:
    response = {"error_code": error, "error_message": words, "_auth_bytes": answered}
    return exchange("SaslAuthenticate", {"auth_bytes": None, "_auth_bytes": said}, response, 2)


def after(*exchanges: Exchange) -> Login:
    login = Login()
    for one in exchanges:
        login.feed(one)
    return login


_PLAIN = {"mechanism": "PLAIN", "message": "credentials", "username": "alice"}
_FIRST = {"mechanism": "SCRAM-SHA-256", "message": "client-first", "username": "bob"}
_METADATA = exchange("Metadata", {}, {})


def test_scram_ends_with_the_servers_signature() -> None:
    begun = (handshake("SCRAM-SHA-256"), token(_FIRST, {"message": "server-first"}))
    assert after(*begun).outcome == "begun"
    final = token({"message": "client-final"}, {"message": "server-final"})
    assert after(*begun, final).outcome == "succeeded"
    assert after(*begun, final).principal == "bob"
    refused = token({"message": "client-final"}, {"message": "server-final", "error": "invalid-proof"})
    assert (after(*begun, refused).outcome, after(*begun, refused).reason) == ("failed", "invalid-proof")


def test_an_answered_request_proves_it() -> None:
    begun = (handshake("SCRAM-SHA-256"), token(_FIRST, {"message": "server-first"}))
    assert after(*begun, _METADATA).outcome == "succeeded"
    # Anyone may send it before.
    assert after(*begun, exchange("ApiVersions", {}, {})).outcome == "begun"
    assert after(*begun, exchange("Metadata", {})).outcome == "begun"


def test_a_second_attempt_counts() -> None:
    login = after(handshake("GSSAPI", 33), handshake("PLAIN"), token(_PLAIN, None))
    assert (login.mechanism, login.outcome, login.reason) == ("PLAIN", "succeeded", None)


def test_raw_tokens() -> None:
    login = after(handshake("PLAIN"))
    login.feed_token(SaslToken("request", 19, "PLAIN", None, 3, meaning=_PLAIN))
    assert (login.outcome, login.principal, login.credentials) == ("begun", "alice", True)
    login.feed(_METADATA)
    assert login.outcome == "succeeded"


def test_a_delegation_token() -> None:
    login = after(handshake("SCRAM-SHA-256"), token({**_FIRST, "token_auth": True}, {"message": "server-first"}))
    assert login.token


def test_bodies_that_were_not_decoded() -> None:
    login = after(exchange("SaslHandshake", None, None), exchange("SaslAuthenticate", None, None))
    assert (login.outcome, login.mechanism, login.principal) == ("begun", None, None)


def test_the_number_of_open_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MAX_OPEN", 2)
    found = logins.Logins()
    for number in range(4):
        found.of(number).serve()
    assert [found.pop(number).served for number in range(4)] == [False, False, True, True]
