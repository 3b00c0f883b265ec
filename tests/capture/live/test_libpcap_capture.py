"""Live capture through libpcap, as on systems without AF_PACKET: here Linux's libpcap, with AF_PACKET hidden."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kafkasniff.capture.formats.pcap import PcapParser
from kafkasniff.capture.link.links import LINKS
from kafkasniff.capture.link.scapy_layers import libpcap
from kafkasniff.capture.live.interface_socket import InterfaceSocket
from kafkasniff.capture.live.libpcap_capture import BATCH_BYTES, LibpcapInterface, MemoryFile
from kafkasniff.capture.live.live import LiveSource, open_live
from kafkasniff.capture.write.pcapng_writer import packet_blocks, section
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from tests.capture.live.test_live import MESSAGE, check, conversation, datagrams, of_connection, of_port
from tests.capture.network import on_own_loopback
from tests.capture.reading import Row, collect
from tests.capture.waiting import PATIENCE, stopped_eventually, until
from tests.capture.write.test_pcapng_writer import read_by_scapy
from tests.cli.test_user import enterable
from tests.conftest import missing

PACKET = getattr(socket, "AF_PACKET", None)
PLAIN = {"bpf": None, "snaplen": 262_144, "buffer": None, "promiscuous": False}
WITHOUT = "import socket\ndel socket.AF_PACKET\n"


@pytest.fixture(autouse=True)
def _no_packet_sockets(require_root: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    require_root()
    try:
        libpcap()
    except (ImportError, OSError) as error:
        missing(f"capturing through libpcap: {error}")
    monkeypatch.delattr(socket, "AF_PACKET")


@pytest.fixture
def cable(require_tool: Callable[[str], str]) -> Callable[[], Callable[..., None]]:
    """`cable()` connects two ends, va and vb, in the test's namespace, and returns `ip`."""
    ip = require_tool("ip")

    def run(*words: str) -> None:
        subprocess.run([ip, *words], check=True)

    def lay() -> Callable[..., None]:
        laid = subprocess.run([ip, "link", "add", "va", "type", "veth", "peer", "name", "vb"], check=False)
        if laid.returncode:
            missing("this kernel has no veth")
        run("link", "set", "va", "up")
        run("link", "set", "vb", "up")
        return run

    return lay


def wire_to(name: str) -> socket.socket:
    assert PACKET is not None
    wire = socket.socket(PACKET, socket.SOCK_RAW)
    wire.bind((name, 0))
    return wire


@pytest.mark.root
@pytest.mark.parametrize("interface", ["lo", "any"])
@pytest.mark.parametrize("bpf", [None, "tcp"])
@on_own_loopback
def test_a_conversation_on_loopback(interface: str, bpf: str | None) -> None:
    with open_live(interface, bpf=bpf) as source:
        assert isinstance(source._sockets[0], LibpcapInterface)
        with conversation(50, source.stop) as port:
            result = collect(source)
        assert (source.captures, source.broken) == ((interface,), False)
        assert source.counts() == [(result.packets, 0)]
    rows = of_port(result, port)
    check(rows, port, 50)
    assert result.notes == []
    assert any(row.time_ns % 1000 for row in rows)  # Linux has nanoseconds


@pytest.mark.root
@on_own_loopback
def test_the_packets_are_those_of_a_packet_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        here.setattr(socket, "AF_PACKET", PACKET, raising=False)
        ours = LiveSource([InterfaceSocket("lo", 0, **PLAIN)])
    with ours, LiveSource([LibpcapInterface("lo", 0, **PLAIN)]) as theirs:
        with conversation(30, lambda: None):
            pass
        ours.stop()
        theirs.stop()
        one, other = collect(ours), collect(theirs)

    def without_time(rows: list[Row]) -> list[Row]:
        return [row._replace(time_ns=0) for row in rows]

    assert len(one.rows) > 60
    assert without_time(one.rows) == without_time(other.rows)
    apart = [abs(a.time_ns - b.time_ns) for a, b in zip(one.rows, other.rows, strict=True)]
    assert max(apart) < 1_000_000_000


