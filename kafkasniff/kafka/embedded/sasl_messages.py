"""Messages of SASL mechanisms: their kind, and their non-secret parts.

Secrets are never shown: no password, nonce, salt, proof, signature, token or ticket. User names are shown (PLAIN's and
SCRAM's authcid, authzid), as is the broker's error description. Only complete messages of the mechanism's format are
decoded, since a name in a malformed one could be anything.

The mechanism is that of the connection's SaslHandshake; without one only unambiguous messages are named.
PLAIN: RFC 4616; SCRAM: RFC 5802, section 7, with Kafka's extension `tokenauth` (KIP-48); OAUTHBEARER: RFC 7628,
section 3, with Kafka's extensions (KIP-342); GSSAPI: RFC 4121, section 4, RFC 2743, section 3.1; AWS_MSK_IAM: the
README of Amazon's aws-msk-iam-auth (a signed request as JSON, whose user is the access key's id).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.model import Body, Direction

MAX_MESSAGE: Final = 64 << 10
"""Longer messages are not decoded: Kafka's own bound is 512 kB, for Kerberos tickets with many group SIDs."""
MAX_ERROR: Final = 1000
"""Longer error descriptions are not shown."""

_PRINTABLE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = rb"[A-Za-z0-9+/]+={0,2}"
# A saslname: no comma, and an equals sign only in =2C and =3D.
_NAME: Final = rb"(?:[^\x00,=]|=2C|=3D)+"
_GS2: Final = rb"(?:n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>" + _NAME + rb"))?,"
_CLIENT_FIRST: Final = re.compile(
    _GS2 + rb"n=(?P<username>" + _NAME + rb"),r=" + _PRINTABLE + rb"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]*)*)"
)
_SERVER_FIRST: Final = re.compile(
    rb"r=" + _PRINTABLE + rb",s=" + _BASE64 + rb",i=(?P<iterations>[0-9]{1,9})(?:,[A-Za-z]=[^\x00,]*)*"
)
_CLIENT_FINAL: Final = re.compile(rb"c=" + _BASE64 + rb",r=" + _PRINTABLE + rb"(?:,[A-Za-z]=[^\x00,]*)*?,p=" + _BASE64)
_SERVER_FINAL: Final = re.compile(rb"(?:v=" + _BASE64 + rb"|e=(?P<error>[^\x00,]{1,1000}))(?:,[A-Za-z]=[^\x00,]*)*")
_BEARER: Final = re.compile(
    rb"n,(?:a=(?P<authzid>" + _NAME + rb"))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x00\x01]*\x01)+)\x01"
)
_BEARER_ERROR_FIELDS: Final = ("status", "scope", "openid-configuration")

_ACCESS_KEY: Final = re.compile(r"([A-Z0-9]{16,128})(?:/[a-z0-9-]+){3}/aws4_request")

_KERBEROS: Final = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"
_SPNEGO: Final = b"\x06\x06\x2b\x06\x01\x05\x05\x02"
_KERBEROS_TOKENS: Final = {b"\x01\x00": "ap-req", b"\x02\x00": "ap-rep", b"\x03\x00": "krb-error"}
_KERBEROS_PER_MESSAGE: Final = {b"\x04\x04": "mic", b"\x05\x04": "wrap"}


def handshake_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Remember the mechanism."""
    mechanism = body.get("mechanism")
    if isinstance(mechanism, str):
        context.carry = mechanism
        if context.memory is not None:
            # From now on, not from the answer on: that may be missing.
            context.memory.sasl_mechanism = mechanism


def handshake_response(body: Body, _version: int, context: DecodeContext) -> None:
    """Forget a mechanism that the broker refuses."""
    if body.get("error_code") and context.memory is not None and context.memory.sasl_mechanism == context.request:
        context.memory.sasl_mechanism = None


def authenticate_request(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_auth_bytes`."""
    _authenticate(body, "request", context)


def authenticate_response(body: Body, _version: int, context: DecodeContext) -> None:
    """Add `_auth_bytes`."""
    _authenticate(body, "response", context)


def _authenticate(body: Body, direction: Direction, context: DecodeContext) -> None:
    data = context.revealed(body.get("auth_bytes"))
    if data:
        mechanism = None if context.memory is None else context.memory.sasl_mechanism
        described = describe_message(mechanism, direction, data)
        if described is not None:
            body["_auth_bytes"] = described


