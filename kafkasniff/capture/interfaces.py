"""The machine's network interfaces, as anyone may ask for them (Linux)."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec

from kafkasniff.errors import CaptureError, MissingPartError

__all__ = ["ANY", "NetworkInterface", "hardware_type", "interface_name", "list_interfaces"]

ANY: Final = "any"
"""Stands for all interfaces together."""

SIOCGIFFLAGS: Final = 0x8913
SIOCGIFHWADDR: Final = 0x8927
UP: Final = 0x1
LOOPBACK: Final = 0x8
RUNNING: Final = 0x40

MAX_ADDRESSES: Final = 65_536
"""Entries of the system's list that are looked at; a machine has one for each address."""


class NetworkInterface(msgspec.Struct, frozen=True):
    """An interface that can be captured."""

    name: str
    state: tuple[str, ...] = ()
    """Of up, running, loopback."""
    addresses: tuple[str, ...] = ()


class _Entry(ctypes.Structure):
    """`struct ifaddrs` of getifaddrs(3), as far as it is needed."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def list_interfaces() -> list[NetworkInterface]:
    """All interfaces, those in use first, loopback behind them, and at the end ANY. Raises MissingPartError."""
    if not hasattr(socket, "AF_PACKET"):
        raise MissingPartError("listing interfaces needs Linux")
    addresses = _addresses()
    found = []
    for number, name in socket.if_nameindex():
        flags = _flags(name)
        state = tuple(word for bit, word in ((UP, "up"), (RUNNING, "running"), (LOOPBACK, "loopback")) if flags & bit)
        rank = (not flags & UP, not flags & RUNNING, bool(flags & LOOPBACK), number)
        found.append((rank, NetworkInterface(name, state, tuple(addresses.get(name, ())))))
    found.sort(key=lambda entry: entry[0])
    return [*(interface for _, interface in found), NetworkInterface(ANY, ("all interfaces",))]


def interface_name(given: str) -> str:
    """The interface that a user means: by its name, or by its number in the list. Raises CaptureError."""
    if not given.isascii() or not given.isdigit() or any(name == given for _, name in socket.if_nameindex()):
        return given
    interfaces: Sequence[NetworkInterface] = list_interfaces()
    number = int(given[:9])
    if not 1 <= number <= len(interfaces):
        raise CaptureError(f"there is no interface {given}; there are {len(interfaces)} (kafkasniff live -D)")
    return interfaces[number - 1].name


def hardware_type(interface: str) -> int:
    """Type (ARPHRD_) of the interface. Raises CaptureError where there is none of this name."""
    try:
        answer = _ask(interface, SIOCGIFHWADDR)
    except (OSError, UnicodeError, ImportError) as error:
        there = ", ".join(name for _, name in socket.if_nameindex())
        reason = "there is no such interface" if getattr(error, "errno", 0) == errno.ENODEV else str(error)
        raise CaptureError(f"{interface}: {reason}; there are: {there}, {ANY}") from None
    return int(struct.unpack_from("=H", answer, 16)[0])


def _flags(interface: str) -> int:
    try:
        return int(struct.unpack_from("=H", _ask(interface, SIOCGIFFLAGS), 16)[0])
    except OSError:
        return 0  # it went away just now


def _ask(interface: str, request: int) -> bytes:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return fcntl.ioctl(asked, request, struct.pack("16s16x", interface.encode()[:15]))


def _addresses() -> dict[str, list[str]]:
    """Addresses by name of the interface; none where the system's library does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    found: dict[str, list[str]] = {}
    if libc.getifaddrs(ctypes.byref(first)):
        return found
    try:
        entry, seen = first, 0
        while entry and seen < MAX_ADDRESSES:
            here = entry.contents
            text = _address(here.address)
            if text is not None:
                found.setdefault((here.name or b"").decode("utf-8", "replace"), []).append(text)
            entry, seen = here.next, seen + 1
    finally:
        libc.freeifaddrs(first)
    return found


def _address(at: int | None) -> str | None:
    """An IPv4 or IPv6 address from where its `struct sockaddr` lies; None: it is of another kind."""
    if not at:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(at, 2))
    if family == socket.AF_INET:
        return str(IPv4Address(ctypes.string_at(at + 4, 4)))
    if family == socket.AF_INET6:
        return str(IPv6Address(ctypes.string_at(at + 8, 16)))
    return None
