"""The HTTP server of `--metrics`: answers Prometheus scrapes in its own threads, for those who may read them.

Access control: a token in a file, TLS, and no access for browser pages by DNS rebinding. The conventions are
Prometheus's: a token as `Authorization: Bearer`, certificate and key as PEM files, at least TLS 1.2 (as in
exporter-toolkit, which node_exporter uses).
"""

from __future__ import annotations

import contextlib
import hmac
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.live.metrics import Metrics

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


LOOPBACK: Final = "127.0.0.1"
"""Default host: topics, client ids and their traffic are not public."""
MAX_SCRAPES: Final = 16
"""Concurrent connections; beyond that the oldest is closed."""
REQUEST_SECONDS: Final = 10.0
"""Time limit for receiving a request and sending its response; Prometheus's default scrape timeout."""
MAX_REQUEST: Final = 64 << 10
"""Maximum size of a request in bytes; those of Prometheus have some hundreds."""
ROOM_SECONDS: Final = 1.0
"""How long to wait for the oldest connection to end."""

_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]*):)?(?P<port>\d{1,5})")


def parse_address(text: str, option: str = "--metrics") -> tuple[str, int]:
    """`:9308`, `9308`, `10.0.0.5:9308`, `[::1]:9308` as host and port; without a host loopback. Raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"{option}: {text!r} is not an address (:9308, 127.0.0.1:9308, [::1]:9308)")
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])


class _ScrapeRequest(io.RawIOBase):
    """A request as it arrives: at most MAX_REQUEST bytes, complete by its deadline, however slowly they trickle in."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + REQUEST_SECONDS
        self._room = MAX_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(memoryview(buffer)[: self._room])
        self._room -= count
        return count


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        """Perform the TLS handshake, if any, in the connection's thread, so that it blocks nobody else."""
        context = self.server.tls if isinstance(self.server, MetricsServer) else None
        self.request.settimeout(REQUEST_SECONDS)
        if context is not None:
            self.request = context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_ScrapeRequest(self.request))

    def finish(self) -> None:
        """Close TLS's socket: the server only closes the one it accepted."""
        super().finish()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.close()

    def get_environ(self) -> Any:
        """The WSGI environment of a request."""
        return super().get_environ() | {LOCAL_ADDRESS: str(self.request.getsockname()[0])}

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged: the lines would mix with the data."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves connections in a limited number of threads."""

    daemon_threads = True
    request_queue_size = 2 * MAX_SCRAPES

    def __init__(
        self, family: socket.AddressFamily, address: tuple[str, int], name: str, tls: ssl.SSLContext | None
    ) -> None:
        self.address_family = family
        self.name = name
        """The host as given."""
        self.tls = tls
        self._free = threading.BoundedSemaphore(MAX_SCRAPES)
        self._lock = threading.Lock()
        self._served: dict[int, socket.socket] = {}
        """Connections, oldest first."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without a DNS lookup of this machine's name, unlike the base class."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; if all are busy, the oldest connection is closed.

        A scrape takes milliseconds, so the oldest is the slowest: idle connections cannot keep others out.
        """
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            if not self._free.acquire(timeout=ROOM_SECONDS):
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def _end_oldest(self) -> None:
        with self._lock:
            for connection in self._served.values():
                # This wakes its thread, which closes it. It may have ended meanwhile.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                return

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Runs in the connection's thread."""
        try:
            # A duplicated descriptor: TLS detaches that of `request`.
            with request.dup() as connection:
                with self._lock:
                    self._served[id(connection)] = connection
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    with self._lock:
                        del self._served[id(connection)]
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early."""


@contextlib.contextmanager
def listening(address: str, tls: ssl.SSLContext | None = None) -> Iterator[MetricsServer]:
    """A server that listens within the block; connections wait until it serves. `tls`: its TLS context, if any.

    Raises UsageError if the address is invalid, OutputError if the server cannot listen on it.
    """
    host, port = parse_address(address)
    try:
        family, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        server = MetricsServer(family, (str(at[0]), int(at[1])), host, tls)
    except OSError as error:
        raise OutputError(f"--metrics: cannot listen on {address}: {error.strerror or error}") from error
    try:
        yield server
    finally:
        server.server_close()


@contextlib.contextmanager
def serving(metrics: Metrics, server: MetricsServer, token: bytes | None = None) -> Iterator[tuple[str, int]]:
    """Answer scrapes of `/metrics` within the block; yields the host and port that `server` listens on.

    `token`: requests without it are rejected.
    """
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    server.set_app(guarded(make_wsgi_app(registry), token=token, name=server.name))
    # By default, the end waits for half a second.
    serve = partial(server.serve_forever, poll_interval=0.05)
    thread = threading.Thread(target=serve, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_name, server.server_port
    finally:
        server.shutdown()
        thread.join()
