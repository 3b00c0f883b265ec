from __future__ import annotations

import csv
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkasniff.cli.commands.live import LOOK_SECONDS
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.cli.running.delays import MAX_SAMPLES, TimedSink
from kafkasniff.engine.inspector import Inspector
from kafkasniff.errors import MissingPartError
from kafkasniff.model import Message
from kafkasniff.tables.exports.live import EVERY_SECONDS
from kafkasniff.tcp.packets import PacketBatch
from tests.cli.console import kafkasniff
from tests.cli.real_live import STAYS, until_it_captures
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.tables.exports.exported import Rows, files, manifest, named_files, rows, tables

PYTHON = [sys.executable, "-m", "kafkasniff"]


class Wire:
    """A live source that yields crafted packets and then waits, as an interface does, until it is stopped."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.stopped = threading.Event()
        self.closed = False
        self.backlog = 0.0
        self.idle_seconds: float | None = None

    def open(
        self,
        interface: str,
        *,
        bpf: str | None = None,
        idle_seconds: float | None = None,
        on_ready: Callable[[], None] | None = None,
        parent: int | None = None,
    ) -> Wire:
        assert parent is None
        self.asked = {"interface": interface, "bpf": bpf}
        self.idle_seconds = idle_seconds
        if on_ready is not None:
            on_ready()
        return self

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[PacketBatch]:
        packets = mixed()
        yield batch(packets[:50])
        yield batch(packets[50:], range(50, len(packets)))
        assert self.stopped.wait(120), "nobody stopped the capture"

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    source = Wire()
    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", source.open)
    return source


def test_duration_ends_it(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.05", "tcp", "port", "9092")
    assert result.code == 0
    assert wire.asked == {"interface": "eth0", "bpf": "tcp port 9092"}
    assert wire.closed
    assert sum(item["type"] in {"request", "response"} for item in result.objects) == 46
    assert result.err.startswith("kafkasniff: listening on eth0")
    assert "46 messages" in result.err


def test_count_ends_it_without_waiting(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "-q", "--format", "json", "-c", 5)
    assert (result.code, len(result.objects), result.err) == (0, 5, "")
    assert wire.closed
    assert not wire.stopped.is_set()


@pytest.mark.parametrize("options", [("--errors",), ("--filter", 'error != "NONE"')])
def test_filters_work_as_in_decode(wire: Wire, options: tuple[str, ...]) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", *options, "--duration", "50ms")
    assert [item["type"] for item in result.objects if item["type"] != "problem"] == ["request", "response"]
    assert "2 shown" in result.err


def test_text_is_the_default(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--duration", "50ms")
    assert "Produce v9" in result.text


def test_bytes_of_messages(wire: Wire) -> None:
    lines = kafkasniff("live", "-i", "eth0", "-x", "--duration", "0.2").lines
    assert any(line.startswith("    0000  ") for line in lines)
    assert any(line.endswith("correlation_id: 1") for line in lines)


def test_a_full_ring_skips_bodies_and_reports_it(wire: Wire) -> None:
    wire.backlog = 0.75
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.05")
    # A single look does not show that the backlog persists.
    assert next(item["kind"] for item in result.objects if item["type"] == "problem") == "live-behind"
    messages = [item for item in result.objects if item["type"] != "problem"]
    without = [item for item in messages if any(one["kind"] == "body-skipped" for one in item["problems"])]
    assert len(messages) == 46
    assert without
    assert {item["body"] is None for item in without} == {True}
    records = sum(any(one["kind"] == "records-skipped" for one in item["problems"]) for item in messages)
    left_out = f"{records} messages without records, {len(without)} messages without body"
    assert records > 0
    assert f"0 bytes lost, 77 bytes skipped, {left_out}, lines " in result.err


class Writes(io.BytesIO):
    """Stdout that records how many lines each write has."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []

    def write(self, data: Any, /) -> int:
        self.lines.append(bytes(data).count(b"\n"))
        return super().write(data)