def describe_message(mechanism: str | None, direction: Direction, data: bytes) -> Body | None:
    """`{"mechanism", "message", …}`: the kind of message, null if unknown; None if nothing is known.

    `mechanism` is null without a handshake. More keys, if the message has them: `username`, `authzid`, `token_auth`
    (SCRAM with a delegation token, whose id is the username), `iterations`, `extensions` (their names), `error`.
    """
    if not data:
        return None
    found: Body | None = None
    if len(data) <= MAX_MESSAGE:
        if mechanism == "PLAIN":
            found = _plain(data) if direction == "request" else None
        elif mechanism is None or mechanism.startswith("SCRAM-"):
            found = _scram(data, direction)
        if mechanism in (None, "OAUTHBEARER") and found is None:
            found = _oauth(data, direction, known=mechanism is not None)
        if mechanism == "AWS_MSK_IAM":
            found = _aws_msk_iam(data, direction)
        if mechanism in (None, "GSSAPI") and found is None:
            found = _gssapi(data, known=mechanism is not None)
    if found is None:
        return None if mechanism is None else {"mechanism": mechanism, "message": None}
    return {"mechanism": found.pop("mechanism", mechanism), **found}


def _text(data: bytes | None) -> str | None:
    """Text for a reader; None if the bytes are missing or not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _saslname(data: bytes | None) -> str | None:
    text = _text(data)
    return None if text is None else text.replace("=2C", ",").replace("=3D", "=")


def _described(message: str, **facts: object) -> Body:
    return {"message": message, **{name: fact for name, fact in facts.items() if fact is not None}}


def _plain(data: bytes) -> Body | None:
    parts = data.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        return None
    authzid, username = _text(parts[0] or None), _text(parts[1])
    return _described("credentials", username=username, authzid=authzid)


def _scram(data: bytes, direction: Direction) -> Body | None:
    if direction == "request":
        first = _CLIENT_FIRST.fullmatch(data)
        if first is not None:
            return _described(
                "client-first",
                username=_saslname(first["username"]),
                authzid=_saslname(first["authzid"]),
                token_auth=True if b"tokenauth=true" in first["extensions"].split(b",") else None,
            )
        return _described("client-final") if _CLIENT_FINAL.fullmatch(data) else None
    first = _SERVER_FIRST.fullmatch(data)
    if first is not None:
        return _described("server-first", iterations=int(first["iterations"]))
    final = _SERVER_FINAL.fullmatch(data)
    return None if final is None else _described("server-final", error=_text(final["error"]))


def _oauth(data: bytes, direction: Direction, *, known: bool) -> Body | None:
    found: Body | None = None
    if direction == "request":
        initial = _BEARER.fullmatch(data)
        if initial is not None:
            names = [pair.partition(b"=")[0].decode() for pair in initial["pairs"].split(b"\x01") if pair]
            if "auth" in names:
                names.remove("auth")
                extensions = names or None
                found = _described("client-initial", authzid=_saslname(initial["authzid"]), extensions=extensions)
        elif known and data == b"\x01":
            found = _described("client-error-ack")
    elif known:
        found = _oauth_error(data)
    return None if found is None else {"mechanism": "OAUTHBEARER", **found}


def _aws_msk_iam(data: bytes, direction: Direction) -> Body | None:
    """A request is signed for an access key, whose id is public; signature and session token are secrets."""
    parsed = _json(data)
    if parsed is None or not isinstance(parsed.get("version"), str):
        return None
    if direction == "response":
        return _described("server-final") if isinstance(parsed.get("request-id"), str) else None
    # KEY/DATE/REGION/SERVICE/aws4_request
    scope = parsed.get("x-amz-credential")
    match = _ACCESS_KEY.fullmatch(scope) if isinstance(scope, str) else None
    return None if match is None else _described("credentials", username=match[1])


def _json(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None for everything else."""
    try:
        # Strict: Python's own parser accepts unpaired surrogates, which cannot be written again.
        parsed = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _oauth_error(data: bytes) -> Body | None:
    """The JSON object with which a broker refuses a token."""
    parsed = _json(data) if len(data) <= MAX_ERROR else None
    if parsed is None:
        return None
    error = {name: parsed[name] for name in _BEARER_ERROR_FIELDS if isinstance(parsed.get(name), str)}
    return _described("server-error", error=error or None)


def _gssapi(data: bytes, *, known: bool) -> Body | None:
    """By the token's header: an initial token names its mechanism, later ones are Kerberos' own."""
    if data[0] == 0x60:
        # ASN.1 length: one byte, or 0x80 + the number of bytes that it takes.
        start = 2 + (data[1] & 0x7F if len(data) > 1 and data[1] > 0x80 else 0)
        if data.startswith(_KERBEROS, start):
            token = data[start + len(_KERBEROS) :][:2]
            return {"mechanism": "GSSAPI", "message": _KERBEROS_TOKENS.get(token)}
        if known and data.startswith(_SPNEGO, start):
            return _described("spnego")
        return None
    message = _KERBEROS_PER_MESSAGE.get(data[:2]) if known else None
    return None if message is None else _described(message)
