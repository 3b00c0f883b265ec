"""A receiver that redirects: the spans do not arrive, so they must not count as sent."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from kafkasniff.otlp.delivery import Delivery, HttpExporter
from tests.otlp.test_delivery import span


class _Redirecting(BaseHTTPRequestHandler):
    """Answers POST as its server says, and GET, where `requests` would end, with success."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        if self.server.location is not None:  # type: ignore[attr-defined]
            self.send_header("Location", self.server.location)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Redirecting) as found:
        thread = Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("location", ["/elsewhere\x1b[31m", None])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_a_success(server: HTTPServer, status: int, location: str | None) -> None:
    server.status, server.location = status, location  # type: ignore[attr-defined]
    said: list[str] = []
    with Delivery(HttpExporter(f"http://127.0.0.1:{server.server_port}"), said.append) as sender:
        sender.offer(span())
    assert (sender.sent, sender.failed) == (0, 1)
    (line,) = said
    assert f"(HTTP {status})" in line
    assert "redirects to" in line
    assert "\x1b" not in line
