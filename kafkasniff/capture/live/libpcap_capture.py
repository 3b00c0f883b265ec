"""One interface captured by the machine's libpcap: macOS, the BSDs, and other systems without AF_PACKET.

libpcap's functions come from scapy's binding (`scapy_layers`). Packets never pass through Python one by one: libpcap
calls its own function that writes a packet to a file (`pcap_dump`) for each, the file is in memory, and the parser of
capture files reads it. So link types and time stamps are as in a file written by tcpdump.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

from kafkasniff.capture.formats.pcap import HEADER_SIZE, Interface, PcapParser
from kafkasniff.capture.link.scapy_layers import libpcap
from kafkasniff.capture.live.frames import RETIRE_MS, Frames
from kafkasniff.capture.live.interface_socket import ANY, DEFAULT_SNAPLEN, end_problems, fresh_loss, interface_names
from kafkasniff.capture.live.privileges import advice, process_rights
from kafkasniff.errors import CaptureError, KafkasniffError, MissingPartError, UsageError
from kafkasniff.model import Problem

USUAL_BUFFER: Final = 64
"""Default size in MiB requested from the kernel; the BSDs and macOS may limit it."""

MAX_BUFFER: Final = 2_047
"""MiB: libpcap takes the bytes as an int."""

BATCH_BYTES: Final = 1 << 20
"""Packets are passed on after this many bytes although there are more."""

AT_ONCE: Final = 32
"""Maximum number of packets taken by one call, each of 256 KiB at most: a batch may exceed BATCH_BYTES by these."""

NETMASK_UNKNOWN: Final = -1

NANOSECONDS: Final = 1
"""PCAP_TSTAMP_PRECISION_NANO. Systems without it (macOS) use microseconds."""


class LibpcapInterface:
    """Packets of one interface, number `capture` of a run.

    `buffer`: MiB that the kernel keeps, None: the usual size. Raises CaptureError if the interface cannot be opened,
    UsageError for an invalid filter, MissingPartError without privileges, scapy or libpcap.
    """

    poll_seconds: Final = RETIRE_MS / 1000
    """On some systems the descriptor becomes readable only when the buffer is full, though data can be read before
    (pcap_get_required_select_timeout(3PCAP), and the comments of libpcap's pcap-bpf.c).
    """

    def __init__(
        self, name: str, capture: int, *, bpf: str | None, snaplen: int, buffer: int | None, promiscuous: bool
    ) -> None:
        self.name = name
        self.error: str | None = None
        """Why the capture ended by itself."""
        self._pcap = _binding(name)
        self.backlog = 0.0
        """1 if packets were lost since the previous `read_frames`, else 0: libpcap does not report how much waits."""
        self._dropped = self._dropped_before = self._unwritten = 0
        self._reported = (0, 0)
        """The counts when losses were last reported."""
        self._notes: list[Problem] = []
        if buffer is not None and buffer > MAX_BUFFER:
            raise UsageError(f"a buffer of libpcap has 1 to {MAX_BUFFER} MiB")
        if promiscuous and name == ANY:
            raise UsageError(f"no promiscuous mode on {ANY}: name the interface")
        self._snaplen = min(snaplen, DEFAULT_SNAPLEN)
        self._bpf, self._buffer, self._promiscuous = bpf, buffer, promiscuous
        self._capture = capture
        self._open = False
        self._before = 0
        """Packets before the interface was opened again."""
        self._start()
        link = self._parser.interfaces[0].link
        self.decoded = Interface(link, capture, name)
        """Link type for the engine."""
        self.written = Interface(link, capture, name, self._snaplen)
        """Link type in files."""
        self.blocks: Final = ((buffer or USUAL_BUFFER) << 20) // BATCH_BYTES + 1
        """How often `read_frames` may have to be called to read everything that the kernel holds at one time."""

    def _start(self) -> None:
        self._handle = self._opened(self._snaplen, self._buffer, promiscuous=self._promiscuous)
        try:
            if self._bpf:
                self._set_filter(self._bpf)
            error = ctypes.create_string_buffer(self._pcap.PCAP_ERRBUF_SIZE)
            if self._pcap.pcap_setnonblock(self._handle, 1, error):
                raise self._refused(_text(error.value))
            self._descriptor: int = self._pcap.pcap_get_selectable_fd(self._handle)
            if self._descriptor < 0:
                raise self._refused("it cannot be polled")
            try:
                self._file = MemoryFile(self._pcap, self._handle)
            except OSError as failure:
                raise self._refused(failure.strerror or str(failure)) from None
        except BaseException:
            self._pcap.pcap_close(self._handle)
            raise
        self._parser = PcapParser(self._file.header, self.name, self._capture)
        self._parser.packets = self._before
        self._dropped_before = 0
        self._open = True

    @property
    def packets(self) -> int:
        """Packets captured so far."""
        return self._parser.packets

    def fileno(self) -> int:
        """Becomes readable when there are packets."""
        return self._descriptor

    def read_frames(self) -> Frames | None:
        """The next packets that the kernel has released; None if there are none yet."""
        if self.error is not None:
            return None
        self._file.rewind()
        count = 0
        while self._file.size < BATCH_BYTES:
            written = self._file.write_packets(AT_ONCE)
            if written < 0:
                reason = _text(self._pcap.pcap_geterr(self._handle))
                self.error = f"{self.name}: the capture ended by itself ({reason})"
            if written <= 0:
                break
            count += written
        if not count:
            return None
        before, lost = self.packets, self._dropped
        self.counts()
        self.backlog = float(self._dropped > lost)
        parsed = self._parser.parse(self._file.content(), 0, ended=True)
        # Memory may have been insufficient for the file's contents.
        self._unwritten += count - (self.packets - before)
        self._notes += [value for _, value in parsed.notes if isinstance(value, Problem)]
        return None if parsed.packets is None else Frames.plain(parsed.packets)

    def check(self) -> bool:
        """Whether the capture continues; `read_frames` finds out."""
        return self.error is None

    def resume(self) -> bool:
        """Whether the interface is back after the capture ended; it is opened again, which needs privileges."""
        if self._open:
            self._before = self.packets
            self.close()
        try:
            self._start()
        except KafkasniffError:
            return False
        if self._parser.interfaces[0].link != self.decoded.link:
            self.close()
            return False
        self.error = None
        return True

    def counts(self) -> tuple[int, int]:
        """(packets, lost packets among them) since the start.

        On some systems libpcap counts packets before the filter, so received ones are counted here.
        """
        if self._open:
            counts = self._pcap.pcap_stat()
            if not self._pcap.pcap_stats(self._handle, ctypes.byref(counts)):
                # An unsigned int, which may wrap around in a long capture.
                self._dropped += (counts.ps_drop - self._dropped_before) & 0xFFFF_FFFF
                self._dropped_before = counts.ps_drop
        lost = self._dropped + self._unwritten
        return self.packets + lost, lost

    def fresh_loss(self) -> Problem | None:
        """New losses since the last call, if any."""
        before, self._reported = self._reported, self.counts()
        return fresh_loss(self.name, before, self._reported)

    def problems(self) -> list[Problem]:
        """Reports at the end."""
        return [*self._notes, *end_problems(self.name, self.error, self.packets, self.counts())]

    def close(self) -> None:
        """Release the interface."""
        if self._open:
            self.counts()
            self._open = False
            self._file.close()
            self._pcap.pcap_close(self._handle)

    def _opened(self, snaplen: int, buffer: int | None, *, promiscuous: bool) -> Any:
        """The handle (pcap_t) of the interface, capturing."""
        # A requested size is used or refused; the default one may be reduced to libpcap's own if the machine refuses
        # ours.
        sizes = [USUAL_BUFFER, None] if buffer is None else [buffer]
        if "\0" in self.name:
            raise self._unknown()
        for size in sizes:
            handle, status, reason = self._try(snaplen, size, promiscuous=promiscuous)
            if handle is not None:
                return handle
            if status != self._pcap.PCAP_ERROR:
                break
        if status == self._pcap.PCAP_ERROR_NO_SUCH_DEVICE:
            raise self._unknown()
        if status in {self._pcap.PCAP_ERROR_PERM_DENIED, self._pcap.PCAP_ERROR_PROMISC_PERM_DENIED}:
            raise MissingPartError(advice(self.name, process_rights()))
        if status == self._pcap.PCAP_WARNING_PROMISC_NOTSUP:
            raise UsageError(f"no promiscuous mode on {self.name}")
        raise self._refused(reason)

    def _try(self, snaplen: int, size: int | None, *, promiscuous: bool) -> tuple[Any, int, str]:
        """(the handle or None, libpcap's status, the reason for None)."""
        pcap = self._pcap
        error = ctypes.create_string_buffer(pcap.PCAP_ERRBUF_SIZE)
        handle = pcap.pcap_create(self.name.encode("utf-8", "surrogateescape"), error)
        if not handle:
            return None, pcap.PCAP_ERROR, _text(error.value)
        pcap.pcap_set_snaplen(handle, snaplen)
        pcap.pcap_set_promisc(handle, int(promiscuous))
        pcap.pcap_set_timeout(handle, RETIRE_MS)
        if size is not None:
            _declared(pcap, "pcap_set_buffer_size", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(handle, size << 20)
        _declared(pcap, "pcap_set_tstamp_precision", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(handle, NANOSECONDS)
        status = pcap.pcap_activate(handle)
        if status >= 0 and not (promiscuous and status == pcap.PCAP_WARNING_PROMISC_NOTSUP):
            return handle, status, ""
        reason = _text(pcap.pcap_geterr(handle))
        if status != pcap.PCAP_ERROR:
            reason = _text(pcap.pcap_statustostr(status)) + (f": {reason}" if reason else "")
        pcap.pcap_close(handle)
        return None, status, reason

    def _set_filter(self, expression: str) -> None:
        pcap = self._pcap
        program = pcap.bpf_program()
        text = expression.encode("utf-8", "replace")
        if pcap.pcap_compile(self._handle, ctypes.byref(program), text, 1, NETMASK_UNKNOWN):
            reason = _text(pcap.pcap_geterr(self._handle))
            raise UsageError(f"the filter {expression!r} is invalid: {reason}")
        try:
            # libpcap drops packets from before the filter was set.
            if pcap.pcap_setfilter(self._handle, ctypes.byref(program)):
                raise self._refused(_text(pcap.pcap_geterr(self._handle)))
        finally:
            pcap.pcap_freecode(ctypes.byref(program))

    def _refused(self, reason: str) -> CaptureError:
        return CaptureError(f"{self.name}: cannot be captured ({reason})")

    def _unknown(self) -> CaptureError:
        return CaptureError(f"{self.name}: there is no such interface; there are: {', '.join(interface_names())}")


class MemoryFile:
    """A capture file in memory that libpcap writes packets of an open handle to.

    It has the size of the largest batch so far: some BATCH_BYTES and AT_ONCE packets. Raises OSError if there is not
    enough memory, or if libpcap has no number for the link type in files.
    """

    def __init__(self, pcap: Any, handle: Any) -> None:
        self._pcap = pcap
        self._handle = handle
        # open_memstream(3) is POSIX: glibc, musl, macOS since 10.13, all BSDs.
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        libc.open_memstream.restype = ctypes.c_void_p
        libc.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        libc.free.argtypes = libc.rewind.argtypes = libc.fclose.argtypes = [ctypes.c_void_p]
        libc.free.restype = libc.rewind.restype = None
        self._address = ctypes.c_void_p()
        self._length = ctypes.c_size_t()
        stream = libc.open_memstream(ctypes.addressof(self._address), ctypes.addressof(self._length))
        if not stream:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._stream: int = stream
        dump_fopen = _declared(pcap, "pcap_dump_fopen", pcap.pcap_dump_open.restype, ctypes.c_void_p, ctypes.c_void_p)
        self._dumper = dump_fopen(handle, stream)
        if not self._dumper:
            libc.fclose(stream)
            libc.free(self._address)
            raise OSError(_text(pcap.pcap_geterr(handle)))
        # Not a Python function: libpcap calls its own for each packet.
        self._write = ctypes.cast(pcap.pcap_dump, pcap.pcap_handler)
        self._user = ctypes.cast(self._dumper, ctypes.POINTER(ctypes.c_ubyte))
        self.header: Final = self.content()
        """The file's header: byte order, unit of time stamps, link type as in files."""
        assert len(self.header) == HEADER_SIZE

    @property
    def size(self) -> int:
        """Bytes written."""
        return int(self._pcap.pcap_dump_ftell(self._dumper))

    def rewind(self) -> None:
        """Start over, overwriting earlier data (also after an error)."""
        self._libc.rewind(self._stream)

    def write_packets(self, count: int) -> int:
        """Write up to `count` packets; returns their number, negative on an error of libpcap."""
        return int(self._pcap.pcap_dispatch(self._handle, count, self._write, self._user))

    def content(self) -> bytes:
        """Data written since the last `rewind`, or the header."""
        # A failed flush does not matter, only the existing data.
        self._pcap.pcap_dump_flush(self._dumper)
        size = min(self.size, self._length.value)
        return ctypes.string_at(self._address.value, size) if self._address.value else b""

    def close(self) -> None:
        """Free the memory."""
        self._pcap.pcap_dump_close(self._dumper)
        self._libc.free(self._address)


def _binding(interface: str) -> Any:
    """The binding of libpcap. Raises MissingPartError, which names an alternative."""
    try:
        return libpcap()
    except ImportError:
        needs = "scapy here (pip install 'kafkasniff[scapy]')"
    except OSError:
        needs = "libpcap, which is not installed"
    raise MissingPartError(
        f"live capture needs {needs}; or use: tcpdump -i {interface} -U -w - | kafkasniff decode -"
    ) from None


def _declared(pcap: Any, name: str, *types: Any) -> Any:
    """A function of libpcap, (result, arguments …) as `types`, that not every release of scapy declares."""
    # From the same library that scapy has loaded: handles of one copy of libpcap mean nothing to another.
    return ctypes.CFUNCTYPE(*types)((name, pcap._lib))


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").strip()