@pytest.mark.parametrize("options", [(), ("--format", "json"), ("--filter", "size > 0"), ("--count", 40)])
def test_the_lines_of_a_slice_are_written_together(
    options: tuple[object, ...], wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one by one, which costs a system call each, and not together with the next slice, which may be much later.

    With the kernel, the first two slices contain lines that it writes.
    """
    stdout = Writes()
    slices: list[tuple[int, list[int]]] = []

    def watched(feed: Callable[[Inspector, PacketBatch], Iterator[Any]]) -> Any:
        def watch(inspector: Inspector, packets: PacketBatch) -> Iterator[Any]:
            for events in feed(inspector, packets):
                before = len(stdout.lines)
                size = sum(getattr(event, "count", 1) for event in events)
                yield events
                slices.append((size, stdout.lines[before:]))

        return watch

    for name in ("feed_slices", "feed_lines"):
        monkeypatch.setattr(Inspector, name, watched(getattr(Inspector, name)))
    monkeypatch.setattr("kafkasniff.engine.emitting.SLICE", 5)
    result = kafkasniff("live", "-i", "eth0", "-q", "--duration", "50ms", *options, stdout=stdout)
    assert result.code == 0
    written = [(size, lines) for size, lines in slices if lines]
    assert len(written) > 3
    assert sum(size for size, _ in written) >= 40
    for size, lines in written:
        assert len(lines) == 1, f"{size} events were written as {lines} lines"
        # In text, a problem of a message has its own line.
        assert 1 <= lines[0] <= 2 * size
    assert any(lines[0] > 2 for _, lines in written)


def test_csv(wire: Wire) -> None:
    """The same messages as in JSON, each in a row."""
    as_csv = kafkasniff("live", "-i", "eth0", "--duration", "50ms", "--format", "csv")
    wire.stopped.clear()
    as_json = kafkasniff("live", "-i", "eth0", "--duration", "50ms", "--format", "json")
    assert (as_csv.code, as_json.code) == (0, 0)
    found = list(csv.DictReader(io.StringIO(as_csv.out.decode(), newline=""), strict=True))
    names = ("type", "exchange", "connection", "api", "correlation_id", "size")
    wanted = [tuple(str(one.get(name, "")) for name in names) for one in as_json.objects]
    assert [tuple(row[name] for name in names) for row in found] == wanted
    assert len(found) > 40


def test_delays_of_lines(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--duration", "50ms")
    assert re.search(r", lines [\d,.]+ m?s after their packets \(99th percentile [\d,.]+ m?s\)$", result.err.strip())


def test_delays_are_sampled_evenly() -> None:
    class Sink:
        def write(self, event: Any) -> None:
            """Ignore the event."""

        def close(self) -> None:
            """Nothing to close."""

    now = 0
    sink = TimedSink(Sink(), now=lambda: now)
    assert sink.line() == ""
    message = next(one for one in Inspector().feed(batch(mixed())) if isinstance(one, Message))
    message = msgspec.structs.replace(message, time_ns=0)
    count = 5 * MAX_SAMPLES
    for number in range(1, count + 1):
        now = number * 1_000
        sink.write(message)
    assert len(sink._delays) <= MAX_SAMPLES
    # Delays increase by a microsecond with each message: the median is half of the last.
    words = re.fullmatch(r"lines ([\d.]+) ms after their packets \(99th percentile ([\d.]+) ms\)", sink.line())
    assert words is not None
    middle, late = (float(one) for one in words.groups())
    assert middle == pytest.approx(count / 2_000, rel=0.02)
    assert late == pytest.approx(0.99 * count / 1_000, rel=0.02)


def test_missing_privileges_are_code_5(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MissingPartError("capturing needs CAP_NET_RAW")

    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", refuse)
    result = kafkasniff("live", "-i", "eth0")
    assert result.code == Exit.UNAVAILABLE
    assert result.err == "kafkasniff: capturing needs CAP_NET_RAW\n"


def test_a_missing_interface_is_code_3() -> None:
    result = kafkasniff("live", "-i", "nonesuch0")
    assert result.code in {Exit.CAPTURE, Exit.UNAVAILABLE}
    assert result.err.count("\n") == 1


def without_capture(found: dict[str, Rows]) -> dict[str, Rows]:
    strip = ({table: [{**row, "capture": None} for row in some] for table, some in found.items()}).items()
    return {table: sorted(some, key=repr) for table, some in strip}


def test_tables_beside_messages(wire: Wire, capture: Path, tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--export", tmp_path / "live", "--duration", "50ms")
    assert result.code == 0
    assert sum(item["type"] in {"request", "response"} for item in result.objects) == 46
    assert wire.idle_seconds == LOOK_SECONDS
    file = kafkasniff("export", capture, "-o", tmp_path / "file")
    found = tables(tmp_path / "live")
    assert without_capture(found) == without_capture(tables(tmp_path / "file"))
    assert {row["capture"] for row in found["exchanges"]} == {"eth0"}
    # The same sentence about the same rows.
    reported = result.err.splitlines()[-1].replace(str(tmp_path / "live"), str(tmp_path / "file"))
    reported = reported.partition(", lines ")[0]
    assert reported == file.err.splitlines()[-1]


def test_tables_alone(wire: Wire, tmp_path: Path) -> None:
    """Quiet with tables prints no lines, unless an output is given."""
    result = kafkasniff("live", "-i", "eth0", "-q", "--export", tmp_path / "a", "--duration", "50ms")
    assert (result.code, result.out, result.err) == (0, b"", "")
    assert len(rows(tmp_path / "a", "exchanges")) == 24
    wire.stopped.clear()
    command = ["live", "-i", "eth0", "-q", "--format", "json", "--export", tmp_path / "b", "--duration", "50ms"]
    result = kafkasniff(*command, "-o", tmp_path / "lines")
    assert (result.code, result.out, result.err) == (0, b"", "")
    assert len((tmp_path / "lines").read_text().splitlines()) > 46
    assert tables(tmp_path / "b") == tables(tmp_path / "a")


def test_options_of_tables(wire: Wire, capture: Path, tmp_path: Path) -> None:
    some = ["--tables", "exchanges,problems", "--no-json", "--errors", "--records"]
    command = ["live", "-i", "eth0", "-q", "--export", tmp_path / "live", "--export-every", "5m", *some]
    assert kafkasniff(*command, "--duration", "50ms").code == 0
    assert kafkasniff("export", capture, "-q", "-o", tmp_path / "file", *some).code == 0
    live, file = manifest(tmp_path / "live"), manifest(tmp_path / "file")
    assert live["options"] == file["options"]
    assert list(live["tables"]) == ["exchanges", "problems"]
    (row,) = rows(tmp_path / "live", "exchanges")
    assert [{**row, "capture": None}] == [{**one, "capture": None} for one in rows(tmp_path / "file", "exchanges")]
    (reported,) = live["captures"]
    assert (reported["name"], reported["size"]) == ("eth0", None)
    assert datetime.fromisoformat(reported["begun"]).tzinfo == UTC


@pytest.mark.parametrize("option", [["--export-every", "5m"], ["--tables", "records"], ["--no-bodies"], ["--no-json"]])
def test_options_of_tables_without_tables(wire: Wire, option: list[str]) -> None:
    result = kafkasniff("live", "-i", "eth0", *option)
    assert result.code == Exit.USAGE
    assert f"{option[0]} needs --export" in result.err
    assert not wire.asked


@pytest.mark.parametrize("every", ["0", "999ms", "often"])
def test_too_frequent_commits(wire: Wire, every: str, tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path / "out", "--export-every", every)
    assert result.code == Exit.USAGE
    assert not wire.asked
    assert not (tmp_path / "out").exists()


def test_the_default_time_between_commits(capsys: pytest.CaptureFixture[str]) -> None:
    assert kafkasniff("live", "--help").code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Time between commits of the tables [default: {EVERY_SECONDS / 60:g}m]" in text


def test_count_ends_a_silent_export(wire: Wire, tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "eth0", "-q", "-c", 5, "--export", tmp_path / "out")
    assert (result.code, result.out) == (0, b"")
    assert not wire.stopped.is_set()
    assert rows(tmp_path / "out", "exchanges")


def test_a_folder_of_another_kind_is_refused_before_listening(wire: Wire, tmp_path: Path) -> None:
    (tmp_path / "exchanges").mkdir()
    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path)
    assert result.code == Exit.USAGE
    assert not wire.asked


def test_a_missing_interface_leaves_no_folder(tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "nonesuch0", "--export", tmp_path / "out")
    assert result.code in {Exit.CAPTURE, Exit.UNAVAILABLE}
    assert not (tmp_path / "out").exists()


def test_a_reader_that_closes_loses_no_rows(wire: Wire, tmp_path: Path) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object, /) -> int:
            raise BrokenPipeError

    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path / "out", stdout=Closed())
    assert result.code == 0
    assert rows(tmp_path / "out", "exchanges")


def test_a_full_disk(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kafkasniff.tables.exports.staged.StagedFiles.write", full)
    result = kafkasniff("live", "-i", "eth0", "-q", "--export", tmp_path / "out", "--duration", "50ms")
    assert result.code == Exit.UNAVAILABLE
    assert result.err == f"kafkasniff: cannot write {tmp_path / 'out'}: No space left on device\n"
    assert wire.closed


def test_a_second_interrupt_during_a_batch(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("kafkasniff.tables.exports.stager.Stager.take", interrupted)
    monkeypatch.setattr("kafkasniff.tables.exports.staging.TOGETHER_BYTES", 0)
    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path / "out")
    assert result.code == Exit.SIGTERM
    assert "stopped immediately" in result.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert wire.closed


def test_a_second_interrupt_while_files_are_made(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr("kafkasniff.tables.exports.live.finish", interrupted)
    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path / "out", "--duration", "50ms")
    assert result.code == Exit.SIGINT
    assert f"{tmp_path / 'out'} lacks the last rows" in result.err
    assert not (tmp_path / "out" / "manifest.json").exists()


@contextmanager
def conversation() -> Iterator[int]:
    """A broker on loopback that answers requests; yields its port. The client speaks when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
            batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
            client.sendall(kafka.produce_request(5, "orders", batch, version=9))
            broker.recv(4096)
            broker.sendall(kafka.produce_response(5, "orders", 7, version=9))
            client.recv(4096)


@pytest.mark.root
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_real_interface_until_it_is_stopped(signum: int, require_root: Callable[[], None], tmp_path: Path) -> None:
    require_root()
    with conversation() as port:
        process = subprocess.Popen(
            [
                *PYTHON,
                "live",
                *STAYS,
                "-i",
                "lo",
                "--format",
                "json",
                "--host",
                f"127.0.0.1:{port}",
                f"tcp port {port}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until_it_captures(process)
    try:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signum)
        assert process.wait(timeout=120) == 0
        assert process.stderr is not None
        said = process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    assert [(line["type"], line["api"], line["api_version"], line["broker"]) for line in lines] == [
        ("request", "Produce", 9, f"127.0.0.1:{port}"),
        ("response", "Produce", 9, f"127.0.0.1:{port}"),
    ]
    assert "Traceback" not in said


@pytest.mark.root
def test_tables_of_a_real_interface(require_root: Callable[[], None], tmp_path: Path) -> None:
    """The rows match the lines; one commit happens while the interface is idle, one at the end."""
    require_root()
    folder = tmp_path / "out"
    options = ["--format", "json", "--export", str(folder), "--export-every", "1s"]
    with conversation() as port:
        process = subprocess.Popen(
            [*PYTHON, "live", *STAYS, "-i", "lo", *options, "--host", f"127.0.0.1:{port}", f"tcp port {port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until_it_captures(process)
    try:
        assert process.stdout is not None
        request, response = (json.loads(process.stdout.readline()) for _ in range(2))
        deadline = time.monotonic() + 60
        while not (folder / "manifest.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (before,) = rows(folder, "exchanges")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        said = process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    assert "Traceback" not in said
    (row,) = rows(folder, "exchanges")
    assert row == before
    assert manifest(folder)["runs"] in {1, 2}
    assert row["capture"] == "lo"
    assert json.loads(row["request_body"])["topic_data"][0]["name"] == "orders"
    moment = datetime.fromisoformat(f"{request['time'][:26]}Z")
    assert (row["time"], row["time_ns"] % 1000) == (moment, int(request["time"][26:29]))
    assert row["latency_us"] == round(response["latency_ms"] * 1000, 3) // 1
    assert (row["api"], row["api_version"], row["correlation_id"]) == ("Produce", 9, 5)
    assert f"{row['client_ip']}:{row['client_port']}" == request["client"]
    (record,) = rows(folder, "records")
    assert (record["key"], record["value"], record["topic"]) == (b"k", b"v", "orders")
    assert len(rows(folder, "connections")) == 1
    assert files(folder) == named_files(folder)


@pytest.mark.root
def test_a_terminal_that_closes_loses_no_row(require_root: Callable[[], None], tmp_path: Path) -> None:
    """The shell and the kernel each send a SIGHUP; uncommitted rows are still committed."""
    require_root()
    folder = tmp_path / "out"
    with conversation() as port:
        process = subprocess.Popen(
            [
                *PYTHON,
                "live",
                *STAYS,
                "-i",
                "lo",
                "--format",
                "json",
                "-o",
                "-",
                "--export",
                str(folder),
                f"port {port}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until_it_captures(process)
    try:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["type"] for _ in range(2)] == ["request", "response"]
        assert not (folder / "manifest.json").exists()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    assert len(rows(folder, "exchanges")) == 1
