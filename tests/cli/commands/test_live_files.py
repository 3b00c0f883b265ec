"""`kafkasniff live --write` and how it captures: the files decode to what was printed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture.live.interfaces import list_interfaces
from kafkasniff.capture.live.ring import BLOCK_COUNT, BLOCK_SIZES, blocks_of
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.options.capture_options import _size
from kafkasniff.errors import UsageError
from kafkasniff.live.packet_filter import Keeper
from tests.capture.fake_interface import Captured, FakeInterface, captured
from tests.cli.console import kafkasniff
from tests.cli.real_live import STAYS, until_it_captures
from tests.craft import kafka_bytes as kafka
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes

PYTHON = [sys.executable, "-m", "kafkasniff"]


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
    return kafkasniff("live", "-i", "eth0", "--format", "json", "--duration", "0.2", *options)


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


def test_waiting_blocks_are_taken_together(
    interfaces: Interfaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = live("-w", tmp_path / "one-by-one")
    sizes: list[int] = []
    for size in (1_000, 1 << 20):
        monkeypatch.setattr("kafkasniff.capture.live.live.JOIN_BYTES", size)
        batches: list[int] = []
        monkeypatch.setattr(Keeper, "take", _noting(Keeper.take, batches))
        together = live("-w", tmp_path / "together")
        sizes.append(len(batches))
        assert together.objects == one_by_one.objects
        kept = [captured(tmp_path / name) for name in ("one-by-one", "together")]
        assert sorted(kept[0]) == sorted(kept[1])
    assert sizes[0] > sizes[1]


def _noting(take: Callable[..., None], batches: list[int]) -> Callable[..., None]:
    def noted(keeper: Keeper, frames: Any, fragments: Any, batch: Any) -> None:
        if frames.total:
            batches.append(frames.total)
        take(keeper, frames, fragments, batch)

    return noted


def test_all_packets(interfaces: Interfaces, tmp_path: Path) -> None:
    """Every key is the same except the capture's name: packets and connections keep their numbers."""
    path = tmp_path / "kept.pcapng"
    result = live("-w", path, "--write-all")
    again = kafkasniff("decode", "--format", "json", path)
    reported = [[{**one, "capture": None} for one in output.objects] for output in (again, result)]
    assert reported[0] == reported[1]
    reported = result.err.splitlines()[-1].split(": ", 2)[2]
    assert again.err.splitlines()[-1].split(": ", 1)[1] == reported.partition(", lines ")[0]
    assert captured(path) == crafted()


def test_quiet_writes_only_the_file(interfaces: Interfaces, tmp_path: Path) -> None:
    result = live("-q", "-w", tmp_path / "kept")
    assert (result.code, result.out, result.err) == (0, b"", "")
    assert len(captured(tmp_path / "kept")) > 100
    result = live("-q", "-w", tmp_path / "kept", "-o", tmp_path / "lines")
    assert (result.code, result.out, result.err) == (0, b"", "")
    assert len((tmp_path / "lines").read_text().splitlines()) > 40


def test_a_count_ends_it(interfaces: Interfaces, tmp_path: Path) -> None:
    result = kafkasniff("live", "-i", "eth0", "--format", "json", "-q", "-c", 5, "-o", "-", "-w", tmp_path / "kept")
    assert result.code == 0
    again = kafkasniff("decode", "--format", "json", "-q", "-c", 5, tmp_path / "kept")
    assert without_numbers(again.objects) == without_numbers(result.objects)


def test_filters_do_not_change_the_file(interfaces: Interfaces, tmp_path: Path) -> None:
    live("-q", "-w", tmp_path / "a")
    live("-q", "-w", tmp_path / "b", "--errors", "--topic", "nothing")
    assert captured(tmp_path / "a") == captured(tmp_path / "b")


