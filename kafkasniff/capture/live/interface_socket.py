"""Interfaces of this machine as visible without privileges, and a captured one of Linux: socket, filter and ring."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import os
import socket
import struct
import sys
from collections.abc import Collection, Sequence
from glob import iglob
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import IGNORED_LINK, Interface, RawPackets
from kafkasniff.capture.live.frames import COOKED_SIZE, SOL_PACKET, Block, Frames, Ring
from kafkasniff.capture.live.privileges import CAP_NET_RAW, advice, make_effective, mask, process_rights
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.model import Problem

ANY: Final = "any"
"""The name of all interfaces together (Linux)."""

SIOCGIFFLAGS: Final = 0x8913
SIOCGIFHWADDR: Final = 0x8927
"""Linux's numbers."""

UP: Final = 0x1
LOOPBACK: Final = 0x8
RUNNING: Final = 0x40
"""IFF_: the same on Linux, the BSDs and macOS."""

ADDRESS_SIZE: Final = 24
"""Bytes of a `struct sockaddr` up to the end of its IPv6 address."""

MAX_ADDRESSES: Final = 65_536
"""Maximum number of entries of the system's list; a machine has one for each address."""


class NetworkInterface(msgspec.Struct, frozen=True):
    """An interface that can be captured."""

    name: str
    state: tuple[str, ...] = ()
    """Some of up, running, loopback."""
    addresses: tuple[str, ...] = ()


class _Entry(ctypes.Structure):
    """`struct ifaddrs` of getifaddrs(3): the fields that are needed and the same on all systems."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def list_interfaces() -> list[NetworkInterface]:
    """All interfaces: those in use first, loopback after them, and ANY at the end if the system has it."""
    asked = _asked()
    found = []
    for number, name in socket.if_nameindex():
        flags, addresses = asked.get(name, (0, []))
        state = tuple(word for bit, word in ((UP, "up"), (RUNNING, "running"), (LOOPBACK, "loopback")) if flags & bit)
        rank = (not flags & UP, not flags & RUNNING, bool(flags & LOOPBACK), number)
        found.append((rank, NetworkInterface(name, state, tuple(addresses))))
    found.sort(key=lambda entry: entry[0])
    everywhere = [NetworkInterface(ANY, ("all interfaces",))] if _has_any() else []
    return [*(interface for _, interface in found), *everywhere]


def interface_names() -> list[str]:
    """Names of all interfaces that can be captured."""
    return [name for _, name in socket.if_nameindex()] + ([ANY] if _has_any() else [])


def _has_any() -> bool:
    return hasattr(socket, "AF_PACKET")


def interface_name(given: str) -> str:
    """The interface that a user means: by its name, or by its number in the list. Raises CaptureError."""
    if not given.isascii() or not given.isdigit() or any(name == given for _, name in socket.if_nameindex()):
        return given
    interfaces: Sequence[NetworkInterface] = list_interfaces()
    number = int(given[:9])
    if not 1 <= number <= len(interfaces):
        raise CaptureError(f"there is no interface {given}; `kafkasniff live -D` lists all {len(interfaces)}")
    return interfaces[number - 1].name


def hardware_type(interface: str) -> int:
    """Type (ARPHRD_) of the interface (Linux). Raises CaptureError if there is none of this name."""
    try:
        answer = _ask(interface, SIOCGIFHWADDR)
    except (OSError, UnicodeError, ImportError) as error:
        reason = "there is no such interface" if getattr(error, "errno", 0) == errno.ENODEV else str(error)
        raise CaptureError(f"{interface}: {reason}; there are: {', '.join(interface_names())}") from None
    return int(struct.unpack_from("=H", answer, 16)[0])


def is_up(interface: str) -> bool:
    """Whether there is an interface of this name, and it is up (Linux)."""
    try:
        answer = _ask(interface, SIOCGIFFLAGS)
    except OSError:
        return False
    return bool(struct.unpack_from("=H", answer, 16)[0] & UP)


def _ask(interface: str, request: int) -> bytes:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return fcntl.ioctl(asked, request, struct.pack("16s16x", interface.encode()[:15]))


def _asked() -> dict[str, tuple[int, list[str]]]:
    """(flags, addresses) by name of the interface; empty if the system's library does not provide them."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    found: dict[str, tuple[int, list[str]]] = {}
    if libc.getifaddrs(ctypes.byref(first)):
        return found
    try:
        entry, seen = first, 0
        while entry and seen < MAX_ADDRESSES:
            here = entry.contents
            _, addresses = found.setdefault((here.name or b"").decode("utf-8", "replace"), (here.flags, []))
            text = _address_at(here.address)
            if text is not None:
                addresses.append(text)
            entry, seen = here.next, seen + 1
    finally:
        libc.freeifaddrs(first)
    return found


