"""The machine's network interfaces, as visible without privileges, and the processes that have its sockets."""

from __future__ import annotations

import contextlib
import ctypes
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

from kafkasniff.errors import CaptureError

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