@pytest.mark.root
@on_own_loopback
def test_microseconds_where_nanoseconds_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.capture.live.libpcap_capture.NANOSECONDS", 0)
    with open_live("lo") as source, conversation(5, source.stop) as port:
        result = collect(source)
    rows = of_port(result, port)
    check(rows, port, 5)
    assert not any(row.time_ns % 1000 for row in rows)


@pytest.mark.root
@on_own_loopback
def test_batches_arrive_soon() -> None:
    with open_live("lo", bpf="tcp", idle_seconds=0.05) as source, conversation(1, lambda: None) as port:
        batches = iter(source)
        # Without stopping, and with a buffer that is nowhere near full.
        while not of_connection(next(batches), port):
            pass
        while len(next(batches)):
            pass
        source.stop()
        list(batches)


@pytest.mark.root
@on_own_loopback
def test_a_filter_and_a_snap_length() -> None:
    with open_live("lo", bpf="udp port 9") as none, open_live("lo", bpf="tcp", snaplen=96) as cut:
        assert cut.interfaces[0].snaplen == 96
        with conversation(5, cut.stop) as port:
            rows = [row for row in of_port(collect(cut), port) if row.wire_length]
        none.stop()
        assert collect(none).packets == 0
    assert sum(row.wire_length for row in rows) == 5 * len(MESSAGE)
    assert all(len(row.payload) == 96 - 66 for row in rows)  # Ethernet, IPv4, TCP with time stamps


@pytest.mark.root
@on_own_loopback
def test_more_than_a_batch_is_read_after_a_stop() -> None:
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}", buffer=32) as source:
        for _ in range(150):
            send(bytes(60_000))
        source.stop()
        sizes = [int(source.frames.packets.captured.sum()) for batch in source if batch.packets]
        assert source.counts() == [(150, 0)]
    assert sum(sizes) == 150 * 60_042
    assert len(sizes) > 1
    assert max(sizes) < 4 * BATCH_BYTES


@pytest.mark.root
@on_own_loopback
def test_losses_are_counted_and_tags_are_kept(cable: Callable[[], Callable[..., None]]) -> None:
    """Frames sent into one end of a cable: packets received and lost add up to those sent."""
    cable()
    tags = ("", "8100 6005", "88a8 0007")
    payload = bytes.fromhex("88b5") + bytes(1_000)  # an Ethernet type for experiments (IEEE 802)
    sent = [bytes.fromhex("ffffffffffff 020000000001" + tag) + payload for tag in tags]
    many = bytes.fromhex("ffffffffffff 020000000001 88b6") + bytes(1_000)
    read: list[bytes] = []
    with open_live("vb", bpf="ether src 2:0:0:0:0:1", buffer=1) as source, wire_to("va") as wire:
        for frame in sent:
            wire.send(frame)
        for _ in range(4_000):
            wire.send(many)
        source.stop()
        notes = []
        for batch in source:
            frames = source.frames
            notes += batch.notes
            if frames.total:
                read += [one[0] for one in read_by_scapy(section(source.interfaces) + packet_blocks(frames).data)]
        received, lost = source.counts()[0]
    assert [data for data in read if data.endswith(payload)] == sent
    assert 0 < lost < received
    assert received == len(read) + lost == len(sent) + 4_000
    (problem,) = [note.value for note in notes]
    assert f"vb: in total, {lost:,} of {received:,} packets were lost" in problem.detail


@pytest.mark.root
@on_own_loopback
def test_losses_are_reported_while_capturing(cable: Callable[[], Callable[..., None]]) -> None:
    cable()
    one = LibpcapInterface("vb", 0, **{**PLAIN, "buffer": 1})
    with wire_to("va") as wire:
        for _ in range(4_000):
            wire.send(bytes(1_000))
        assert one.take() is not None
        assert one.backlog == 1.0
        loss = one.fresh_loss()
        assert loss is not None
        assert "since the last report" in loss.detail
        while one.take() is not None:
            pass
        wire.send(bytes(1_000))
        until(lambda: one.take() is not None)
        assert (one.backlog, one.fresh_loss()) == (0.0, None)
    one.close()
    one.close()
    assert one.counts()[1] > 0