def _address_at(at: int | None) -> str | None:
    """The address of the `struct sockaddr` at a memory address; None: it is neither IPv4 nor IPv6."""
    if not at:
        return None
    begins_with_length = sys.platform != "linux"
    family = _family(ctypes.string_at(at, 2), begins_with_length=begins_with_length)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    return _address(family, ctypes.string_at(at, ADDRESS_SIZE if family == socket.AF_INET6 else 8))


def _family(data: bytes, *, begins_with_length: bool) -> int:
    """The address family at the beginning of a `struct sockaddr`: on BSD a byte after the byte of its length."""
    return data[1] if begins_with_length else int(struct.unpack("=H", data)[0])


def _address(family: int, data: bytes) -> str:
    """The address in a `struct sockaddr_in` or `sockaddr_in6`."""
    if family == socket.AF_INET:
        return str(IPv4Address(data[4:8]))
    address = bytearray(data[8:24])
    if address[0] == 0xFE and address[1] & 0xC0 == 0x80:
        # KAME-derived kernels store the number of the interface in link-local addresses; RFC 4291 has zeros there.
        address[2:4] = bytes(2)
    return str(IPv6Address(bytes(address)))


MAX_LINKS: Final = 50_000
"""Maximum number of open files that are looked at: some 100 ms."""
_SOCKETS: Final = "/proc/net/tcp", "/proc/net/tcp6"


def socket_processes(ends: Collection[str]) -> dict[str, str]:
    """Name and process id for each of these ends (`address:port`) that is a socket of this machine (Linux).

    Only those of the user's own processes are found, unless the user is root. A command line may contain secrets: the
    name is that of the executable.
    """
    wanted = {text: end for end in ends for text in _as_in_proc(end)}
    inodes: dict[str, str] = {}
    for path in _SOCKETS:
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as lines:
            for line in lines:
                fields = line.split()
                if len(fields) > 9 and fields[1] in wanted and fields[9] != "0":
                    inodes[f"socket:[{fields[9]}]"] = wanted[fields[1]]
    found: dict[str, str] = {}
    links = iglob("/proc/[0-9]*/fd/*") if inodes else ()
    for link in islice(links, MAX_LINKS):
        # Processes end meanwhile, and others belong to other users.
        with contextlib.suppress(OSError):
            end = inodes.get(os.readlink(link))
            if end is not None:
                folder = link.rpartition("/fd/")[0]
                with open(f"{folder}/comm", encoding="utf-8", errors="replace") as file:
                    found.setdefault(end, f"{file.read().strip()} {folder.rpartition('/')[2]}")
        if len(found) == len(inodes):
            break
    return found


def _as_in_proc(end: str) -> list[str]:
    """The forms of an end in these files, IPv6 included: words of 32 bits in the order of bytes of the machine."""
    address, _, port = end.rpartition(":")
    try:
        packed, number = ip_address(address.strip("[]")).packed, int(port)
    except ValueError:
        return []
    forms = [packed] if len(packed) == 16 else [packed, bytes(10) + b"\xff\xff" + packed]
    return [
        "".join(f"{word:08X}" for word in struct.unpack(f"={len(form) // 4}I", form)) + f":{number:04X}"
        for form in forms
    ]


# Filter expressions of tcpdump, compiled by the machine's libpcap to kernel filters.

SO_ATTACH_FILTER: Final = 26
"""Linux's number; Python's socket module lacks it."""

NETMASK_UNKNOWN: Final = 0xFFFF_FFFF

RETURN: Final = 0x06
"""BPF_RET | BPF_K: accept this many bytes of the packet."""


class _Program(ctypes.Structure):
    """`struct bpf_program`."""

    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def _libpcap() -> ctypes.CDLL:
    for name in ("libpcap.so.1", "libpcap.so.0.8", ctypes.util.find_library("pcap")):
        if name is None:
            continue
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MissingPartError("a filter expression needs libpcap, which is not installed; install it or omit the filter")


def compile_filter(expression: str, link: int, snaplen: int) -> bytes:
    """The program (8 bytes per instruction) that accepts `snaplen` bytes of each matching packet of this link type.

    Raises UsageError if the expression is invalid, MissingPartError if libpcap is missing.
    """
    if not expression:
        return struct.pack("=HBBI", RETURN, 0, 0, snaplen)
    pcap = _libpcap()
    pcap.pcap_open_dead.restype = ctypes.c_void_p
    pcap.pcap_geterr.restype = ctypes.c_char_p
    handle = ctypes.c_void_p(pcap.pcap_open_dead(link, snaplen))
    program = _Program()
    try:
        text = expression.encode("utf-8", "replace")
        if pcap.pcap_compile(handle, ctypes.byref(program), text, 1, ctypes.c_uint32(NETMASK_UNKNOWN)):
            reason = pcap.pcap_geterr(handle).decode("utf-8", "replace")
            raise UsageError(f"the filter {expression!r} is invalid: {reason}")
        code = ctypes.string_at(program.instructions, program.length * 8) if program.instructions else b""
        pcap.pcap_freecode(ctypes.byref(program))
        return code
    finally:
        pcap.pcap_close(handle)


