"""Filter expressions of tcpdump, compiled by the machine's libpcap to kernel filters."""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
import struct
from typing import Final

from kafkasniff.errors import MissingPartError, UsageError

__all__ = ["attach", "compile_filter"]

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
