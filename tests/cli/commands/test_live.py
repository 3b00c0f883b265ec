from __future__ import annotations

import contextlib
import io
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from kafkasniff.cli.commands.live import LOOK_SECONDS
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.errors import MissingPartError
from tests.cli.console import kafkasniff
from tests.cli.real_live import conversation, running
from tests.cli.wire import Wire
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.tables.exports.exported import Rows, files, named_files, rows, tables


def test_duration_ends_it(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.05", "tcp", "port", "9092")
    assert result.code == 0
    assert wire.asked == {"interface": "eth0", "bpf": "tcp port 9092"}
    assert wire.closed
    assert sum(item["type"] in {"request", "response"} for item in result.objects) == 46
    assert result.err.startswith("kafkasniff: listening on eth0")
    assert "46 messages" in result.err


def test_an_interface_that_does_not_come_back_is_code_4(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "__iter__", lambda source: source.say("eth0 is down") or iter([batch(mixed())]))
    wire.broken = True
    result = kafkasniff("live", "-i", "eth0", "-q", "--format", "json", "--reopen", "1m")
    assert (result.code, result.err) == (Exit.BROKEN, "kafkasniff: eth0 is down\n")
    assert sum(item["type"] in {"request", "response"} for item in result.objects) == 46
    assert wire.asked == {"interface": "eth0", "bpf": None, "reopen": 60.0}
    wire.broken = False
    assert kafkasniff("live", "-i", "eth0", "-q", "--reopen", "0").code == Exit.OK
    assert wire.asked["reopen"] == 0.0


def test_count_ends_it_without_waiting(wire: Wire) -> None:
    result = kafkasniff("live", "-i", "eth0", "-q", "--format", "json", "-c", 5)
    assert (result.code, len(result.objects), result.err) == (0, 5, "")
    assert wire.closed
    assert not wire.stopped.is_set()


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
    assert f"0 bytes lost, 77 bytes skipped, {len(without)} messages without body, lines " in result.err


def test_missing_privileges_are_code_5(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MissingPartError("capturing needs CAP_NET_RAW")

    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", refuse)
    result = kafkasniff("live", "-i", "eth0")
    assert result.code == Exit.UNAVAILABLE
    assert result.err == "kafkasniff: capturing needs CAP_NET_RAW\n"


def without_capture(found: dict[str, Rows]) -> dict[str, Rows]:
    strip = ({table: [{**row, "capture": None} for row in some] for table, some in found.items()}).items()
    return {table: sorted(some, key=repr) for table, some in strip}


def test_tables_beside_messages(wire: Wire, capture: Path, tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "--export", tmp_path / "live", "--export-every", "5m",
                        "--duration", "50ms")  # fmt: skip
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


def test_a_second_interrupt_while_files_are_made(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr("kafkasniff.tables.exports.live.finish", interrupted)
    result = kafkasniff("live", "-i", "eth0", "--export", tmp_path / "out", "--duration", "50ms")
    assert result.code == Exit.SIGINT
    assert f"{tmp_path / 'out'} lacks the last rows" in result.err
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.root
def test_a_real_interface(require_root: Callable[[], None]) -> None:
    """In this process, which keeps its rights; the client speaks as soon as packets are captured."""
    require_root()
    said = Said()
    with ThreadPoolExecutor(1) as threads, contextlib.ExitStack() as talk:
        port = talk.enter_context(conversation(5))
        speaks = threads.submit(lambda: (said.listening.wait(60), talk.close()))
        options = ("--format", "json", "-c", 2, "--duration", "60", "--port", port)
        result = kafkasniff("live", "-i", "lo", *options, stderr=said)
        speaks.result(60)
    assert result.code == 0, said.getvalue()
    found = [(line["type"], line["api"], line["correlation_id"], line["broker"]) for line in result.objects]
    assert found == [(kind, "Produce", 5, f"127.0.0.1:{port}") for kind in ("request", "response")]


class Said(io.StringIO):
    """Stderr that notes when the capture has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = threading.Event()

    def write(self, text: str, /) -> int:
        if "listening on" in text:
            self.listening.set()
        return super().write(text)


@pytest.mark.extended
@pytest.mark.root
def test_a_terminal_that_closes_loses_no_row(require_root: Callable[[], None], tmp_path: Path) -> None:
    """The shell and the kernel each send a SIGHUP; uncommitted rows are still committed, and match the lines."""
    require_root()
    folder = tmp_path / "out"
    with running(["-o", "-", "--export", str(folder)], 5) as process:
        assert process.stdout is not None
        request, response = (json.loads(process.stdout.readline()) for _ in range(2))
        assert not (folder / "manifest.json").exists()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    (row,), (record,) = rows(folder, "exchanges"), rows(folder, "records")
    assert (row["capture"], row["api"], row["api_version"], row["correlation_id"]) == ("lo", "Produce", 9, 5)
    assert row["time"] == datetime.fromisoformat(f"{request['time'][:26]}Z")
    assert row["latency_us"] == round(response["latency_ms"] * 1000, 3) // 1
    assert f"{row['client_ip']}:{row['client_port']}" == request["client"]
    assert (record["key"], record["value"], record["topic"]) == (b"k", b"v", "orders")
    assert len(rows(folder, "connections")) == 1
    assert files(folder) == named_files(folder)
