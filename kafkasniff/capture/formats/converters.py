"""What turns other files into captures: compressed captures, log segments and request logs of brokers."""

from __future__ import annotations

from typing import Final

from kafkasniff.capture.formats.compressed import MAGIC_SIZE, Inflater, inflater_for
from kafkasniff.capture.formats.log_segment import SEGMENT_HEAD, SegmentPackets, is_segment
from kafkasniff.capture.formats.made_packets import Converter
from kafkasniff.capture.formats.request_log import LOG_HEAD, LogPackets, is_request_log, is_text

__all__ = ["HEAD_SIZE", "Converter", "converter_for", "undecided"]

HEAD_SIZE: Final = LOG_HEAD
"""Bytes that decide what a file is."""


class _Inflated(Converter):
    """Decompresses a file, and converts what was compressed."""

    def __init__(self, inflater: Inflater, name: str) -> None:
        self._inflater = inflater
        self._name = name
        self._head = b""
        """The first bytes, until they show what they are."""
        self._inner: Converter | None = None
        self._decided = self._ended = self._inner_ended = False

    def give(self, data: bytes) -> None:
        """See `Converter`."""
        self._inflater.give(data)

    def finish(self) -> None:
        """See `Converter`."""
        self._inflater.finish()
        self._ended = True

    def take(self) -> bytes:
        """See `Converter`."""
        while True:
            if self._inner is not None and (data := self._inner.take()):
                return data
            plain = self._inflater.take()
            over = not plain and (self._ended or self._inflater.failure is not None)
            if not self._decided:
                self._head += plain
                if undecided(self._head) and not over:
                    if plain:
                        continue
                    return b""
                self._decided = True
                self._inner = _converter_of_plain(self._head, self._name)
                plain, self._head = self._head, b""
            if self._inner is None or not (plain or over):
                if over and not plain:
                    self.failure, self.cut = self._inflater.failure, self._inflater.cut
                return plain
            if plain:
                self._inner.give(plain)
            elif not self._inner_ended:
                self._inner_ended = True
                self._inner.finish()
            else:
                ended: Inflater | Converter = self._inner if self._inflater.failure is None else self._inflater
                self.failure, self.cut = ended.failure, ended.cut
                self.damaged, self.omitted = self._inner.damaged, self._inner.omitted
                self.times = self._inner.times
                return b""


def undecided(head: bytes) -> bool:
    """Whether more bytes than these first ones are needed to see what a file is, if it has more."""
    if len(head) < MAGIC_SIZE:
        return True
    if head[0] == 0:
        # No capture begins like this.
        return len(head) < SEGMENT_HEAD
    return len(head) < LOG_HEAD and is_text(head) and not is_request_log(head) and inflater_for(head) is None


def converter_for(head: bytes, name: str) -> Converter | None:
    """What turns a file that begins with `head` (HEAD_SIZE bytes, or all) into a capture; None: it is one."""
    inflater = inflater_for(head) if len(head) >= MAGIC_SIZE else None
    return _converter_of_plain(head, name) if inflater is None else _Inflated(inflater, name)


def _converter_of_plain(head: bytes, name: str) -> Converter | None:
    if is_segment(head):
        return SegmentPackets(name)
    return LogPackets() if is_request_log(head) else None