def test_tables_and_packets(interfaces: Interfaces, tmp_path: Path) -> None:
    result = live("-w", tmp_path / "kept", "--export", tmp_path / "tables")
    assert result.code == 0
    assert "packets in" in result.err
    assert "exchanges, " in result.err
    live("-q", "-w", tmp_path / "alone")
    assert captured(tmp_path / "kept") == captured(tmp_path / "alone")


def test_rotation(interfaces: Interfaces, tmp_path: Path) -> None:
    live("-q", "-w", tmp_path / "whole")
    result = live("-w", tmp_path / "kept", "-C", "2k", "-W", "100")
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("kept"))
    assert names[:2] == ["kept00", "kept01"]
    assert len(names) > 5
    assert [packet for name in names for packet in captured(tmp_path / name)] == captured(tmp_path / "whole")
    assert f"packets in {tmp_path / 'kept00'} and {len(names) - 1} more: " in result.err
    again = kafkasniff("decode", "--format", "json", *(tmp_path / name for name in names))
    assert without_numbers(again.objects) == without_numbers(result.objects)


def test_losses_are_in_the_file(interfaces: Interfaces, tmp_path: Path) -> None:
    interfaces.lost = 7
    live("-q", "-w", tmp_path / "kept")
    again = kafkasniff("decode", "--format", "json", tmp_path / "kept")
    (reported,) = [one for one in again.objects if one.get("kind") == "capture-loss"]
    assert "7 packets of interface 0 (eth0) were lost" in reported["detail"]


