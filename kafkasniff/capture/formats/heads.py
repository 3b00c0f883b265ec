"""Whether a file is a capture, by its first bytes or by its name."""

from __future__ import annotations

import re
from typing import Final

from kafkasniff.capture.formats.compressed import MAGIC_SIZE, inflater_for
from kafkasniff.capture.formats.log_segment import is_segment
from kafkasniff.capture.formats.pcap import HEADER_SIZE, is_pcap
from kafkasniff.capture.formats.pcapng import is_pcapng
from kafkasniff.capture.formats.request_log import is_request_log

__all__ = ["HEAD_BYTES", "begins_capture", "named_like_capture"]

HEAD_BYTES: Final = 64 << 10
"""Bytes of a file that decide, in compressed form if it is compressed."""

_NAME: Final = re.compile(r"\.(pcapng|pcap|cap)\d*(\.(gz|zst|lz4|xz|bz2))?\Z", re.IGNORECASE)
"""The end of a name; tcpdump adds a number when it rotates."""


def begins_capture(head: bytes) -> bool:
    """Whether a file that begins with these bytes (HEAD_BYTES of them, or all) is a capture, compressed or not."""
    inflater = inflater_for(head) if len(head) >= MAGIC_SIZE else None
    if inflater is not None:
        inflater.give(head)
        head = inflater.take()
    return is_segment(head) or is_request_log(head) or (len(head) >= HEADER_SIZE and (is_pcap(head) or is_pcapng(head)))


def named_like_capture(name: str) -> bool:
    """Whether a file should be a capture, by its name."""
    return _NAME.search(name) is not None
