"""Live capture: from interfaces that play packets, on loopback, and over a cable in a namespace of the test."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.live.interface_socket import compile_filter, end_problems
from kafkasniff.capture.live.live import LiveSource, open_live
from kafkasniff.capture.write.capture_writer import packet_blocks, section
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.packets import PacketBatch
from tests.capture.fake_interface import Captured, FakeInterface
from tests.capture.files import START
from tests.capture.network import on_own_loopback
from tests.capture.reading import Result, Row, collect
from tests.capture.segments import frame, marked, numbers
from tests.capture.waiting import stopped_eventually
from tests.capture.write.test_capture_writer import read_by_scapy
from tests.conftest import missing

MESSAGE = bytes(range(250)) * 4
_PACKET = getattr(socket, "AF_PACKET", None)


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


def of_port(result: Result, port: int) -> list[Row]:
    return [row for row in result.rows if port in (row.sport, row.dport)]


def check(rows: list[Row], port: int, count: int) -> None:
    sent = [row for row in rows if row.dport == port]
    stream = b"".join(row.payload for row in sent)
    assert stream == MESSAGE * count  # each packet once, although loopback shows it twice
    assert {row.src for row in rows} == {"127.0.0.1"}
    now = time.time_ns()
    assert all(now - 60_000_000_000 < row.time_ns <= now for row in rows)


# -- interfaces that play packets --------------------------------------------------------------------------------------


class Flapping(FakeInterface):
    """Goes down after each of its blocks, and comes back after `refusals` attempts; never if they are None."""

    refusals: int | None = None

    def read_frames(self) -> Frames | None:
        if self.error is not None:
            return None
        found = super().read_frames()
        if found is None:
            return None
        self.error = f"{self.name}: the capture ended by itself (gone)"
        self._other.send(b"x")
        return found

    def resume(self) -> bool:
        if self.refusals:
            self.refusals -= 1
        if self.refusals != 0:
            return False
        self._socket.recv(1)
        self.error = None
        return True

    def problems(self) -> list[Problem]:
        return end_problems(self.name, self.error, self.packets, self.counts())


def played(capture: int, times: Sequence[int]) -> list[Captured]:
    return [(frame(marked(10 * capture + at)), 100, START + at_ns) for at, at_ns in enumerate(times)]


@pytest.mark.parametrize("blocks", [(1,), (2, 1), (9,)])
def test_interfaces_make_one_timeline(blocks: Sequence[int]) -> None:
    """Until a stop, with all that waits then, the losses, and the packets themselves for a file."""
    one = FakeInterface("eth0", 0, played(0, [1, 4, 5, 9]), blocks, lost=3)
    other = FakeInterface("eth1", 1, played(1, [2, 3, 6]), blocks)
    with LiveSource([one, other]) as source:
        assert (source.captures, source.bytes_total, source.broken) == (("eth0", "eth1"), None, False)
        source.stop()
        frames: list[int] = []

        def batches() -> Iterator[PacketBatch]:
            for part in source:
                frames.extend(source.frames.packets.time_ns.tolist())
                yield part

        result = collect(batches())
        assert numbers(result.payloads) == [0, 10, 11, 1, 2, 12, 3]
        assert frames == [START + at for at in (1, 2, 3, 4, 5, 6, 9)]
        assert source.bytes_read == 7 * len(frame(marked(0)))
        assert source.counts() == [(7, 3), (3, 0)]
        with pytest.raises(UsageError, match="only once"):
            iter(source)
    source.stop()  # harmless after the end


def test_idle_batches_and_a_stop_within_the_iteration() -> None:
    with LiveSource([FakeInterface("eth0", 0, played(0, [1]))], idle_seconds=0.001) as source:
        batches = iter(source)
        assert [len(next(batches)) for _ in range(3)] == [1, 0, 0]
        source.stop()
        assert list(batches) == []


def test_the_end_of_the_parent_and_of_the_interface_end_it() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    with LiveSource([FakeInterface("eth0", 0, played(0, [1]))], parent=ours) as source:
        assert collect(source).packets == 1
        assert not source.broken
    os.close(ours)
    said: list[str] = []
    for reopen, ending in ((0.0, ""), (0.01, ", and the interface did not come back within 0.01 s")):
        with LiveSource([Flapping("eth0", 0, played(0, [1, 2]))], reopen=reopen, say=said.append) as source:
            result = collect(source)
            assert source.broken
        assert result.packets == 2
        assert result.problem("capture-cut").detail == said[-1] == f"eth0: the capture ended by itself (gone){ending}"
    assert said[1:-1] == ["eth0 is down: waiting up to 0.01 s for it"]


def test_an_interface_that_comes_back_is_captured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap is a problem between the packets before and after it; others are captured meanwhile."""
    monkeypatch.setattr("kafkasniff.capture.live.live.RETRY_S", 0.001)
    monkeypatch.setattr("kafkasniff.capture.live.live.MERGE_S", 0.0)
    said: list[str] = []
    one, other = Flapping("eth0", 0, played(0, [1, 2, 3]), (2, 1)), FakeInterface("eth1", 1, played(1, [1, 2]))
    one.refusals = 3
    with LiveSource([one, other], say=said.append) as source, stopped_eventually(source):
        batches = iter(source)
        parts = [next(batches)]
        while sum(len(part) for part in parts) < 5:
            parts.append(next(batches))
        assert source.counts() == [(3, 0), (2, 0)]
        # It is down again: a stop does not wait for it.
        one.refusals = None
        source.stop()
        parts += list(batches)
        assert not source.broken
    assert said[0] == "eth0 is down: waiting up to 60 s for it"
    assert re.fullmatch(r"eth0 is up again after [\d.]+ m?s", said[1])
    (note,) = (note for part in parts for note in part.notes if note.value.kind == "interface-down")
    assert (note.order, note.value.capture) == (4, "eth0")
    assert re.fullmatch(r"eth0: nothing was captured for [\d.]+ m?s: the interface was down", note.value.detail)


