"""Live capture through libpcap, as on systems without AF_PACKET: here Linux's libpcap, with AF_PACKET hidden."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

import pytest

from kafkasniff.capture.link.scapy_layers import libpcap
from kafkasniff.capture.live.libpcap_capture import LibpcapInterface
from kafkasniff.capture.live.live import open_live
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from tests.capture.live.test_live import check, check_that_it_comes_back, conversation, of_port
from tests.capture.network import on_own_loopback
from tests.capture.reading import collect
from tests.conftest import missing

PACKET = getattr(socket, "AF_PACKET", None)


@pytest.fixture(autouse=True)
def _no_packet_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_PACKET", raising=False)


@pytest.fixture
def _library(require_root: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shown:
        shown.setattr(socket, "AF_PACKET", PACKET, raising=False)
        require_root()
    try:
        libpcap()
    except (ImportError, OSError) as error:
        missing(f"capturing through libpcap: {error}")


def root(test: Callable[..., None]) -> Callable[..., None]:
    """A test that captures."""
    return pytest.mark.extended(pytest.mark.root(pytest.mark.usefixtures("_library")(test)))


@root
@pytest.mark.parametrize(("interface", "bpf"), [("lo", None), ("lo", "tcp"), ("any", "tcp")])
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


@root
@on_own_loopback
def test_an_interface_that_comes_back(require_tool: Callable[[str], str]) -> None:
    """Linux's libpcap itself waits for one that is only down."""
    check_that_it_comes_back(require_tool("ip"), "gone")


@root
def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lo\0", "", "x" * 40):
        with pytest.raises(CaptureError) as caught:
            open_live(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(CaptureError, match=r"^nosuch0: there is no such interface; there are: .*lo"):
        open_live("nosuch0")
    with pytest.raises(UsageError, match="'tcp and and' is invalid: "):
        open_live("lo", bpf="tcp and and")
    with pytest.raises(UsageError, match="1 to 2047 MiB"):
        open_live("lo", buffer=2_048)
    with pytest.raises(UsageError, match="no promiscuous mode on any"):
        open_live("any", promiscuous=True)
    pcap = libpcap()
    activate = pcap.pcap_activate
    answers: list[int] = []
    monkeypatch.setattr(pcap, "pcap_activate", lambda handle: answers.pop(0) if answers else activate(handle))
    for given, options, error, message in (
        ([pcap.PCAP_WARNING_PROMISC_NOTSUP], {"promiscuous": True}, UsageError, "no promiscuous mode on lo"),
        ([pcap.PCAP_ERROR_IFACE_NOT_UP], {}, CaptureError, r"lo: cannot be captured \(.* is not up\)"),
        # The usual buffer may be refused, not a requested one.
        ([pcap.PCAP_ERROR, pcap.PCAP_ERROR], {}, CaptureError, "lo: cannot be captured"),
        ([pcap.PCAP_ERROR], {"buffer": 8}, CaptureError, "lo: cannot be captured"),
    ):
        answers += given
        with pytest.raises(error, match=message):
            open_live("lo", **options)
        assert not answers


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("scapy", r"kafkasniff\[scapy\].*tcpdump -i lo -U -w - \| kafkasniff decode -"),
        ("libpcap", "needs libpcap, which is not installed; or use: tcpdump"),
        ("both", "needs Linux, macOS or a BSD"),
    ],
)
def test_missing_parts(lacks: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "scapy"]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as patch:
        if lacks == "scapy":
            patch.setitem(sys.modules, "scapy", None)
        elif lacks == "libpcap":
            patch.setattr("ctypes.util.find_library", lambda _name: None)
        else:
            patch.setattr("kafkasniff.capture.live.live.os.name", "nt")
        with pytest.raises(MissingPartError, match=message):
            open_live("lo")
