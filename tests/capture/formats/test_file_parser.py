"""Both capture formats skip corrupt places alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.capture.files import START, enhanced, interface, pcap_header, pcap_record, section
from tests.capture.reading import read_bytes
from tests.capture.segments import frames, numbers

Writer = tuple[bytes, Callable[[bytes, int], bytes], str]

FORMATS: dict[str, Writer] = {
    "pcap": (pcap_header(), lambda data, at: pcap_record(data, START + at * 1000), "packet record"),
    "pcapng": (section() + interface(), lambda data, at: enhanced(data, START // 1000 + at), "block"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_garbage_between_records_is_skipped(name: str) -> None:
    head, write, noun = FORMATS[name]
    parts = [write(one, at) for at, one in enumerate(frames(8))]
    garbage = b"\xff" * 96
    before = head + b"".join(parts[:3])
    result = read_bytes(before + garbage + b"".join(parts[3:]))
    assert numbers(result.payloads) == list(range(8))
    (note,) = result.notes
    assert (note.value.kind, note.value.bytes, note.value.packet) == ("capture-broken", len(garbage), 3)
    assert f"no {noun} at byte {len(before)} (after packet 3); {len(garbage)} bytes skipped" in note.value.detail


@pytest.mark.parametrize("name", FORMATS)
def test_without_a_valid_record_the_file_ends_at_the_damage(name: str) -> None:
    head, write, _ = FORMATS[name]
    parts = [write(one, at) for at, one in enumerate(frames(3))]
    result = read_bytes(head + b"".join(parts) + b"\xff" * 4096)
    assert numbers(result.payloads) == [0, 1, 2]
    (note,) = result.notes
    assert "the rest of the file cannot be read" in note.value.detail
