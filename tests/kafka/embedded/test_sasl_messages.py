"""Messages of SASL mechanisms: named, with their public parts, and without any secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.embedded.sasl_messages import MAX_MESSAGE, describe_message
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.schema.context import ConnectionMemory, DecodeOptions
from kafkasniff.model import Direction

# RFC 7677, section 3: the example of a complete SCRAM-SHA-256 authentication.
SCRAM: list[tuple[Direction, bytes, dict[str, Any]]] = [
    ("request", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", {"message": "client-first", "username": "user"}),
    (
        "response",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        {"message": "server-first", "iterations": 4096},
    ),
    (
        "request",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        {"message": "client-final"},
    ),
    ("response", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", {"message": "server-final"}),
]
# RFC 4616, section 4; RFC 7628, section 4.1 and 4.2 (the token shortened).
PLAIN = b"\0tim\0tanstaaftanstaaf"
PLAIN_AS_OTHER = b"Ursel\0Kurt\0xipj3plmq"
BEARER = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
    b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdm==\x01\x01"
)
BEARER_ERROR = (
    b'{"status":"invalid_token","scope":"example_scope","openid-configuration":"https://example.com/.well-known/x"}'
)
# The fields that the README of aws-msk-iam-auth lists; the access key is the example of AWS's documentation.
MSK_IAM = (
    b'{"version":"2020_10_22","host":"b-1.example.kafka.us-east-1.amazonaws.com","user-agent":"client",'
    b'"action":"kafka-cluster:Connect","x-amz-algorithm":"AWS4-HMAC-SHA256",'
    b'"x-amz-credential":"AKIAIOSFODNN7EXAMPLE/20261130/us-east-1/kafka-cluster/aws4_request",'
    b'"x-amz-date":"20261130T000000Z","x-amz-security-token":"hidden","x-amz-signedheaders":"host",'
    b'"x-amz-expires":"900","x-amz-signature":"hidden"}'
)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", None])
@pytest.mark.parametrize(("direction", "data", "expected"), SCRAM, ids=lambda one: one if isinstance(one, str) else "")
def test_scram(mechanism: str | None, direction: Direction, data: bytes, expected: dict[str, Any]) -> None:
    assert describe_message(mechanism, direction, data) == {"mechanism": mechanism, **expected}


@pytest.mark.parametrize(
    ("mechanism", "direction", "data", "expected"),
    [
        ("PLAIN", "request", PLAIN, {"message": "credentials", "username": "tim"}),
        ("PLAIN", "request", PLAIN_AS_OTHER, {"message": "credentials", "username": "Kurt", "authzid": "Ursel"}),
        (
            "SCRAM-SHA-512",
            "request",
            b"n,a=b=2Cc,n=t=3Dk,r=abc,tokenauth=true",
            {"message": "client-first", "username": "t=k", "authzid": "b,c", "token_auth": True},
        ),
        ("SCRAM-SHA-512", "response", b"e=unknown-user", {"message": "server-final", "error": "unknown-user"}),
        (
            "OAUTHBEARER",
            "request",
            BEARER,
            {"message": "client-initial", "authzid": "user@example.com", "extensions": ["host", "port"]},
        ),
        ("OAUTHBEARER", "request", b"\x01", {"message": "client-error-ack"}),
        ("OAUTHBEARER", "response", BEARER_ERROR, {"message": "server-error", "error": json.loads(BEARER_ERROR)}),
        ("AWS_MSK_IAM", "request", MSK_IAM, {"message": "credentials", "username": "AKIAIOSFODNN7EXAMPLE"}),
        ("AWS_MSK_IAM", "response", b'{"version":"2020_10_22","request-id":"7d1f"}', {"message": "server-final"}),
        ("AWS_MSK_IAM", "request", MSK_IAM.replace(b"/aws4_", b"/aws5_"), {"message": None}),
        ("AWS_MSK_IAM", "request", MSK_IAM[:-1], {"message": None}),
        ("GSSAPI", "request", bytes.fromhex("6082027306092a864886f7120102020100") + b"x" * 20, {"message": "ap-req"}),
        ("GSSAPI", "response", bytes.fromhex("606f06092a864886f7120102020200") + b"x" * 20, {"message": "ap-rep"}),
        ("GSSAPI", "response", bytes.fromhex("607e06092a864886f7120102020300") + b"x" * 20, {"message": "krb-error"}),
        ("GSSAPI", "response", bytes.fromhex("050405ff000c000c") + b"x" * 20, {"message": "wrap"}),
        ("GSSAPI", "request", bytes.fromhex("606906062b0601050502") + b"x" * 20, {"message": "spnego"}),
        ("X-OWN", "request", b"n,,n=user,r=abc", {"message": None}),
    ],
)
def test_mechanisms(mechanism: str, direction: Direction, data: bytes, expected: dict[str, Any]) -> None:
    assert describe_message(mechanism, direction, data) == {"mechanism": mechanism, **expected}


@pytest.mark.parametrize(
    ("direction", "data", "mechanism"),
    [
        ("request", BEARER, "OAUTHBEARER"),
        ("request", bytes.fromhex("6082027306092a864886f7120102020100"), "GSSAPI"),
        ("request", PLAIN, "nothing"),
        ("request", b"\x01", "nothing"),
        ("response", BEARER_ERROR, "nothing"),
        ("response", bytes.fromhex("050405ff000c000c"), "nothing"),
        ("response", b"e", "nothing"),
    ],
)
def test_without_a_handshake_only_unambiguous_messages_are_read(
    direction: Direction, data: bytes, mechanism: str
) -> None:
    found = describe_message(None, direction, data)
    assert (found["mechanism"] if found else "nothing") == mechanism


@pytest.mark.parametrize(
    "data",
    [b"tim\0tanstaaf", b"\0\0tanstaaf", b"\0tim\0", b"\0tim\0tan\0staaf", PLAIN + b"\0" + b"x" * MAX_MESSAGE],
    ids=["two parts", "no name", "no password", "four parts", "too long"],
)
def test_malformed_credentials_are_hidden(data: bytes) -> None:
    assert describe_message("PLAIN", "request", data) == {"mechanism": "PLAIN", "message": None}


@given(
    st.sampled_from([None, "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "X"]),
    st.sampled_from(["request", "response"]),
    st.binary(max_size=60) | st.sampled_from([data for _, data, _ in SCRAM] + [PLAIN, BEARER, BEARER_ERROR]),
    st.integers(0, 120),
)
def test_any_bytes(mechanism: str | None, direction: Direction, data: bytes, end: int) -> None:
    found = describe_message(mechanism, direction, data[:end])
    assert found is None or {"mechanism", "message"} <= found.keys()
    shown = json.dumps(found)
    # The secrets in the samples.
    for secret in ("tanstaaf", "xipj", "vF9dft", "rOprNG", "W22Za", "biws", "dHzbZ", "6rriT"):
        assert secret not in shown


@pytest.mark.parametrize(
    "data",
    [b"[" * 5000, b'{"status": 5}', b"[]", b'"x"', b"\xff", b"{" + b" " * 2000 + b"}", b'{"status":"\\ud800"}'],
    ids=["deep", "number", "list", "string", "no text", "too long", "half a surrogate pair"],
)
def test_odd_errors_of_oauthbearer(data: bytes) -> None:
    assert "error" not in (describe_message("OAUTHBEARER", "response", data) or {"error": "nothing was read"})


# The mechanism.


@pytest.mark.parametrize("show", [False, True])
def test_in_a_message(show: bool) -> None:
    options = DecodeOptions(show_secrets=show)
    header = b"\0\x24\0\0\0\0\0\7\xff\xff"
    data = header + len(PLAIN).to_bytes(4, "big") + PLAIN
    memory = ConnectionMemory()
    memory.sasl_mechanism = "PLAIN"
    body = decode_request(data, 0, len(data), options, memory=memory).body
    assert body is not None
    assert body["auth_bytes"] == (PLAIN if show else {"redacted": len(PLAIN)})
    assert body["_auth_bytes"] == {"mechanism": "PLAIN", "message": "credentials", "username": "tim"}
    alone = decode_request(data, 0, len(data), options).body
    assert alone is not None
    assert "_auth_bytes" not in alone
    cut = decode_request(data[:-1], 0, len(data) - 1, options, memory=memory)
    assert "tim" not in repr(cut.body)
    empty = b"\0\0\0\7" + b"\0\0" + b"\xff\xff" + b"\0\0\0\0"
    answer = decode_response(empty, 0, len(empty), 36, 0, options, memory=memory).body
    assert answer is not None
    assert "_auth_bytes" not in answer
