"""Live capture on loopback and over a pair of namespaces that the test owns."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.live.bpf import compile_filter
from kafkasniff.capture.live.live import open_live
from kafkasniff.capture.write.pcapng_writer import packet_blocks, section
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.tcp.packets import PacketBatch
from tests.capture.files import pcap
from tests.capture.network import on_own_loopback
from tests.capture.reading import Result, Row, collect
from tests.capture.waiting import PATIENCE, stopped_eventually
from tests.capture.write.test_pcapng_writer import read_by_scapy
from tests.conftest import missing

MESSAGE = bytes(range(250)) * 4


@pytest.fixture(autouse=True)
def _allowed(require_root: Callable[[], None]) -> None:
    require_root()


@contextlib.contextmanager
def conversation(count: int, after: Callable[[], None]) -> Iterator[int]:
    """`count` messages to a server on loopback, then `after`; yields the server's port before the first message."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with socket.create_connection(server.getsockname()) as client, server.accept()[0] as peer:
                for _ in range(count):
                    client.sendall(MESSAGE)
                    received = 0
                    while received < len(MESSAGE):
                        received += len(peer.recv(65_536))
            after()

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


@contextlib.contextmanager
def datagrams() -> Iterator[tuple[int, Callable[[bytes], int]]]:
    """A port on loopback that nobody reads, and a function that sends to it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sink.bind(("127.0.0.1", 0))
        sender.connect(sink.getsockname())
        yield sink.getsockname()[1], sender.send


def of_port(result: Result, port: int) -> list[Row]:
    return [row for row in result.rows if port in (row.sport, row.dport)]


def of_connection(batch: PacketBatch, port: int) -> int:
    """Number of packets of this port in the batch."""
    return int(((batch.src_port == port) | (batch.dst_port == port)).sum())


def check(rows: list[Row], port: int, count: int) -> None:
    sent = [row for row in rows if row.dport == port]
    stream = b"".join(row.payload for row in sent)
    assert stream == MESSAGE * count  # each packet once, although loopback shows it twice
    assert {row.src for row in rows} == {"127.0.0.1"}
    now = time.time_ns()
    assert all(now - 60_000_000_000 < row.time_ns <= now for row in rows)


@pytest.mark.root
@pytest.mark.parametrize("interface", ["lo", "any"])
@pytest.mark.parametrize("bpf", [None, "tcp"])
@on_own_loopback
def test_a_conversation_on_loopback(interface: str, bpf: str | None) -> None:
    ready: list[bool] = []
    with open_live(interface, bpf=bpf, on_ready=lambda: ready.append(True)) as source:
        assert ready == [True]
        assert source.captures == (interface,)
        with conversation(50, source.stop) as port:
            result = collect(source)
        assert (source.bytes_total, source.broken) == (None, False)
        assert source.bytes_read >= 50 * len(MESSAGE)
    check(of_port(result, port), port, 50)
    assert result.notes == []


@pytest.mark.root
@on_own_loopback
def test_batches_arrive_soon_and_stop_works_in_the_middle() -> None:
    with open_live("lo", bpf="tcp") as source, conversation(1, lambda: None) as port:
        batches = iter(source)
        # Without stopping, and with a ring that is nowhere near full.
        while not of_connection(next(batches), port):
            pass
        timer = threading.Timer(0.1, source.stop)
        timer.start()
        list(batches)
        timer.join()


@pytest.mark.root
def test_empty_batches_arrive_while_the_interface_is_idle() -> None:
    with open_live("lo", bpf="udp port 9", idle_seconds=0.05) as source:
        batches = iter(source)
        for _ in range(3):
            batch = next(batches)
            assert (len(batch), batch.packets, batch.end_order, batch.notes) == (0, 0, 0, [])
        source.stop()
        assert list(batches) == []


@pytest.mark.root
def test_a_filter_drops_other_packets() -> None:
    with open_live("lo", bpf="udp port 9") as source, conversation(20, source.stop) as port:
        result = collect(source)
    assert of_port(result, port) == []
    assert result.packets == 0


@pytest.mark.root
@pytest.mark.parametrize("bpf", [None, "tcp"])
@on_own_loopback
def test_a_snap_length_cuts_the_payload(bpf: str | None) -> None:
    with open_live("lo", bpf=bpf, snaplen=96) as source, conversation(5, source.stop) as port:
        result = collect(source)
    rows = [row for row in of_port(result, port) if row.wire_length]
    assert sum(row.wire_length for row in rows) == 5 * len(MESSAGE)
    assert all(len(row.payload) == 96 - 66 for row in rows)  # Ethernet, IPv4, TCP with time stamps


@pytest.mark.root
def test_losses_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of one megabyte and a reader that sleeps. Other tests use loopback as well, so only our port counts."""
    monkeypatch.setattr("kafkasniff.capture.live.ring.BLOCK_SIZES", (1 << 16,))
    monkeypatch.setattr("kafkasniff.capture.live.ring.BLOCK_COUNT", 16)
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}") as source:
        for _ in range(400):
            send(bytes(8000))
        assert source.backlog == 1.0
        source.stop()
        result = collect(source)
        assert source.backlog == 0.0
    detail = [note.value.detail for note in result.notes if isinstance(note.value, Problem)][-1]
    lost = int(detail.split("in total, ")[1].split()[0])
    assert 0 < lost < 400
    assert result.packets + lost == 400
    assert not result.broken


