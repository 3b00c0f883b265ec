from __future__ import annotations

import contextlib
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkasniff.cli import scrapes
from kafkasniff.cli.scrapes import listening, parse_address
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.watch.metrics import Metrics
from tests.conftest import missing
from tests.watch.scenes import Scene, Talk


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9308", "127.0.0.1", 9308),
        ("9308", "127.0.0.1", 9308),
        ("127.0.0.1:9308", "127.0.0.1", 9308),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("[::1]:9308", "::1", 9308),
        ("localhost:0", "localhost", 0),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", ":65536", ":-1", "::1:9308", "[::1]", "a b:1", "http://a:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        parse_address(text)


@contextlib.contextmanager
def serving(metrics: Metrics, address: str) -> Iterator[tuple[str, int]]:
    with listening(address) as server, scrapes.serving(metrics, server) as place:
        yield place


def scrape(host: str, port: int, **headers: str) -> tuple[str, str]:
    request = urllib.request.Request(f"http://{host}:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.parametrize("address", [":0", "[::1]:0"])
def test_a_scrape(address: str) -> None:
    if "::1" in address:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            missing("this machine has no IPv6 loopback")
    scene, metrics = Scene(), Metrics()
    with serving(metrics, address) as (host, port):
        shown = f"[{host}]" if ":" in host else host
        assert host in {"127.0.0.1", "::1"}
        for event in scene.whole(Talk(scene, 1, "c", "10.0.0.1", ""), 0, 5, "Metadata"):
            metrics.take(event)
        kind, text = scrape(shown, port)
        assert kind.startswith("text/plain")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        (sample,) = families["kafkasniff_requests"].samples
        assert (sample.labels, sample.value) == ({"api": "Metadata"}, 1)
        kind, text = scrape(shown, port, Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=30)


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f":{other.getsockname()[1]}"
        with pytest.raises(OutputError, match="cannot listen at"), serving(Metrics(), address):
            pytest.fail("listens twice")


def test_silent_and_rude_clients_keep_nobody_out(capfd: pytest.CaptureFixture[str]) -> None:
    """More connections than are served at a time are closed; when one is over the next is served."""
    with serving(Metrics(), ":0") as (host, port):
        silent = [socket.create_connection((host, port), timeout=30) for _ in range(scrapes.MAX_SCRAPES)]
        with socket.create_connection((host, port), timeout=30) as further:
            assert further.recv(1) == b""
        silent[0].sendall(b"\x16\x03\x01 garbage\r\n\r\n")
        silent[0].recv(4096)
        for one in silent:
            one.close()
        for _ in range(200):
            try:
                assert "kafkasniff_build_info" in scrape(host, port)[1]
                break
            except OSError:
                continue
        else:
            pytest.fail("nobody is served any more")
    assert capfd.readouterr() == ("", "")


def test_clients_that_say_nothing_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes._Handler, "timeout", 0.05)
    with serving(Metrics(), ":0") as address, socket.create_connection(address, timeout=30) as silent:
        assert silent.recv(1) == b""
