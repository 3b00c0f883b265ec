"""`kafkasniff live --write` and how it captures: the files decode to what was printed."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture.live.interfaces import list_interfaces
from kafkasniff.cli.environment import Exit
from tests.capture.fake_interface import Captured, FakeInterface, captured
from tests.cli.console import kafkasniff
from tests.cli.real_live import running
from tests.craft.samples import mixed
from tests.craft.write import LINKS, link_bytes


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


# -- a real interface


def run_live(options: list[str], signum: int, **limits: Any) -> tuple[int, str, list[dict[str, Any]]]:
    """Run `live` during a conversation and stop it by a signal: exit code, stderr, lines."""
    with running(options, *range(20), **limits) as process:
        assert process.stdout is not None
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