def test_a_stop_while_an_interface_is_down_ends_it() -> None:
    with LiveSource([Flapping("eth0", 0, played(0, [1]))], idle_seconds=0.001) as source, stopped_eventually(source):
        batches = iter(source)
        assert [len(next(batches)), len(next(batches))] == [1, 0]
        source.stop()
        assert sum(len(part) for part in batches) == 0
        assert not source.broken


def test_losses_are_reported_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.capture.live.live.LOSS_S", 0.0)
    monkeypatch.setattr("kafkasniff.capture.live.live.JOIN_BYTES", 0)
    one = FakeInterface("eth0", 0, played(0, [1, 2, 3]), (1,))
    losses = [None, Problem("capture-loss", "2 of 5 packets"), None]
    monkeypatch.setattr(one, "fresh_loss", lambda: losses.pop(0))
    with LiveSource([one]) as source:
        source.stop()
        result = collect(source)
    assert [(note.order, note.value.kind) for note in result.notes] == [(1, "capture-loss")]


def test_invalid_requests() -> None:
    for options, reason in (
        ({"interface": "lo", "snaplen": 0}, "snaplen must be positive"),
        ({"interface": []}, "name each interface once"),
        ({"interface": ["lo", "lo"]}, "name each interface once"),
        *(({"interface": "lo", "buffer": mib}, "1 to 4096 MiB") for mib in (0, -1, 4_097)),
    ):
        with pytest.raises(UsageError, match=reason):
            open_live(**options)
    with pytest.raises(CaptureError, match=r"nosuch0: there is no such interface; there are: .*lo"):
        open_live("nosuch0")


