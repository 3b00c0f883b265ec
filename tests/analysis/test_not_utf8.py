"""An error message that is not UTF-8 is bytes in a body: every analysis shows it, and none ends because of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.findings import LiveFindings
from kafkasniff.live.top import TopModel
from tests.cli.console import kafkasniff
from tests.craft.batches import batch
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.craft.write import write_pcap

MESSAGE = b"\xff\xfe" + b"not UTF-8 " * 40
SHOWN = "\ufffd\ufffdnot UTF-8"


def packets() -> list[Packet]:
    """A group id that is refused, and a topic that is not created, with such a message."""
    talk = Conversation(client=("10.0.0.5", 50_000), broker=("10.0.0.9", 9092))
    talk.handshake()
    coordinator = {"key": b"orders", "error_code": 24, "error_message": MESSAGE}
    topic = {"name": b"payments", "error_code": 42, "error_message": MESSAGE}
    talk.exchange(
        request_bytes(10, 4, 1, coordinator_keys=[b"orders"]), response_bytes(10, 4, 1, coordinators=[coordinator])
    )
    talk.exchange(request_bytes(19, 4, 2, topics=[{"name": b"payments"}]), response_bytes(19, 4, 2, topics=[topic]))
    talk.close()
    return talk.packets


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write_pcap(tmp_path / "capture.pcap", packets())


def test_analyses_and_exports(capture: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    assert kafkasniff("export", capture, "-o", tables, "--jobs", 1).code == 0
    for source in (capture, tables):
        checked = kafkasniff("check", source)
        assert (checked.code, checked.err.count("Traceback")) == (1, 0), checked.err
        assert SHOWN in " ".join(checked.text.split())
        assert kafkasniff("stats", source).code == 0
    for command in ("timing", "security", "audit"):
        target = ("--target", "4.0") if command == "audit" else ()
        assert kafkasniff(command, capture, *target).code in (0, 1)


@pytest.mark.extended
def test_the_page(capture: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert kafkasniff("report", capture, "-o", page).code == 0
    assert SHOWN in page.read_text()


def test_the_screen() -> None:
    inspector = Inspector(exchanges=True, connections=True, network="links")
    model, findings = TopModel(), LiveFindings(inspector, lambda: False)
    for event in (*inspector.feed(batch(packets())), *inspector.close()):
        model.take(event)
        findings.take(event)
    findings.look()
    assert sum(row.errors for row in model.snapshot().clients) == 2