@pytest.mark.root
def test_losses_are_reported_while_capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier losses are reported before the next packets, the rest at the end."""
    monkeypatch.setattr("kafkasniff.capture.live.ring.BLOCK_SIZES", (1 << 16,))
    monkeypatch.setattr("kafkasniff.capture.live.ring.BLOCK_COUNT", 16)
    monkeypatch.setattr("kafkasniff.capture.live.live.LOSS_S", 0.0)
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}", idle_seconds=0.05) as source:
        reported: list[str] = []
        for batch in source:
            reported += [note.value.detail for note in batch.notes if isinstance(note.value, Problem)]
            if not reported:
                for _ in range(400):
                    send(bytes(8000))
            else:
                source.stop()
    lost = [int(detail.split(": ")[1].removeprefix("in total, ").split()[0].replace(",", "")) for detail in reported]
    assert 0 < lost[0] < 400
    assert sum(lost[:-1]) == lost[-1]


@pytest.mark.root
def test_a_reader_that_pauses_loses_nothing() -> None:
    """Few packets, each in its own block because blocks are handed over after 50 ms: 20 blocks per second."""
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}") as source:
        for _ in range(50):
            send(bytes(100))
            time.sleep(0.02)
        # A third of the blocks wait, which does not cause load shedding.
        assert source.backlog == 0.0
        source.stop()
        result = collect(source)
    assert result.packets == 50
    assert result.kinds == []


@pytest.mark.root
@on_own_loopback
def test_two_interfaces_and_their_tags(require_tool: Callable[[str], str]) -> None:
    """Packets sent into one end of a cable and captured at both: as sent, including tags, in order of time."""
    ip = require_tool("ip")
    for words in ("link add va type veth peer name vb", "link set va up", "link set vb up"):
        if subprocess.run([ip, *words.split()], check=False).returncode:
            missing("this kernel has no veth")
    tags = ("", "8100 6005", "88a8 0007", "8100 0001")
    payload = bytes.fromhex("88b5") + bytes(range(60))  # an Ethernet type for experiments (IEEE 802)
    sent = [bytes.fromhex("ffffffffffff 020000000001" + tag) + payload for tag in tags]
    captured: list[tuple[str, bytes, int]] = []
    with open_live(["va", "vb"]) as source, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        assert source.captures == ("va", "vb")
        wire.bind(("va", 0))
        for frame in sent:
            wire.send(frame)
        with stopped_eventually(source):
            for _ in source:
                frames = source.frames
                read = read_by_scapy(section(source.interfaces) + packet_blocks(frames).data) if frames.total else []
                names = [source.captures[capture] for capture in frames.packets.capture.tolist()]
                found = [(name, data, time_ns) for name, (data, _, time_ns, _) in zip(names, read, strict=True)]
                captured += [one for one in found if one[1].endswith(payload)]
                if len(captured) == 2 * len(sent):
                    source.stop()
    assert [one[2] for one in captured] == sorted(one[2] for one in captured)
    assert [data for name, data, _ in captured if name == "va"] == sent
    assert [data for name, data, _ in captured if name == "vb"] == sent


@pytest.mark.root
@pytest.mark.parametrize("mib", [1, 3, 64, 65])
def test_a_ring_of_a_given_size(mib: int) -> None:
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}", buffer=mib) as source:
        for _ in range(10):
            send(bytes(60_000))
        source.stop()
        assert collect(source).packets == 10
        assert source.counts() == [(10, 0)]


@pytest.mark.root
def test_invalid_ring_sizes() -> None:
    for mib in (0, -1, 4_097):
        with pytest.raises(UsageError, match="1 to 4096 MiB"):
            open_live("lo", buffer=mib)


@pytest.mark.root
def test_the_ring_is_drained_after_a_stop() -> None:
    """A reader slower than the wait for the last packets."""
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}") as source:
        for _ in range(12):
            send(bytes(100))
            time.sleep(0.07)  # each in a block of its own
        source.stop()
        packets = 0
        for batch in source:
            packets += batch.packets
            time.sleep(0.05)
    assert packets == 12


@pytest.mark.root
def test_stop_before_and_after() -> None:
    with open_live("lo", bpf="udp port 9") as source:
        source.stop()
        assert collect(source).packets == 0
        with pytest.raises(UsageError, match="only once"):
            iter(source)
    source.stop()  # harmless after the end


@pytest.mark.root
@pytest.mark.parametrize("thread", ["main", "another"])
def test_stop_in_a_signal_handler(thread: str) -> None:
    """In another thread the signal interrupts no wait of the main one, like a signal just before that wait."""
    program = (
        "import signal, threading, time\n"
        "from kafkasniff.capture.live.live import open_live\n"
        "source = open_live('lo', bpf='udp port 9')\n"
        "signal.signal(signal.SIGTERM, lambda *_: source.stop())\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        f"{thread == 'another'} and signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('ready', flush=True)\n"
        "for batch in source: pass\n"
        "source.close()\n"
        "print('ended')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        process.terminate()
        assert process.stdout.read() == "ended\n"
        assert process.wait(PATIENCE) == 0


@pytest.mark.root
def test_an_interface_that_goes_down_ends_the_capture(require_tool: Callable[[str], str]) -> None:
    ip = require_tool("ip")
    program = (
        "import subprocess\n"
        "from kafkasniff.capture.live.live import open_live\n"
        "def ip(*words): subprocess.run([%r, 'link', *words], check=True)\n"
        "ip('set', 'lo', 'up')\n"
        "with open_live('lo', on_ready=lambda: ip('set', 'lo', 'down')) as source:\n"
        "    print([note.value.kind for batch in source for note in batch.notes], source.broken)\n"
    )
    command = [require_tool("unshare"), "-n", sys.executable, "-c", program % ip]
    reported = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE).stdout
    assert reported == "['capture-cut'] True\n"


def test_unknown_interface() -> None:
    with pytest.raises(CaptureError, match=r"nosuch0: there is no such interface; there are: .*lo") as caught:
        open_live("nosuch0")
    assert "\n" not in str(caught.value)


def test_an_invalid_filter() -> None:
    with pytest.raises(UsageError, match="is invalid"):
        open_live("lo", bpf="tcp and and")


def test_without_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("kafkasniff.capture.live.interface_socket.hardware_type", lambda _name: 772)
    monkeypatch.setattr("kafkasniff.capture.live.interface_socket.socket.socket", refuse)
    with pytest.raises(MissingPartError) as caught:
        open_live("lo")
    assert "capturing on lo needs the capability CAP_NET_RAW" in str(caught.value)


def test_without_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr("kafkasniff.capture.live.bpf.ctypes.CDLL", missing)
    with pytest.raises(MissingPartError, match="libpcap"):
        compile_filter("tcp", 1, 100)
    assert len(compile_filter("", 1, 100)) == 8


@pytest.mark.parametrize("expression", ["tcp", "tcp port 9092 and host 10.0.0.1", "ip6 or vlan 5"])
def test_filters_are_those_of_tcpdump(expression: str, require_tool: Callable[[str], str]) -> None:
    command = [require_tool("tcpdump"), "-ddd", "-y", "EN10MB", "-s", "1000", "-i", "lo", expression]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1:]
    code = compile_filter(expression, 1, 1000)
    ours = [str(value) for at in range(0, len(code), 8) for value in _instruction(code[at : at + 8])]
    if "vlan" not in expression:  # tcpdump knows that the kernel strips tags from live packets
        assert ours == reported
    assert ours[-4:] == reported[-4:]


def _instruction(data: bytes) -> tuple[int, int, int, int]:
    order = sys.byteorder
    return int.from_bytes(data[:2], order), data[2], data[3], int.from_bytes(data[4:], order)


@pytest.mark.root
def test_a_live_source_behaves_like_a_capture_source(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(pcap([]))
    with open_captures([path]) as of_files, open_live("lo", bpf="udp port 9") as live:
        # A reader that needs packets twice asks for the packets themselves.
        of_files_alone = {"packets", "fragments", "interface"}
        public = {name for name in dir(of_files) if not name.startswith("_")} - of_files_alone
        assert public <= set(dir(live))
