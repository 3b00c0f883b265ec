"""Details of problems about TLS are recognised by their building blocks."""

from __future__ import annotations

import pytest

from kafkasniff.tls.descriptions import alert_name
from kafkasniff.tls.wording import (
    CLIENT,
    EXPIRED,
    NAMED,
    NO_ANSWER,
    NO_KEYS,
    NOT_YET_VALID,
    OTHER_KEYS,
    OTHER_NAME,
    OTHER_SIDE,
    alert_in,
    ended_with_alert,
    flaws_in,
    is_about_tls,
    lacks_keys,
)

DESCRIBED = f"{NAMED}TLS 1.2 with AES, no server name, no ALPN, certificate of CN=a"


@pytest.mark.parametrize("by_client", [False, True])
@pytest.mark.parametrize("in_handshake", [False, True])
def test_alerts(by_client: bool, in_handshake: bool) -> None:
    said = ended_with_alert(alert_name(48), by_client=by_client, in_handshake=in_handshake)
    assert alert_in(f"{DESCRIBED}; {said}: more") == (CLIENT if by_client else OTHER_SIDE, "unknown_ca")


def test_other_details_have_no_alert() -> None:
    assert alert_in(f"{DESCRIBED}; {NO_ANSWER}") is None
    assert alert_in("a certificate of CN=the client with the alert unknown_ca") is None


def test_flaws_of_certificates() -> None:
    flaws = [f"{EXPIRED} 2026-01-01", f"{NOT_YET_VALID} 2027-01-01", f"{OTHER_NAME} a.example, b.example"]
    assert flaws_in("; ".join([DESCRIBED, *flaws, NO_ANSWER])) == flaws
    assert flaws_in(DESCRIBED) == []


@pytest.mark.parametrize(
    ("detail", "tls", "keys"),
    [
        (f"{DESCRIBED}; {NO_KEYS} (--keylog FILE)", True, True),
        (f"{DESCRIBED}; {OTHER_KEYS}", True, True),
        (f"{DESCRIBED}; {NO_ANSWER}", True, False),
        (f"{NAMED}SSL 3.0 offered by the client; {NO_ANSWER}", True, False),
        (f"{NAMED}HTTP", False, False),
        (f"the client said: {DESCRIBED}", False, False),
    ],
)
def test_what_a_detail_is_about(detail: str, tls: bool, keys: bool) -> None:
    assert (is_about_tls(detail), lacks_keys(detail)) == (tls, keys)
