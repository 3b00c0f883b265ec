"""A folder with the schemas of `captures/librdkafka-schemas`, and a web server that serves such a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kafkasniff.values.registries import FolderRegistry

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "captures" / "librdkafka-schemas.pcap"


def journal() -> list[dict[str, Any]]:
    """What the recorded program reported."""
    lines = CAPTURE.with_suffix(".log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def put(folder: Path, path: str, answer: object) -> None:
    """Write the answer for a path of the API."""
    file = folder / f"{path}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(answer), encoding="utf-8")


def write_folder(folder: Path) -> Path:
    """The schemas of the capture."""
    for one in journal():
        if one["kind"] == "registered":
            answer = {"schema": one["schema"], "schemaType": one["schema_type"], "guid": one["guid"]}
            put(folder, f"schemas/ids/{one['schema_id']}", answer)
            put(folder, f"schemas/guids/{one['guid']}", answer)
    return folder


class Served:
    """A registry of the answers in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = FolderRegistry(folder)
        self.url = url
        self.asked: list[str] = []
        """Paths, in order."""
        self.credentials: set[str | None] = set()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.lists: dict[str, bytes] = {}
        """Answers for paths that no file has."""
        self.missing = b'{"error_code": 40403, "message": "Schema not found"}'


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """The folder as a web server on loopback, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.credentials.add(self.headers["Authorization"])
            answer = registry.lists.get(self.path) or registry.folder.get(self.path.removeprefix("/"))
            status = registry.status
            if status == 200 and answer is None:
                status, answer = 404, registry.missing
            self.send_response(status)
            for name, value in registry.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Served(folder, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
