from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.wire import Wire
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A producer, a consumer and a connection that is not Kafka: 46 messages."""
    path = tmp_path_factory.mktemp("captures") / "mixed.pcap"
    path.write_bytes(pcap_bytes(mixed(), nanoseconds=True))
    return path


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """What `live` captures from."""
    source = Wire()
    monkeypatch.setattr("kafkasniff.capture.live.live.open_live", source.open)
    return source
