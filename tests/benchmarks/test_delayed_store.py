"""The store that takes its time: it is one that captures can be read from, and it counts."""

from __future__ import annotations

import pytest

from benchmarks.delayed_store import CAPTURE, delayed_store
from kafkasniff.capture.timeline.locations import find_captures, open_capture


def test_captures_are_listed_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    content = CAPTURE.read_bytes()
    with delayed_store(1_203, 0.0, content) as (port, stopped):
        address = f"s3://b/day?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        files = find_captures([address], by_name=True)
        assert [file.name for file in files] == [f"s3://b/day/{number:07}.pcap" for number in range(1_203)]
        assert {file.size for file in files} == {len(content)}
        assert open_capture(files[1_200])(100, 50) == content[100:150]
        found = stopped()
    assert found["GET"] == 1
    assert found["list"] >= 2
