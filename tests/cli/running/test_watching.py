"""`live --top` and `live --metrics` with crafted packets: the view in a pseudo-terminal, metrics over loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.cli.main import run
from kafkasniff.cli.running.top import MAX_SAID, TopView, keys_of
from kafkasniff.live.findings import BEHIND
from tests.cli.console import Result, kafkasniff
from tests.cli.person import PATIENCE, Person
from tests.cli.real_live import STAYS, exchange
from tests.cli.wire import Wire
from tests.craft import kafka_bytes as kafka
from tests.otlp.receiver import Receiver, attributes, receiving
from tests.tables.exports.exported import rows

PYTHON = [sys.executable, "-m", "kafkasniff"]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The last requests of both connections stay open."""
    source = Wire(left_out=6)
    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", source.open)
    return source


def watched(person: Person, steps: Callable[[], object], *arguments: object) -> Result:
    """Run `kafkasniff live --top …` in the person's terminal through these steps."""
    failed: list[BaseException] = []

    def go() -> None:
        try:
            steps()
        except BaseException as error:
            failed.append(error)

    doing = threading.Thread(target=go)
    with person.world() as world:
        doing.start()
        code = run(["live", "-i", "eth0", "--top", *map(str, arguments)], world)
        doing.join(PATIENCE)
    if failed:
        raise failed[0]
    return Result(int(code), b"", world.stderr.getvalue())


