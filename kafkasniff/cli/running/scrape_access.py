"""Access control for `--metrics`: a token in a file, TLS, and no access for browser pages by DNS rebinding.

The conventions are Prometheus's: a token as `Authorization: Bearer`, certificate and key as PEM files, at least TLS 1.2
(as in exporter-toolkit, which node_exporter uses).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MAX_TOKEN: Final = 4096
"""Maximum length of a token in bytes; request headers are not longer."""
LOCAL_ADDRESS: Final = "kafkasniff.local_address"
"""Key in a request's environment: the local address of the connection."""
CHALLENGE: Final = 'Bearer realm="kafkasniff"'

_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\[\]:,\s]+))(?::\d*)?")


def read_token(path: str, option: str = "--metrics-token-file") -> bytes:
    """The token in a file that an option names, stripped of white space. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            token = file.read(MAX_TOKEN + 1).strip()
    except OSError as error:
        raise UsageError(f"{option}: cannot read {path}: {error.strerror or error}") from error
    if not token or len(token) > MAX_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token):
        raise UsageError(f"{option}: {path} must contain one word of ASCII, of at most {MAX_TOKEN} characters")
    return token


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """A server's TLS context from PEM files: a certificate (with its chain) and its key.

    Raises UsageError.
    """

    def no_password() -> bytes:
        # OpenSSL would prompt on the terminal.
        raise UsageError(f"--metrics-key: {key} is protected by a passphrase; give a key without one")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except OSError as error:  # SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or error
        raise UsageError(f"--metrics-cert, --metrics-key: cannot use {certificate} with {key}: {reason}") from error
    return context


def is_loopback(address: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def guarded(app: WSGIApplication, *, token: bytes | None, name: str) -> WSGIApplication:
    """`app` with access control: 401 without the token; if there is no token, 403 if `Host` names another machine.

    A page in a browser may have its own name resolve to 127.0.0.1 and read what is served there (DNS rebinding). Its
    requests carry that name in `Host`, and they cannot have a token. `name`: the host that this server listens on.
    """

    def asked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if token is not None:
            if has_token(environ.get("HTTP_AUTHORIZATION", ""), token):
                return app(environ, start_response)
            return _refuse(start_response, "401 Unauthorized", "a token is needed", ("WWW-Authenticate", CHALLENGE))
        if is_loopback(environ.get(LOCAL_ADDRESS, "")) and not _is_local(environ.get("HTTP_HOST"), name):
            return _refuse(start_response, "403 Forbidden", "the Host header is not this machine's")
        return app(environ, start_response)

    return asked


def has_token(header: str, token: bytes) -> bool:
    """Whether an Authorization header has the token."""
    scheme, _, given = header.partition(" ")
    # A header that is not Latin-1 is not a token. The comparison takes constant time.
    return hmac.compare_digest(given.strip().encode("utf-8"), token) and scheme.lower() == "bearer"


def _is_local(header: str | None, name: str) -> bool:
    if header is None:
        # HTTP/1.0: every browser sends the header.
        return True
    match = _HOST.fullmatch(header.strip().lower())
    if match is None:
        return False
    host = match["address"] or match["name"]
    return host in {"localhost", name.lower()} or is_loopback(host)


def _refuse(start: Callable[..., Any], status: str, reason: str, *headers: tuple[str, str]) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{reason}\n".encode()]
