"""`kafkasniff live`: how it ends, its tables, and its files, which decode to what was printed."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture.live.interface_socket import list_interfaces
from kafkasniff.cli.commands.live import LOOK_SECONDS
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.engine.inspector import Inspector
from kafkasniff.errors import MissingPartError
from tests.capture.fake_interface import Captured, FakeInterface, captured
from tests.cli.console import kafkasniff
from tests.cli.real_live import conversation, running
from tests.cli.wire import Wire
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes
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
def test_in_this_process(require_root: Callable[[], None]) -> None:
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


class Interfaces:
    """Stands in for the machine's interfaces: all play the same packets, or each its own."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.packets: dict[str, list[Captured]] = {}
        self.lost = 0
        self.blocks = 11

    def open(self, name: str, capture: int, **options: Any) -> FakeInterface:
        self.asked.append({"name": name, **options})
        return FakeInterface(name, capture, self.packets.get(name, crafted()), (self.blocks,), self.lost)


def crafted() -> list[Captured]:
    return [(*link_bytes(packet, LINKS["ethernet"]), packet.time_ns) for packet in mixed()]


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> Interfaces:
    there = Interfaces()
    monkeypatch.setattr("kafkasniff.capture.live.live.InterfaceSocket", there.open)
    monkeypatch.setattr("kafkasniff.capture.live.live.JOIN_BYTES", 0)
    return there


def live(*options: object) -> Any:
    return kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.1", *options)


def without_numbers(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A file without the strangers has other numbers of connections and packets."""
    counted = {"connection", "exchange", "first_packet", "last_packet", "packet", "capture"}
    return [{name: value for name, value in one.items() if name not in counted} for one in objects]


def test_the_file_decodes_to_what_was_printed(interfaces: Interfaces, tmp_path: Path) -> None:
    path = tmp_path / "kept.pcapng"
    result = live("--write", path)
    assert result.code == 0
    again = kafkasniff("decode", "--format", "json", path)
    assert len(result.objects) > 40
    assert without_numbers(again.objects) == without_numbers(result.objects)
    kept = len(captured(path))
    assert 0 < kept < len(mixed())
    assert f"kafkasniff: {kept} packets in {path}: " in result.err
    assert "not Kafka" not in again.err
    assert path.stat().st_mode & 0o777 == 0o600


def test_missing_packets_are_reported(interfaces: Interfaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.live.packet_filter.MAX_WAITING_BYTES", 100)
    interfaces.blocks = 1
    result = live("-w", tmp_path / "kept")
    assert "packets of Kafka connections are not in" in result.err
    assert "--write-all" in result.err


def test_capture_options(interfaces: Interfaces) -> None:
    result = kafkasniff(
        *("live", "-q", "-i", "eth0", "-i", "eth1", "--duration", "0.1"),
        *("-s", 96, "--buffer-size", 8, "--promiscuous", "tcp", "port", 9092),
    )
    assert result.code == 0
    wanted = {"bpf": "tcp port 9092", "snaplen": 96, "buffer": 8, "promiscuous": True}
    assert interfaces.asked == [{"name": "eth0", **wanted}, {"name": "eth1", **wanted}]


def test_several_interfaces(interfaces: Interfaces, tmp_path: Path) -> None:
    """Packets alternate between two interfaces: the output is as from one."""
    packets = crafted()
    single = live("-w", tmp_path / "single")
    interfaces.packets = {"eth1": packets[::2], "eth2": packets[1::2]}
    result = kafkasniff(
        *("live", "-i", "eth1", "-i", "eth2", "--format", "json", "--duration", "0.3", "-w", tmp_path / "kept")
    )
    assert "listening on eth1, eth2" in result.err
    assert without_numbers(result.objects) == without_numbers(single.objects)
    assert {one["capture"] for one in result.objects if "capture" in one} == {"eth1", "eth2"}
    assert captured(tmp_path / "kept") == captured(tmp_path / "single")
    assert without_numbers(kafkasniff("decode", "--format", "json", tmp_path / "kept").objects) == without_numbers(
        single.objects
    )


def test_the_list_of_interfaces() -> None:
    result = kafkasniff("live", "-D")
    assert (result.code, result.err) == (0, "")
    there = list_interfaces()
    assert [line.split()[:2] for line in result.lines] == [[str(at), one.name] for at, one in enumerate(there, 1)]
    (loopback,) = [line for line in result.lines if line.split()[1] == "lo"]
    assert "loopback" in loopback


def test_an_interface_by_its_number(interfaces: Interfaces) -> None:
    names = [one.name for one in list_interfaces()]
    place = names.index("lo") + 1
    result = kafkasniff("live", "-i", place, "--duration", "0.1")
    assert "listening on lo" in result.err
    assert interfaces.asked[0]["name"] == "lo"
    result = kafkasniff("live", "-i", len(names) + 1)
    assert result.code == Exit.CAPTURE
    assert "live -D" in result.err


def run_live(options: list[str], signum: int, **limits: Any) -> tuple[int, str, list[dict[str, Any]]]:
    """Run `live` during a conversation and stop it by a signal: exit code, stderr, lines."""
    with running(options, *range(20), **limits) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(40)]
        time.sleep(0.3)
        process.send_signal(signum)
        out, said = process.communicate(timeout=60)
    assert "Traceback" not in said.decode()
    return process.returncode, said.decode(), lines + [json.loads(line) for line in out.splitlines()]


OPTIONS = ("-i lo", "-i any", "-i lo --buffer-size 8 --write-all --promiscuous -s 2000")


@pytest.mark.extended
@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "signum"), zip(OPTIONS, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), strict=True)
)
def test_a_real_interface(
    options: str, signum: int, require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    require_root()
    path = tmp_path / "kept.pcapng"
    code, said, lines = run_live([*options.split(), "-w", str(path)], signum)
    assert code == 0
    assert f"packets in {path}" in said
    again = kafkasniff("decode", "--format", "json", path)
    assert without_numbers(again.objects) == without_numbers(lines)
    assert len(lines) == 40
    info = subprocess.run([require_tool("capinfos"), "-M", path], capture_output=True, text=True, check=True).stdout
    link = "Linux cooked-mode capture v2" if "any" in options else "Ethernet"
    assert link in info
    assert f"Name = {options.split()[1]}" in info


@pytest.mark.root
def test_not_all_interfaces_can_be_promiscuous(require_root: Callable[[], None]) -> None:
    require_root()
    result = kafkasniff("live", "-i", "any", "--promiscuous")
    assert (result.code, "promiscuous" in result.err) == (Exit.USAGE, True)


def test_lines_and_tables_share_the_memory(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    limit = Inspector.limit_memory

    def noted(inspector: Inspector, size: int) -> None:
        limits.append(size)
        limit(inspector, size)

    monkeypatch.setattr(Inspector, "limit_memory", noted)
    options = ("--memory", "256M", "--export", tmp_path / "out", "--duration", "50ms")
    assert kafkasniff("live", "-i", "eth0", "-q", *options).code == 0
    assert limits == [128 << 20] * 2
