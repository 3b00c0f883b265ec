"""`live --exec` and `--webhook`: each finding once, and failures that are only lines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.running import notifying
from kafkasniff.cli.running.notifying import MAX_NOTICES, Notifier, take_notifier
from kafkasniff.live.snapshot import FindingRow, Findings


class Found:
    """Findings of a run, which may become more."""

    def __init__(self, *rows: FindingRow) -> None:
        self.rows = rows

    def shown(self) -> Findings:
        return Findings(rows=self.rows)


def row(about: str, severity: str = "error") -> FindingRow:
    return FindingRow(severity, f"title {about}", "meaning", "advice", "denied", about, 3, (1, 2))


def printed(notifier: Notifier, found: Found, batches: int = 3) -> list[str]:
    """What it prints while it looks at the findings this often."""
    lines: list[str] = []
    steps = notifier.batches(iter([None] * batches), found, ["eth0"], lines.append)  # type: ignore[arg-type]
    assert list(steps) == [None] * batches
    return lines


def made(environ: dict[str, str] | None = None, **options: Any) -> Notifier:
    notifier = take_notifier({"execute": None, "webhook": None, "on": None, **options}, environ or {})
    assert notifier is not None
    return notifier


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[Any, dict[str, Any]]]]]:
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.headers["authorization"], json.loads(body)))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{served.server_port}/secret", got
        finally:
            served.shutdown()


def test_each_finding_is_passed_once_and_notes_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "LOOK_SECONDS", 0.0)
    out = tmp_path / "out"
    with server(204) as (url, got):
        notifier = made({"KAFKASNIFF_WEBHOOK_TOKEN": "t"}, execute=f"cat >> {out}; echo >> {out}", webhook=url)
        assert notifier.ports == [int(url.split(":")[2].split("/")[0])]
        assert printed(notifier, Found(row("a"), row("b"), row("c", "warning"))) == []
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["title"] for one in lines] == ["title a", "title b"]
    assert got == [("Bearer t", one) for one in lines]
    assert {name: lines[0][name] for name in ("captures", "severity", "count", "connections")} == {
        "captures": ["eth0"],
        "severity": "error",
        "count": 3,
        "connections": [1, 2],
    }


def test_failures_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "SECONDS", 0.3)
    assert printed(made(execute="exit 3"), Found(row("a"))) == ["--exec: the command ended with exit code 3"]
    for status in (302, 500):
        with server(status) as (url, got):
            assert printed(made(webhook=url), Found(row("a"))) == [f"--webhook 127.0.0.1: HTTP {status}"]
            assert len(got) == 1
    assert printed(made(webhook="http://127.0.0.1:1/x"), Found(row("a")))[0].startswith("--webhook 127.0.0.1: ")


def test_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "SECONDS", 0.3)
    assert notifying._execute("sleep 60 & wait", b"") == "the command took longer than 0.3 s and was ended"


def test_the_number_is_bounded() -> None:
    lines = printed(made(execute="true", on="note"), Found(*(row(str(number), "note") for number in range(300))))
    assert lines == [f"more than {MAX_NOTICES} findings: --exec and --webhook do not get later ones"]