def test_one_that_cannot_be_opened_closes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[FakeInterface] = []

    def open_one(name: str, capture: int, **options: object) -> FakeInterface:
        assert options == {"bpf": None, "snaplen": 99, "buffer": 4, "promiscuous": True}
        if capture == 2:
            raise CaptureError("no")
        opened.append(FakeInterface(name, capture, []))
        return opened[-1]

    monkeypatch.setattr("kafkasniff.capture.live.live._backend", lambda: open_one)
    options = {"snaplen": 99, "buffer": 4, "promiscuous": True}
    with pytest.raises(CaptureError, match="no"):
        open_live(["a", "b", "c"], **options)
    ready: list[bool] = []
    with open_live(["a", "b"], on_ready=lambda: ready.append(True), **options) as source:
        assert (source.captures, ready) == (("a", "b"), [True])
    with pytest.raises(ZeroDivisionError):
        open_live("a", on_ready=lambda: ready.append(1 // 0 > 0), **options)
    assert [one.fileno() for one in opened] == [-1] * 5


def test_without_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr("kafkasniff.capture.live.interface_socket.ctypes.CDLL", missing)
    with pytest.raises(MissingPartError, match="libpcap"):
        compile_filter("tcp", 1, 100)
    assert compile_filter("", 1, 100) == struct.pack("=HBBI", 6, 0, 0, 100)


# -- real interfaces ---------------------------------------------------------------------------------------------------


@pytest.fixture
def _allowed(require_root: Callable[[], None]) -> None:
    require_root()
    try:
        compile_filter("tcp", 1, 100)
    except MissingPartError as error:
        missing(str(error))


def real(test: Callable[..., None]) -> Callable[..., None]:
    """A test that captures."""
    return pytest.mark.extended(pytest.mark.root(pytest.mark.usefixtures("_allowed")(test)))


@real
@pytest.mark.parametrize(("interface", "bpf"), [("lo", None), ("lo", "tcp"), ("any", "tcp")])
@on_own_loopback
def test_a_conversation_on_loopback(interface: str, bpf: str | None) -> None:
    with open_live(interface, bpf=bpf) as source:
        with conversation(50, source.stop) as port:
            result = collect(source)
        assert (source.bytes_total, source.broken) == (None, False)
        assert source.bytes_read >= 50 * len(MESSAGE)
    check(of_port(result, port), port, 50)
    assert result.notes == []


@real
def test_losses_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of one megabyte and a reader that sleeps. Other tests use loopback as well, so only our port counts."""
    monkeypatch.setattr("kafkasniff.capture.live.frames.BLOCK_SIZES", (1 << 16,))
    monkeypatch.setattr("kafkasniff.capture.live.frames.BLOCK_COUNT", 16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        with open_live("lo", bpf=f"udp dst port {nobody.getsockname()[1]}") as source:
            for _ in range(400):
                nobody.sendto(bytes(8000), nobody.getsockname())
            assert source.backlog == 1.0
            source.stop()
            result = collect(source)
            assert source.backlog == 0.0
    detail = [note.value.detail for note in result.notes if isinstance(note.value, Problem)][-1]
    lost = int(detail.split("in total, ")[1].split()[0])
    assert 0 < lost < 400
    assert result.packets + lost == 400
    assert not result.broken


@real
@pytest.mark.parametrize("change", ["down", "gone"])
@on_own_loopback
def test_a_real_interface_that_comes_back(require_tool: Callable[[str], str], change: str) -> None:
    """It is set down, or deleted and made again: packets before and after are captured, the gap is reported."""
    check_that_it_comes_back(require_tool("ip"), change)


def check_that_it_comes_back(ip: str, change: str) -> None:
    up = ("link add va type veth peer name vb", "link set va up", "link set vb up")
    away, back = (("link set va down",), up[1:]) if change == "down" else (("link del va",), up)
    payload = bytes.fromhex("ffffffffffff 020000000001 88b5") + bytes(range(46))

    def run(*commands: str) -> None:
        for words in commands:
            if subprocess.run([ip, *words.split()], check=False).returncode:
                missing("this kernel has no veth")

    def send(number: int) -> None:
        with socket.socket(_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("vb", 0))
            wire.send(payload + bytes([number]))

    run(*up)
    seen: list[int] = []
    gaps: list[str] = []
    said: list[str] = []
    steps: list[tuple[Callable[[], bool], Callable[[], None]]] = [
        (lambda: seen == [1], lambda: run(*away)),
        (lambda: said == ["va is down: waiting up to 60 s for it"], lambda: run(*back)),
        (lambda: gaps == ["interface-down"], lambda: send(2)),
    ]
    with open_live("va", say=said.append, idle_seconds=0.05) as source, stopped_eventually(source):
        steps.append((lambda: seen == [1, 2], source.stop))
        send(1)
        for part in source:
            packets = source.frames.packets
            for start, size in zip(packets.start.tolist(), packets.captured.tolist(), strict=True):
                data = packets.buffer[start : start + size]
                if data.startswith(payload):
                    seen.append(data[len(payload)])
            gaps += [note.value.kind for note in part.notes if isinstance(note.value, Problem)]
            if steps and steps[0][0]():
                steps.pop(0)[1]()
        assert not source.broken
    assert not steps
    assert [text.partition(" after ")[0] for text in said[1:]] == ["va is up again"]


@real
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
