"""`browse --serve`: only who has the token sees the explorer, in a browser; processes end with their server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import websocket
from aiohttp import web

from kafkasniff.browse import serving as module
from kafkasniff.browse.serving import ExplorerServer
from tests.chromium import chromium
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-errors.pcap"
SECONDS = 60.0


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server of a capture whose name a shell would take apart, and its address."""
    folder = folder / 'it\'s "my" $(touch oops); folder'
    folder.mkdir()
    (folder / "-a b.pcap").write_bytes(CAPTURE.read_bytes())
    # Explorers do not import from the folder they are started in.
    (folder / "kafkasniff.py").write_text("raise SystemExit('imported from the current folder')")
    command = [sys.executable, "-P", "-m", "kafkasniff", "browse", "--serve", *arguments, "--", "-a b.pcap"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.kill()
    assert not (folder / "oops").exists()


def answer(address: str) -> http.client.HTTPResponse:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=SECONDS)
    connection.request("GET", parts.path)
    return connection.getresponse()


def page(address: str) -> websocket.WebSocket:
    return websocket.create_connection(f"{address.replace('http:', 'ws:')}ws?width=120&height=30", timeout=SECONDS)


def shown(screen: websocket.WebSocket, wanted: bytes) -> bytes:
    """What a page receives until something is in it."""
    data = b""
    while wanted not in data:
        received = screen.recv()
        assert isinstance(received, bytes), received
        data += received
    return data


def children(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, check=False, text=True)
    return [int(one) for one in found.stdout.split()]