@pytest.mark.root
@on_own_loopback
def test_packets_that_exceed_the_memory_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with datagrams() as (port, send), open_live("lo", bpf=f"udp dst port {port}") as source:
        for _ in range(5):
            send(b"data")
        source.stop()
        whole = MemoryFile.content
        monkeypatch.setattr(MemoryFile, "content", lambda self: whole(self)[: 2 * (16 + 46)])
        result = collect(source)
        assert source.counts() == [(5, 3)]
    assert result.packets == 2
    assert "3 of 5 packets were lost" in result.problem("capture-loss").detail


@pytest.mark.root
@on_own_loopback
def test_two_interfaces_in_order_of_time(cable: Callable[[], Callable[..., None]]) -> None:
    cable()
    with open_live(["va", "vb"], bpf="ether proto 0x88b5") as source, wire_to("va") as wire:
        for number in range(20):
            wire.send(bytes.fromhex("ffffffffffff 020000000001 88b5") + struct.pack("!50I", *[number] * 50))
        times: list[int] = []
        captures: list[int] = []
        with stopped_eventually(source):
            for _ in source:
                times += source.frames.packets.time_ns.tolist()
                captures += source.frames.packets.capture.tolist()
                if len(captures) == 40:
                    source.stop()
    assert times == sorted(times)
    assert sorted(captures) == [0] * 20 + [1] * 20


@pytest.mark.root
@on_own_loopback
def test_an_interface_that_disappears_ends_the_capture(cable: Callable[[], Callable[..., None]]) -> None:
    ip = cable()
    with open_live("vb", on_ready=lambda: ip("link", "delete", "vb")) as source:
        with stopped_eventually(source):
            result = collect(source)
        assert source.broken
    assert "vb: the capture ended by itself (" in result.problem("capture-cut").detail


@pytest.mark.root
@on_own_loopback
def test_empty_batches_and_stop_before() -> None:
    with open_live("lo", bpf="udp port 9", idle_seconds=0.05) as source:
        batches = iter(source)
        for _ in range(3):
            batch = next(batches)
            assert (len(batch), batch.packets, batch.notes) == (0, 0, [])
        source.stop()
        assert list(batches) == []
    with open_live("lo", bpf="udp port 9") as source:
        source.stop()
        assert collect(source).packets == 0


@pytest.mark.root
def test_stop_in_a_signal_handler() -> None:
    program = WITHOUT + (
        "import signal\n"
        "from kafkasniff.capture.live.live import open_live\n"
        "source = open_live('lo', bpf='udp port 9')\n"
        "signal.signal(signal.SIGTERM, lambda *_: source.stop())\n"
        "print('ready', flush=True)\n"
        "for batch in source: pass\n"
        "source.close()\n"
        "print('ended')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "ended\n"
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("name", ["nosuch0", "lo\0", "", "x" * 40])
def test_unknown_interface(name: str) -> None:
    with pytest.raises(CaptureError) as caught:
        open_live(name)
    assert "\n" not in str(caught.value)
    if name == "nosuch0":
        assert str(caught.value).startswith("nosuch0: there is no such interface; there are: ")
        assert "lo" in str(caught.value)


def test_usage_errors() -> None:
    with pytest.raises(UsageError, match="'tcp and and' is invalid: "):
        open_live("lo", bpf="tcp and and")
    with pytest.raises(UsageError, match="1 to 2047 MiB"):
        open_live("lo", buffer=2_048)
    with pytest.raises(UsageError, match="no promiscuous mode on any"):
        open_live("any", promiscuous=True)


def test_interface_errors_of_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    pcap = libpcap()
    activate = pcap.pcap_activate
    answers: list[int] = []
    monkeypatch.setattr(pcap, "pcap_activate", lambda handle: answers.pop(0) if answers else activate(handle))
    answers.append(pcap.PCAP_WARNING_PROMISC_NOTSUP)
    with pytest.raises(UsageError, match="no promiscuous mode on lo"):
        open_live("lo", promiscuous=True)
    answers.append(pcap.PCAP_ERROR_IFACE_NOT_UP)
    with pytest.raises(CaptureError, match=r"lo: cannot be captured \(.* is not up\)"):
        open_live("lo")
    answers += [pcap.PCAP_ERROR, pcap.PCAP_ERROR]
    with pytest.raises(CaptureError, match="lo: cannot be captured"):
        open_live("lo")
    answers.append(pcap.PCAP_ERROR)
    with pytest.raises(CaptureError, match="lo: cannot be captured"):
        open_live("lo", buffer=8)
    assert not answers


@pytest.mark.root
@on_own_loopback
def test_a_machine_that_refuses_the_default_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    pcap = libpcap()
    activate = pcap.pcap_activate
    answers = [pcap.PCAP_ERROR]
    monkeypatch.setattr(pcap, "pcap_activate", lambda handle: answers.pop() if answers else activate(handle))
    with open_live("lo") as source, conversation(3, source.stop) as port:
        check(of_port(collect(source), port), port, 3)
    assert not answers


@pytest.mark.root
def test_without_privileges() -> None:
    """The other user reads the modules that the refusal imports: `enterable` grants access wherever the clone is."""
    if os.geteuid() != 0:
        missing("becoming somebody else needs root")
    program = WITHOUT + (
        "import os, sys\n"
        "from kafkasniff.capture.live.live import open_live\n"
        "from kafkasniff.capture.link.scapy_layers import libpcap\n"
        "from kafkasniff.errors import MissingPartError\n"
        "libpcap()\n"
        "sys.platform = 'freebsd14'\n"
        "os.setgroups([])\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "try: open_live('lo')\n"
        "except MissingPartError as error: print(error)\n"
    )
    command = enterable([sys.executable, "-c", program])
    reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert reported.stdout.startswith("capturing on lo needs the right to read /dev/bpf*")
    assert reported.stdout.count("\n") == 1


def test_without_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "scapy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scapy", None)
    with pytest.raises(MissingPartError, match=r"kafkasniff\[scapy\].*tcpdump -i lo -U -w - \| kafkasniff decode -"):
        open_live("lo")


