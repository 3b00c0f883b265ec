"""The HTTP server of `--metrics`: answers scrapes of Prometheus, in threads of its own."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.watch.metrics import Metrics

__all__ = ["LOOPBACK", "listening", "parse_address", "serving"]

LOOPBACK: Final = "127.0.0.1"
"""Where it listens unless told: topics, client ids and what they do are not for everybody."""
MAX_SCRAPES: Final = 8
"""Connections that are served at a time; further ones are closed."""
SCRAPE_SECONDS: Final = 10.0
"""How long a client may be silent; as long as Prometheus waits by default."""

_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]*):)?(?P<port>\d{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """`:9308`, `9308`, `10.0.0.5:9308`, `[::1]:9308` as host and port; without a host loopback. Raises UsageError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise UsageError(f"--metrics: {text!r} is no address (:9308, 127.0.0.1:9308, [::1]:9308)")
    return (found["host"] or LOOPBACK).strip("[]"), int(found["port"])


class _Handler(WSGIRequestHandler):
    timeout = SCRAPE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not told: they would get between the lines of the data."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._free = threading.BoundedSemaphore(MAX_SCRAPES)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a name server for this machine's name, as the base class would."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if there is one free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the midst is its own business."""


@contextlib.contextmanager
def listening(address: str) -> Iterator[WSGIServer]:
    """A server that listens within the block; who asks waits until it is served.

    Raises UsageError where the address makes no sense, OutputError where it cannot be listened at.
    """
    host, port = parse_address(address)
    try:
        family, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        server = _Server(family, (str(at[0]), int(at[1])))
    except OSError as error:
        raise OutputError(f"--metrics: cannot listen at {address}: {error.strerror or error}") from error
    try:
        yield server
    finally:
        server.server_close()


@contextlib.contextmanager
def serving(metrics: Metrics, server: WSGIServer) -> Iterator[tuple[str, int]]:
    """Answer scrapes of `/metrics` within the block; gives the host and port that `server` listens at."""
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_name, server.server_port
    finally:
        server.shutdown()
        thread.join()