def attach(target: socket.socket, code: bytes) -> None:
    """Let the kernel run this program on the socket's packets. Raises OSError if the kernel refuses it."""
    instructions = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions, then, at the pointer's alignment, their address.
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(instructions))
    target.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


DEFAULT_SNAPLEN: Final = 262_144
"""Maximum number of bytes kept of a packet: all of it."""

MAX_BUFFER: Final = 4_096
"""Maximum size of a ring in MiB: no machine has more to spare for unread packets."""

ETH_P_ALL: Final = 3
PACKET_ADD_MEMBERSHIP: Final = 1
PACKET_MR_PROMISC: Final = 1
PACKET_IGNORE_OUTGOING: Final = 23
PACKET_OUTGOING: Final = 4

ARPHRD_ETHER: Final = 1
ARPHRD_LOOPBACK: Final = 772
"""Its packets have Ethernet headers too."""

LINK_ETHERNET: Final = 1
LINK_RAW: Final = 101
LINK_COOKED: Final = 276
"""Link type in files for packets without link headers: LINKTYPE_LINUX_SLL2."""
DLT_RAW: Final = 12
"""The link type in libpcap's compiler for packets that begin with IP."""

IP_TYPES: Final = (0x0800, 0x86DD)


class InterfaceSocket:
    """Packets of one interface, number `capture` of a run.

    `buffer`: MiB of the ring, None: the usual size. Raises CaptureError if the interface cannot be opened, UsageError
    for an invalid filter, MissingPartError without privileges or (for a filter) libpcap.
    """

    poll_seconds: Final = None
    """Readable when the kernel has packets."""

    def __init__(
        self, name: str, capture: int, *, bpf: str | None, snaplen: int, buffer: int | None, promiscuous: bool
    ) -> None:
        self.name = name
        self.error: str | None = None
        """Why the capture ended by itself."""
        self.packets = 0
        """Packets captured so far."""
        self._capture = capture
        self._promiscuous = promiscuous
        self._received = self._dropped = 0
        self._reported = (0, 0)
        """The kernel's count when losses were last reported."""
        everywhere = name == ANY
        if everywhere and promiscuous:
            raise UsageError(f"no promiscuous mode on {ANY}: name the interface")
        hardware = self._hardware = None if everywhere else hardware_type(name)
        self._cooked = hardware not in {ARPHRD_ETHER, ARPHRD_LOOPBACK}
        self.decoded = Interface(LINK_RAW if self._cooked else LINK_ETHERNET, capture, name)
        """Link type for the engine."""
        self.written = Interface(
            LINK_COOKED if self._cooked else LINK_ETHERNET,
            capture,
            name,
            snaplen + COOKED_SIZE if self._cooked else snaplen,
        )
        """Link type in files."""
        code = b""
        if bpf or snaplen < DEFAULT_SNAPLEN:
            code = compile_filter(bpf or "", DLT_RAW if self._cooked else LINK_ETHERNET, snaplen)
        make_effective(mask(CAP_NET_RAW))
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if self._cooked else socket.SOCK_RAW, 0)
        except PermissionError:
            raise MissingPartError(advice(name, process_rights())) from None
        ring: Ring | None = None
        try:
            # Until it is bound the socket receives nothing, so no packet escapes the filter.
            if code:
                attach(self.socket, code)
            if hardware == ARPHRD_LOOPBACK:
                _ignore_outgoing(self.socket)
            ring = self._ring = Ring(self.socket, None if buffer is None else buffer << 20)
            if everywhere:
                _bind_everywhere(self.socket)
            else:
                self._bind()
        except OSError as error:
            if ring is not None:
                ring.close()
            self.socket.close()
            reason = error.strerror or str(error)
            if error.errno == errno.ENOMEM and buffer is not None:
                reason = f"no memory for a ring of {buffer} MiB"
            raise CaptureError(f"{name}: cannot be captured ({reason})") from None

    def _bind(self) -> None:
        self._index = socket.if_nametoindex(self.name)
        # Not promiscuous unless requested: on a broker's host its own traffic is what matters.
        if self._promiscuous:
            _be_promiscuous(self.socket, self._index)
        self.socket.bind((self.name, ETH_P_ALL))

    @property
    def blocks(self) -> int:
        """Blocks of the ring."""
        return self._ring.blocks

    @property
    def backlog(self) -> float:
        """Waiting fraction of the ring, 0 to 1; 0 if that is little."""
        return self._ring.backlog()

    def fileno(self) -> int:
        """Becomes readable when there are packets."""
        return self.socket.fileno()

    def read_frames(self) -> Frames | None:
        """The packets of the next block that the kernel has released; None if there is none yet."""
        block = self._ring.next_block()
        return None if block is None else self._frames(block)

    def check(self) -> bool:
        """Whether the capture continues after an error reported by the kernel; otherwise `error` has the reason."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.error = f"{self.name}: the capture ended by itself ({os.strerror(code)})"
        return not code

    def resume(self) -> bool:
        """Whether the interface is back after `check` failed; the capture then continues.

        It needs no privileges: the kernel resumes if the interface was only down, and the same socket can be bound to a
        new interface of that name if it has the same link type.
        """
        if not is_up(self.name):
            return False
        try:
            if hardware_type(self.name) != self._hardware:
                return False
            if socket.if_nametoindex(self.name) != self._index:
                self._bind()
        except (OSError, CaptureError):
            # It has gone again.
            return False
        if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        self.error = None
        return True

    def counts(self) -> tuple[int, int]:
        """(packets, lost packets among them) since the start, as counted by the kernel."""
        with contextlib.suppress(OSError):
            received, dropped = self._ring.statistics()
            self._received += received
            self._dropped += dropped
        return self._received, self._dropped

    def fresh_loss(self) -> Problem | None:
        """New losses since the last call, if any."""
        before, self._reported = self._reported, self.counts()
        return fresh_loss(self.name, before, self._reported)

    def problems(self) -> list[Problem]:
        """Reports at the end."""
        return end_problems(self.name, self.error, self.packets, self.counts())

    def close(self) -> None:
        """Release the interface."""
        self.counts()
        self._ring.close()
        self.socket.close()

    def _frames(self, block: Block) -> Frames:
        """A block's packets; on all interfaces without the copies that loopback sends, since it receives them, too."""
        twice = (block.kind == PACKET_OUTGOING) & (block.hardware == ARPHRD_LOOPBACK)
        if twice.any():
            kept = ~twice
            block = Block(block.buffer, *(column[kept] for column in block[1:]))
        link: NDArray[np.int32] | int = LINK_ETHERNET
        if self._cooked:
            # Without link headers only the kernel knows a packet's type.
            link = np.where(np.isin(block.protocol, IP_TYPES), LINK_RAW, IGNORED_LINK).astype(np.int32)
        packets = RawPackets.build(
            block.buffer,
            block.start,
            block.captured,
            block.wire,
            block.time_ns,
            link=link,
            capture=self._capture,
            first_number=self.packets + 1,
        )
        self.packets += len(packets.start)
        return Frames.cooked(packets, block.heads) if self._cooked else Frames.ethernet(packets, block.heads)