def test_without_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "scapy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    with pytest.raises(MissingPartError, match=r"needs libpcap, which is not installed; or use: tcpdump"):
        open_live("lo")


def test_neither_packet_sockets_nor_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("kafkasniff.capture.live.live.os.name", "nt")
        with pytest.raises(MissingPartError, match="needs Linux, macOS or a BSD"):
            open_live("lo")


@pytest.fixture
def dead_handle() -> Iterator[Callable[[int], object]]:
    """`dead_handle(dlt)`: a libpcap handle without an interface."""
    pcap = libpcap()
    handles = []

    def opened(dlt: int) -> object:
        handles.append(pcap.pcap_open_dead(dlt, 1_000))
        return handles[-1]

    yield opened
    for handle in handles:
        pcap.pcap_close(handle)


@pytest.mark.parametrize(
    ("dlt", "link"),
    [(0, 0), (1, 1), (12, 101), (108, 108), (109, 109), (113, 113), (117, 117), (276, 276)],
    ids=["null of macOS", "Ethernet", "raw", "loop of OpenBSD", "enc", "cooked", "pflog", "cooked 2"],
)
def test_link_types_are_converted_to_those_of_files(dlt: int, link: int, dead_handle: Callable[[int], object]) -> None:
    """An interface's link type (DLT_) may differ from that of files (LINKTYPE_): libpcap maps them."""
    file = MemoryFile(libpcap(), dead_handle(dlt))
    assert PcapParser(file.header, "lo0", 0).interfaces[0].link == link
    assert link in LINKS
    file.close()


def test_a_link_type_that_files_lack(dead_handle: Callable[[int], object]) -> None:
    with pytest.raises(OSError, match="link-layer type"):
        MemoryFile(libpcap(), dead_handle(0x7FFF))


def test_a_file_in_memory_starts_over(dead_handle: Callable[[int], object]) -> None:
    pcap = libpcap()
    file = MemoryFile(pcap, dead_handle(1))
    record = pcap.pcap_pkthdr()
    record.caplen = record.len = 60
    record.ts.tv_sec, record.ts.tv_usec = 1_700_000_000, 5
    data = (ctypes.c_ubyte * 60)(*range(60))
    for count in (1, 1_000, 3):
        file.rewind()
        for _ in range(count):
            pcap.pcap_dump(ctypes.cast(file._dumper, pcap.pcap_dump.argtypes[0]), ctypes.byref(record), data)
        assert file.content() == (struct.pack("=IIII", 1_700_000_000, 5, 60, 60) + bytes(range(60))) * count
    file.close()