def soon(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.extended
def test_only_with_the_token(tmp_path: Path) -> None:
    with served(tmp_path) as (process, address):
        base, _, token = address.rstrip("/").rpartition("/")
        assert len(token) >= 40
        wrongs = ("/", "/ws", "/static/js/textual.js", "//", f"/{token[:-1]}/", f"/x{token}/", f"/{token.lower()}x/ws")
        for wrong in wrongs:
            assert answer(base + wrong).status == 403
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            page(f"{base}/{token[::-1]}/")
        assert refused.value.status_code == 403
        assert children(process.pid) == []
        found = answer(address)
        assert found.status == 200
        assert b"-a b.pcap" in found.read()
        assert "default-src 'none'" in found.headers["Content-Security-Policy"]
        assert found.headers["Referrer-Policy"] == "no-referrer"
        assert answer(f"{address}static/js/textual.js").status == 200
        # With it, the explorer's screen arrives, and obeys keys.
        screen = page(address)
        shown(screen, b"1/49")
        screen.send(json.dumps(["stdin", "w"]))
        shown(screen, b"writes no files")
        screen.send(json.dumps(["stdin", "y"]))
        assert b"save to a file" not in shown(screen, b"copy to the clipboard")
        [explorer] = children(process.pid)
        screen.close()
        soon(lambda: is_gone(explorer))


@pytest.mark.extended
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_explorers_end_with_the_server(tmp_path: Path, signum: signal.Signals) -> None:
    with served(tmp_path) as (process, address):
        screen = page(address)
        shown(screen, b"1/49")
        [explorer] = children(process.pid)
        process.send_signal(signum)
        code = process.wait(SECONDS)
        assert code == (-signum if signum == signal.SIGKILL else 0)
        soon(lambda: is_gone(explorer))
        assert process.stderr.read().splitlines() == [b"kafkasniff: serving browsers on this machine, Ctrl-C to stop"]


@pytest.mark.extended
@pytest.mark.xdist_group("browser")
def test_in_a_browser(tmp_path: Path) -> None:
    with served(tmp_path) as (process, address), chromium(tmp_path / "profile") as browser:
        browser.get("about:blank")
        browser.get_log("performance")
        browser.get(address)
        has = "return document.body.classList.contains(arguments[0])"
        soon(lambda: browser.execute_script(has, "-first-byte"))
        [explorer] = children(process.pid)
        browser.find_element("css selector", ".xterm-helper-textarea").send_keys("q")
        soon(lambda: browser.execute_script(has, "-closed"))
        soon(lambda: is_gone(explorer))
        messages = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
        asked = {
            one["params"]["requestId"]: one["params"]["request"]["url"]
            for one in messages if one["method"] == "Network.requestWillBeSent"
        }  # fmt: skip
        refused = {
            one["params"]["requestId"] for one in messages
            if one["method"] == "Network.loadingFailed" and one["params"].get("blockedReason") == "csp"
        }  # fmt: skip
        assert address in asked.values()
        for number, url in asked.items():
            # Browsers ask for an icon on their own: at the same server, which refuses it.
            own = (address, address.rsplit("/", 2)[0] + "/favicon.ico", "data:", "blob:")
            assert number in refused or url.startswith(own), url


@pytest.mark.extended
def test_pages_are_bounded(tmp_path: Path) -> None:
    with served(tmp_path) as (process, address):
        screens = [page(address) for _ in range(module.MAX_PAGES)]
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            page(address)
        assert refused.value.status_code == 503
        for screen in screens:
            screen.close()
        soon(lambda: not children(process.pid))
        shown(page(address), b"1/49")


@contextmanager
def serving(said: list[str]) -> Iterator[ExplorerServer]:
    """A server in this process."""
    server = ExplorerServer(["kafkasniff", "browse", "x"], title="x", say=said.append)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(SECONDS)


def exchange(server: ExplorerServer, head: str) -> tuple[int, str]:
    """Status and text of the answer to a request, as it is."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as client:
        client.sendall(head.encode("latin-1") + b"\r\nConnection: close\r\n\r\n")
        answered = http.client.HTTPResponse(client)
        answered.begin()
        return answered.status, answered.read().decode()


def test_malformed_requests_are_refused_in_one_line() -> None:
    said: list[str] = []
    with serving(said) as server:
        path = urlsplit(server.address).path
        for head, status, line in (
            ("GET / HTTP/9.9", 400, "BadStatusLine"),
            ("GET http://[::1 HTTP/1.1\r\nHost: x", 400, "InvalidURLError"),
            (f"GET {path}?\xff HTTP/1.1\r\nHost: x", 400, "InvalidURLError"),
            (f"GET {path} HTTP/1.1\r\nHost: x\r\nX: {'y' * 20_000}", 400, "LineTooLong"),
            ("CONNECT a:1 HTTP/1.1\r\nHost: x", 403, None),
            (f"GET {path}ws HTTP/1.1\r\nHost: x", 400, None),
            (f"GET {path}ws?width=1000000000 HTTP/1.1\r\nHost: x", 400, None),
        ):
            assert exchange(server, head)[0] == status, head
            assert said == ([] if line is None else [f"refused a malformed request ({line})"]), head
            said.clear()


def test_only_its_own_pages_open_the_explorer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser sends the origin of the page that opens a WebSocket; other programs send none."""

    async def opened(*_: object) -> web.Response:
        return web.Response(status=418)

    monkeypatch.setattr(module.Server, "handle_websocket", opened)
    own = "http://127.0.0.1:{port}"
    with serving([]) as server:
        address = f"{server.address.replace('http:', 'ws:')}ws"
        for origin, status in (
            ("http://evil.example", 403),
            ("null", 403),
            (own.format(port=server.port + 1), 403),
            (own.format(port=server.port).replace("http:", "https:"), 403),
            (own.format(port=server.port), 418),
            (None, 418),
        ):
            with pytest.raises(websocket.WebSocketBadStatusException) as answered:
                websocket.create_connection(address, origin=origin, suppress_origin=origin is None, timeout=SECONDS)
            assert answered.value.status_code == status, origin


@pytest.mark.extended
def test_a_malformed_message_ends_its_page(tmp_path: Path) -> None:
    messages = ("{}", '["stdin", 5]', '["resize", {"width": -1, "height": 9}]')
    with served(tmp_path) as (process, address):
        for message in messages:
            screen = page(address)
            screen.send(message)
            while screen.recv():
                """The screen, until the server closes it."""
        soon(lambda: not children(process.pid))
        process.terminate()
        assert process.wait(SECONDS) == 0
        reported = b"kafkasniff: a page sent a malformed message and was closed"
        assert process.stderr.read().splitlines()[1:] == [reported] * len(messages)