def end_problems(name: str, error: str | None, packets: int, counts: tuple[int, int]) -> list[Problem]:
    """Reports at the end of a capture: why it ended by itself, and the number of lost packets."""
    problems = []
    if error is not None:
        problems.append(Problem("capture-cut", error, capture=name, packet=packets or None))
    received, dropped = counts
    if dropped:
        problems.append(_loss(name, f"in total, {dropped:,} of {received:,} packets"))
    return problems


def fresh_loss(name: str, before: tuple[int, int], now: tuple[int, int]) -> Problem | None:
    """The report of packets lost between two counts (`CapturedInterface.counts`)."""
    received, dropped = now[0] - before[0], now[1] - before[1]
    return _loss(name, f"{dropped:,} of {received:,} packets since the last report") if dropped else None


def _loss(name: str, packets: str) -> Problem:
    text = f"{name}: {packets} were lost because they were not read from the kernel in time"
    return Problem("capture-loss", text, capture=name)


def _bind_everywhere(target: socket.socket) -> None:
    """Bind to interface 0, which is all of them; Python's own `bind` takes only names of interfaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=HHiHBB8x", socket.AF_PACKET, socket.htons(ETH_P_ALL), 0, 0, 0, 0)
    if libc.bind(target.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _be_promiscuous(target: socket.socket, interface: int) -> None:
    """As long as the socket is open (struct packet_mreq)."""
    request = struct.pack("=iHH8x", interface, PACKET_MR_PROMISC, 0)
    target.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, request)


def _ignore_outgoing(target: socket.socket) -> None:
    # Loopback shows each packet as sent and as received; kernels before 4.20 cannot omit one, so `read_frames` does.
    with contextlib.suppress(OSError):
        target.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