def test_the_view_without_findings(wire: Wire, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.cli.running.watching.find_spec", lambda _name: None)
    result = watched(person, lambda: (person.waits_for("Produce"), person.types("q")))
    assert (result.code, "no findings, which need: pip install 'kafkasniff[tables]'" in result.err) == (0, True)


def test_the_view_and_its_keys(wire: Wire, person: Person) -> None:
    def steps() -> None:
        person.waits_for("kafkasniff live eth0")
        person.waits_for("Produce")
        person.waits_for("dropped 3")
        person.types("2")
        person.waits_for("NOT_LEADER_OR_FOLLOWER")
        person.types("5")
        person.waits_for("10.0.0.5:51334")
        person.types("\x1b[B\r")
        person.waits_for("latest exchanges")
        person.waits_for("software craft 1.0")
        person.types("\x1b")
        person.waits_for("5 conns")
        person.types("p")
        person.waits_for("PAUSED")
        person.types("h")
        person.waits_for("choose a table")
        person.types("q")

    result = watched(person, steps)
    assert result.code == 0
    assert result.err.startswith("kafkasniff: ")
    assert "2 connections" in result.err or "3 connections" in result.err
    assert termios.tcgetattr(person.program) == person.before
    # The alternate screen (ECMA-48 private mode 1049) was entered and left, and the cursor is visible again.
    person.waits_for_bytes(b"\x1b[?1049l")
    assert person.seen.rindex(b"\x1b[?1049l") > person.seen.rfind(b"\x1b[?1049h")
    person.waits_for_bytes(b"\x1b[?25h")
    assert person.seen.rindex(b"\x1b[?25h") > person.seen.rfind(b"\x1b[?25l")


@pytest.mark.extended
def test_the_view_shows_findings(wire: Wire, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.live.findings.FINDINGS_SECONDS", 0.1)
    monkeypatch.setattr("kafkasniff.live.findings.FINDINGS_REST", 1)

    def steps() -> None:
        person.waits_for("findings none")
        person.waits_for("2 notes")
        person.types("9")
        person.waits_for("A leader has moved")
        person.waits_for("not-leader, 1×")
        person.types("\r")
        person.waits_for("its connection")
        person.types("\r")
        person.waits_for("latest exchanges")
        wire.backlog = 0.6
        person.types("\x1b")
        person.waits_for("its connection")
        person.types("\x1b")
        person.waits_for(f"findings paused: {BEHIND}, before that 2 notes")
        person.types("q")

    assert watched(person, steps).code == 0


def test_nothing_else_is_printed_over_the_view(wire: Wire, person: Person, tmp_path: Path) -> None:
    """Tables and a file of messages may be requested; messages on the screen would break the view."""

    def steps() -> None:
        person.waits_for("Produce")
        person.types("q")

    options = ["--export", tmp_path / "out", "-o", tmp_path / "lines", "--format", "json"]
    result = watched(person, steps, *options)
    assert result.code == 0
    exchanges = rows(tmp_path / "out", "exchanges")
    assert len(exchanges) == 23
    answered = sum(row["response_size"] is not None for row in exchanges)
    assert (tmp_path / "lines").read_text().count('"type":"response"') == answered
    assert b'"type"' not in person.seen
    assert result.err.count("\n") == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def scraped(port: int, *wanted: str) -> str:
    """The metrics, as soon as they contain these lines."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
                text: str = answer.read().decode()
        except OSError:
            text = ""
        if text and all(f"{line}\n" in text for line in wanted):
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def measured(wire: Wire, *arguments: object, wanted: tuple[str, ...] = ()) -> tuple[Result, str]:
    """Run `kafkasniff live --metrics` until a scrape contains these lines."""
    port, found = free_port(), []

    def ask() -> None:
        try:
            found.append(scraped(port, *wanted))
        finally:
            wire.stop()

    asking = threading.Thread(target=ask)
    asking.start()
    result = kafkasniff("live", "-i", "eth0", "--metrics", f":{port}", *arguments)
    asking.join(PATIENCE)
    assert found, result.err
    return result, found[0]


def test_metrics_beside_messages(wire: Wire) -> None:
    wanted = (
        'kafkasniff_requests_total{api="Produce"} 12.0',
        'kafkasniff_errors_total{api="Produce",code="6",error="NOT_LEADER_OR_FOLLOWER"} 1.0',
        'kafkasniff_dropped_packets_total{interface="eth0"} 3.0',
        'kafkasniff_packets_total{interface="eth0"} 1234.0',
        "kafkasniff_connections_total 2.0",
        "kafkasniff_connections_open 1.0",  # the consumer has closed
    )
    result, _ = measured(wire, "--format", "json", wanted=wanted)
    assert result.code == 0
    assert sum(item["type"] in {"request", "response"} for item in result.objects) >= 44
    assert re.search(r"^kafkasniff: metrics at http://127\.0\.0\.1:\d+/metrics$", result.err, re.M)


@pytest.mark.extended
def test_addresses_reachable_by_others_cause_a_warning(wire: Wire, tmp_path: Path) -> None:
    def said(*arguments: str) -> list[str]:
        wire.stopped.clear()
        result = kafkasniff("live", "-q", "-i", "eth0", "--duration", "50ms", "--metrics", *arguments)
        assert result.code == 0
        return [line for line in result.err.splitlines() if "warning" in line]

    (tmp_path / "token").write_text("secret-word")
    assert said("127.0.0.1:0") == []
    (line,) = said("0.0.0.0:0")
    assert re.search(r"warning: anyone who can reach 0\.0\.0\.0:\d+ can read .* --metrics-token-file FILE", line)
    (line,) = said("0.0.0.0:0", "--metrics-token-file", str(tmp_path / "token"))
    assert "in clear text; --metrics-cert and --metrics-key" in line
    assert "secret-word" not in line


def until_spans(receiver: Receiver) -> None:
    deadline = time.monotonic() + PATIENCE
    while not receiver.spans:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.extended
@pytest.mark.root
@pytest.mark.parametrize("signum", [None, signal.SIGHUP])
def test_a_real_interface(signum: int | None, require_root: Callable[[], None], person: Person) -> None:
    """All at once, ended by a key or a signal; the terminal is restored, and spans leave a confined process."""
    require_root()
    with socket.create_server(("127.0.0.1", 0)) as server, receiving() as receiver:
        port, metrics = server.getsockname()[1], free_port()
        options = ["--top", "--metrics", f":{metrics}", "--otlp", receiver.url, "--port", str(port), f"tcp port {port}"]
        process = subprocess.Popen(
            [*PYTHON, "live", *STAYS, "-i", "lo", *options],
            stdin=person.program,
            stdout=person.program,
            stderr=person.program,
            env={**os.environ, "TERM": "xterm"},
        )
        try:
            person.waits_for("kafkasniff live lo")
            with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
                exchange(client, broker, 5, error=6)
                client.sendall(kafka.metadata_request(6, ["orders"]))
                scraped(
                    metrics,
                    'kafkasniff_requests_total{api="Produce"} 1.0',
                    "kafkasniff_connections_open 1.0",
                    "kafkasniff_outstanding_requests 1.0",
                )
                person.types("6")
                person.waits_for("Metadata v1")
            scraped(metrics, "kafkasniff_connections_open 0.0")
            until_spans(receiver)
            if signum is None:
                person.types("q")
            else:
                process.send_signal(signum)
            assert process.wait(timeout=PATIENCE) == 0
            person.waits_for("1 connection (1 Kafka)")
        finally:
            process.kill()
            process.wait()
        spans = {span.name: attributes(span).get("error.type") for span in receiver.spans}
    assert spans["Produce orders"] == "NOT_LEADER_OR_FOLLOWER"
    assert termios.tcgetattr(person.program) == person.before
    assert b"Traceback" not in person.seen


def test_the_terminal_hangs_up(person: Person) -> None:
    stopped = threading.Event()
    with person.world() as world, TopView(world, stopped.set) as top:
        top._keyboard.gone = True
        os.write(person.end, b"x")
        assert stopped.wait(PATIENCE)


def test_messages_wait_until_the_terminal_is_restored(person: Person) -> None:
    with person.world() as world:
        err = world.stderr
        with TopView(world, lambda: None):
            for number in range(MAX_SAID + 5):
                world.say(f"notice {number}")
            assert err.getvalue() == ""
        lines = err.getvalue().splitlines()
        assert len(lines) == MAX_SAID
        assert lines[-1].endswith(f"notice {MAX_SAID + 4}")
        assert world.stderr is err


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"12+ ", ["1", "2", "+", " "]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[C\x1b[D\x1b[Z\t", ["right", "left", "backtab", "tab"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pageup", "pagedown", "home", "end"]),
        (b"\r\n", ["enter", "enter"]),
        (b"\x1b", ["escape"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        (b"\x1b[1;5Aq", ["q"]),  # Ctrl-Up is not bound, and its last byte is not a key
        (b"\x1b[", []),
        (b"\xc3\xa9\x00\x01", []),
        (b"", []),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


@given(st.binary(max_size=40))
def test_any_bytes_are_read_as_keys(data: bytes) -> None:
    assert all(key and key.isprintable() for key in keys_of(data))
    assert len(keys_of(data)) <= len(data)
