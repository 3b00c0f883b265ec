"""CaptureReader: one capture file or pipe, from its bytes to its packets, in its own order."""

from __future__ import annotations

from typing import Final

from kafkasniff.capture.formats import pcap, pcapng
from kafkasniff.capture.formats.bytestream import ByteStream, Failure
from kafkasniff.capture.formats.pcap import PcapParser
from kafkasniff.capture.formats.pcapng import PcapngParser
from kafkasniff.capture.formats.raw import Interface, Parsed
from kafkasniff.errors import CaptureError
from kafkasniff.model import Problem

__all__ = ["BROKEN_KINDS", "CaptureReader", "end_problem"]

FIRST_READ: Final = 64 << 10
"""Bytes requested with the file header."""

BROKEN_KINDS: Final = frozenset(("capture-cut", "capture-broken"))
"""Kinds of problems that show that a capture itself is damaged."""
_BESIDE: Final = (".index", ".timeindex", ".txnindex", ".snapshot")
"""Names of what a broker keeps next to a log segment, without records."""


class CaptureReader:
    """Packets of one capture. Raises CaptureError if it is not a capture at all; then the stream is closed."""

    def __init__(self, stream: ByteStream, name: str, capture: int) -> None:
        self.name = name
        self.stream = stream
        self._need = 1
        self._fresh = True
        self._done = False
        head = stream.extend(b"", pcap.HEADER_SIZE, FIRST_READ)
        self._parser: PcapParser | PcapngParser
        if pcap.is_pcap(head) and len(head) >= pcap.HEADER_SIZE:
            self._parser = PcapParser(head[: pcap.HEADER_SIZE], name, capture)
            self._tail, self._base = head[pcap.HEADER_SIZE :], pcap.HEADER_SIZE
        elif pcapng.is_pcapng(head) and pcapng.byte_order(head) is not None:
            self._parser = PcapngParser(head, name, capture)
            self._tail, self._base = head, 0
        else:
            failure = stream.failure
            stream.close()
            if failure is not None:
                raise CaptureError(f"{name}: is not a readable capture: {failure.reason}")
            if len(head) >= 4 and (pcap.is_pcap(head) or pcapng.is_pcapng(head)):
                raise CaptureError(f"{name}: is truncated or corrupt within its file header; capture it again")
            advice = "its records are in the .log file" if name.endswith(_BESIDE) else "editcap may convert it"
            raise CaptureError(f"{name}: is not a capture (neither pcap nor pcapng); {advice}")

    def interface(self, index: int) -> Interface:
        """The interface that packets of the capture refer to by this index."""
        return self._parser.interfaces[index]

    def read(self, size: int) -> Parsed | None:
        """Packets and notes of about the next `size` bytes; None at the end."""
        while not self._done:
            if self._fresh:
                # Bytes read with the file header: a pipe may have no more for now.
                self._fresh = False
                data, ended = self._tail, False
            else:
                data = self.stream.extend(self._tail, self._need, size)
                ended = len(data) == len(self._tail)
            parsed = self._parser.parse(data, self._base, ended=ended)
            self._base += parsed.consumed
            self._tail = data[parsed.consumed :]
            self._need = parsed.need
            if ended or parsed.given_up:
                self._finish(parsed)
            if parsed.packets is not None or parsed.notes:
                return parsed
        return None

    def _finish(self, parsed: Parsed) -> None:
        self._done = True
        packets = self._parser.packets
        left = 0 if parsed.given_up else len(self._tail)
        problem = end_problem(self.name, self.stream.failure, packets=packets, position=self._base, left=left)
        if problem is not None:
            parsed.notes.append((packets + 1, problem))
        if self.stream.failure is not None and self.stream.failure.times is not None:
            parsed.notes.append((packets + 1, self.stream.failure.times))

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def end_problem(name: str, failure: Failure | None, *, packets: int, position: int, left: int) -> Problem | None:
    """The report on a capture's end: why its bytes ended, or that `left` of them are an incomplete packet.

    `packets` were read up to the byte at `position`.
    """
    if failure is not None:
        kind = failure.kind
        reason = failure.reason
        if failure.early:
            reason += f"; nothing after packet {packets} (byte {position}) can be read"
    elif left:
        kind = "capture-cut"
        reason = f"it ends within packet {packets + 1} (at byte {position}, {left} bytes of it left)"
    else:
        return None
    return Problem(kind, f"{name}: {reason}", capture=name, packet=packets or None)
