"""The store that takes its time: it is one that captures can be read from, and it counts."""

from __future__ import annotations

import pytest

from benchmarks.delayed_store import CAPTURE, CREDENTIALS, address_of, delayed_store
from kafkasniff.capture.timeline.locations import find_captures, open_capture


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def test_captures_are_listed_and_read() -> None:
    content = CAPTURE.read_bytes()
    with delayed_store(1_203, 0.0, content) as (port, stopped):
        files = find_captures([address_of(port)], by_name=True)
        assert [file.name for file in files] == [f"s3://b/day/{number:07}.pcap" for number in range(1_203)]
        assert {file.size for file in files} == {len(content)}
        assert open_capture(files[1_200])(100, 50) == content[100:150]
        found = stopped()
    assert found["GET"] == 1
    assert found["list"] >= 2


def test_objects_hold_their_own_contents() -> None:
    content = CAPTURE.read_bytes()
    with delayed_store(2, 0.0, content, content[:1000]) as (port, _):
        files = find_captures([address_of(port)], by_name=True)
        assert [file.size for file in files] == [len(content), 1000]
        assert open_capture(files[1])(900, 100) == content[900:1000]