def test_a_full_disk(interfaces: Interfaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing continues; the file has only whole packets."""
    real, calls = os.write, 0

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal calls
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return real(descriptor, data)  # the source wakes itself by a pipe
        calls += 1
        if calls > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    whole = live("-w", tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("kafkasniff.capture.write.rotation.os.write", full)
        result = live("-w", tmp_path / "kept")
    assert result.code == Exit.UNAVAILABLE
    assert result.err.count("No space left on device") == 1
    assert f"kafkasniff: cannot write {tmp_path / 'kept'}: No space left on device" in result.err
    assert result.out == whole.out
    kept, every = captured(tmp_path / "kept"), captured(tmp_path / "whole")
    assert 0 < len(kept) < len(every)
    assert kept == every[: len(kept)]
    assert kafkasniff("decode", tmp_path / "kept").code == 0


def test_an_unwritable_place(interfaces: Interfaces, tmp_path: Path) -> None:
    result = live("-w", tmp_path / "missing" / "kept")
    assert result.code == Exit.UNAVAILABLE
    assert f"cannot write {tmp_path / 'missing' / 'kept'}: No such file or directory" in result.err


def test_missing_packets_are_reported(interfaces: Interfaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.live.packet_filter.MAX_WAITING_BYTES", 100)
    interfaces.blocks = 1
    result = live("-w", tmp_path / "kept")
    assert "packets of Kafka connections are not in" in result.err
    assert "--write-all" in result.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--write-all"], "--write-all needs --write"),
        (["-C", "5"], "-C needs --write"),
        (["-G", "5"], "-G needs --write"),
        (["-W", "5"], "-W needs --write"),
        (["-w", "-"], "name of a file"),
        (["-w", ""], "name of a file"),
        (["-w", "x", "-C", "0"], "-C 0"),
        (["-w", "x", "-C", "-1k"], "-C -1k"),
        (["-w", "x", "-C", "5t"], "-C 5t"),
        (["-w", "x", "-W", "5"], "-W needs -C or -G"),
        (["-w", "x", "-G", "60"], "needs a time in the name of the files"),
        (["-w", "x%S", "-G", "0.5"], "at least 1 s"),
        (["-w", "x", "-W", "0"], "0"),
        (["--buffer-size", "0"], "buffer-size"),
        (["-s", "0"], "snaplen"),
        (["-i", "eth1", "--export", "tables"], "--export takes one interface"),
        (["-i", "eth0"], "each interface once"),
    ],
)
def test_usage_errors(
    interfaces: Interfaces, options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = live(*options)
    assert result.code == Exit.USAGE
    assert said in result.err
    assert not interfaces.asked
    assert list(tmp_path.iterdir()) == []


def test_sizes() -> None:
    """According to tcpdump's manual."""
    assert [_size(text) for text in ("5", "5k", "5M", "5g")] == [5_000_000, 5 << 10, 5 << 20, 5 << 30]
    for text in ("", "k", "1.5", "१", "1" * 20):
        with pytest.raises(UsageError):
            _size(text)


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


def test_a_missing_interface_is_a_usage_error() -> None:
    result = kafkasniff("live")
    assert result.code == Exit.USAGE
    assert "--interface" in result.err


@pytest.mark.parametrize("mib", [1, 2, 7, 8, 9, 16, 63, 64, 65, 1_000, 4_096])
def test_rings_have_the_requested_size(mib: int) -> None:
    block, count = blocks_of(mib << 20)
    assert block * count == mib << 20
    assert block <= BLOCK_SIZES[0]
    assert block & (block - 1) == 0
    assert count >= min(BLOCK_COUNT, 8 * mib) // 2


# -- a real interface


@contextlib.contextmanager
def conversation() -> Iterator[int]:
    """A broker on loopback that answers requests; yields its port. The client speaks when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as broker:
            batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
            for number in range(20):
                client.sendall(kafka.produce_request(number, "orders", batch, version=9))
                broker.recv(4096)
                broker.sendall(kafka.produce_response(number, "orders", 7, version=9))
                client.recv(4096)


def run_live(options: list[str], signum: int, **limits: Any) -> tuple[int, str, list[dict[str, Any]]]:
    """Run `live` on loopback during a conversation and stop it by a signal: exit code, stderr, lines."""
    with conversation() as port:
        command = [*PYTHON, "live", *STAYS, "--format", "json", *options, f"tcp port {port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **limits)
        until_it_captures(process)
    try:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(40)]
        time.sleep(0.3)
        process.send_signal(signum)
        out, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in said.decode()
    return process.returncode, said.decode(), lines + [json.loads(line) for line in out.splitlines()]


@pytest.mark.root
@pytest.mark.parametrize("options", [["-i", "lo"], ["-i", "any"], ["-i", "lo", "--buffer-size", "8", "--write-all"]])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_real_interface(
    options: list[str],
    signum: int,
    require_root: Callable[[], None],
    require_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    require_root()
    path = tmp_path / "kept.pcapng"
    code, said, lines = run_live([*options, "-w", str(path)], signum)
    assert code == 0
    assert f"packets in {path}" in said
    again = kafkasniff("decode", "--format", "json", path)
    assert without_numbers(again.objects) == without_numbers(lines)
    assert len(lines) == 40
    info = subprocess.run([require_tool("capinfos"), "-M", path], capture_output=True, text=True, check=True).stdout
    link = "Linux cooked-mode capture v2" if "any" in options else "Ethernet"
    assert link in info
    assert f"Name = {options[1]}" in info


@pytest.mark.root
def test_a_file_that_reaches_its_size_limit(require_root: Callable[[], None], tmp_path: Path) -> None:
    """The kernel refuses a write in the middle of a block."""
    require_root()
    path = tmp_path / "kept.pcapng"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))

    code, said, lines = run_live(["-i", "lo", "--write-all", "-w", str(path)], signal.SIGINT, preexec_fn=limit)
    assert code == Exit.UNAVAILABLE
    assert said.count("cannot write") == 1
    assert len(lines) == 40
    assert path.stat().st_size <= 3_000
    assert kafkasniff("decode", path).code == 0


@pytest.mark.root
def test_a_promiscuous_interface(require_root: Callable[[], None], tmp_path: Path) -> None:
    require_root()
    code, _, lines = run_live(["-i", "lo", "--promiscuous", "-s", "2000"], signal.SIGINT)
    assert (code, len(lines)) == (0, 40)
    result = kafkasniff("live", "-i", "any", "--promiscuous")
    assert result.code == Exit.USAGE
    assert "promiscuous" in result.err
