"""An object store that takes its time.

A server on this machine lists many objects and waits before each answer. The objects hold the given contents in turn:
one small capture for all, or a different one for each.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

CAPTURE = Path(__file__).resolve().parent.parent / "captures" / "sarama.pcap"
PAGE = 1000
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
"""Environment of a client; the store accepts any key."""


class Store(ThreadingHTTPServer):
    """Plays the part of S3 that captures are read with: listings, HEAD, and GET of ranges."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, objects: int, delay: float, contents: Sequence[bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.objects, self.delay, self.contents = objects, delay, contents
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    def content(self, number: int) -> bytes:
        """What an object holds."""
        return self.contents[number % len(self.contents)]

    def count(self, kind: str) -> None:
        """Count a request, and wait."""
        with self.lock:
            self.requests[kind] += 1
        time.sleep(self.delay)


class Answers(BaseHTTPRequestHandler):
    """Answers of `Store`."""

    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        """The size of an object; no folder exists."""
        self.server.count("HEAD")
        content = self._content()
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
        self.end_headers()

    def do_GET(self) -> None:
        """A listing, or a range of an object."""
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self.server.count("list")
            self._answer(200, self._listing(query), {"Content-Type": "application/xml"})
            return
        self.server.count("GET")
        content = self._content()
        if content is None:
            self._answer(404, b"", {})
            return
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        total = len(content)
        self._answer(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{total}"})

    def _content(self) -> bytes | None:
        """What the object of this request holds; None: there is none."""
        number = urlsplit(self.path).path.rpartition("/")[2].removesuffix(".pcap")
        return self.server.content(int(number)) if number.isdecimal() and int(number) < self.server.objects else None

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        start = int(query.get("continuation-token", ["0"])[0])
        end = min(start + int(query.get("max-keys", [str(PAGE)])[0]), self.server.objects)
        entries = "".join(
            f"<Contents><Key>day/{number:07}.pcap</Key><Size>{len(self.server.content(number))}</Size>"
            "<ETag>&quot;1&quot;</ETag>"
            "<LastModified>2026-11-21T00:00:00.000Z</LastModified></Contents>"
            for number in range(start, end)
        )
        more = end < self.server.objects
        token = f"<NextContinuationToken>{end}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
            f"<Prefix>day/</Prefix><KeyCount>{end - start}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{entries}{token}</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def address_of(port: int) -> str:
    """The folder of all objects of the store on this port."""
    return f"s3://b/day?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


def _serve(pipe: Connection, objects: int, delay: float, contents: Sequence[bytes]) -> None:
    store = Store(objects, delay, contents)
    thread = threading.Thread(target=store.serve_forever, daemon=True)
    thread.start()
    pipe.send(store.server_port)
    pipe.recv()
    pipe.send(dict(store.requests))


@contextmanager
def delayed_store(objects: int, delay: float, *contents: bytes) -> Iterator[tuple[int, Callable[[], dict[str, int]]]]:
    """A server in a process of its own: its port, and a function that ends it and returns its requests by kind.

    `contents`: of the objects, in turn.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, objects, delay, contents), daemon=True)
    process.start()

    def stopped() -> dict[str, int]:
        here.send(None)
        found: dict[str, int] = here.recv()
        return found

    try:
        yield here.recv(), stopped
    finally:
        process.terminate()
        process.join()
