"""The checksum of record batches, for each source of its function."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.records import checksum


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4, whose bytes are in the order of the wire.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_sums(data: bytes, crc: int) -> None:
    assert checksum.crc32c(data) == crc
    assert checksum.crc32c(memoryview(b"x" + data)[1:]) == crc


def test_a_package_without_that_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_EXTENSION", "crc32c._not_there")
    found = checksum._load()
    assert found(b"123456789") == 0xE3069283
