"""The share of the traffic that was decoded: the same in all commands, for captures, exports and any batches."""

from __future__ import annotations

import functools
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.detectors import run
from kafkasniff.analysis.detectors.undecoded import all_clear
from kafkasniff.analysis.visibility import OtherProtocols, Undecoded, VisibleTraffic
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Problem
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.write import pcap_bytes

FAULTS = ROOT / "captures" / "faults"


def capture(name: str) -> str:
    return str(FAULTS / f"{name}.pcap")


@functools.cache
def visible(name: str) -> VisibleTraffic:
    return run([capture(name)]).visible


def test_requests_beyond_the_bound_are_not_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection keeps a bounded number of requests; those dropped do not count as unanswered."""
    monkeypatch.setattr("tests.oracle.kafka.exchange.MAX_OUTSTANDING", 2)
    inspector = Inspector()
    found = [*inspector.feed(batch(read_packets(Path(capture("requests-only"))))), *inspector.close()]
    assert [one.status for one in found if isinstance(one, Exchange)] == ["lost"] * 79
    assert {one.kind for one in found if isinstance(one, Problem)} == {"one-direction"}


def test_packets_of_an_unknown_link_type(tmp_path: Path) -> None:
    """Link type 147 (USER0) is unknown: without a single connection the answer is not an all-clear."""
    data = bytearray(pcap_bytes([Packet(1, "10.0.0.5", 5, "10.0.0.9", 9092, 1, 1, 16, b"x")]))
    data[20:24] = (147).to_bytes(4, "little")
    path = tmp_path / "user.pcap"
    path.write_bytes(data)
    result = kafkasniff("check", path)
    assert result.code == Exit.FINDINGS
    assert "none of the traffic could be decoded; not decoded: packets that could not be read" in result.text


def test_a_cut_file_is_no_all_clear() -> None:
    result = kafkasniff("check", "--only", "late-answers", capture("cut-file"))
    assert result.code == Exit.BROKEN
    assert result.lines[0] == f"no problems found in the readable part in {capture('cut-file')}"
    assert result.lines[2].startswith("not decoded: a capture is truncated, damaged, skipped or interrupted")
    assert "copy the file again" in result.err
    assert "copy the file again" in kafkasniff("stats", capture("cut-file")).err


def test_an_export_of_an_earlier_release(tmp_path: Path) -> None:
    """It lacks two columns, so TLS counts as another protocol."""
    kafkasniff("export", capture("tls-without-keys"), "-o", tmp_path / "out")
    for file in (tmp_path / "out" / "connections").rglob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["protocol", "captured"]), file)
    found = run([str(tmp_path / "out")]).visible
    assert [one.reason for one in found.undecoded] == ["other-protocols"]


def traffic(share: float | None, *undecoded: Undecoded) -> VisibleTraffic:
    decoded = round(1000 * (share or 0))
    return VisibleTraffic(share, 4, 3, 1000, decoded, list(undecoded), OtherProtocols(0, 0, []))


TLS = Undecoded("tls", "TLS without keys", 1, 630, 0.63, "give the session secrets with --keylog FILE")
CUT = Undecoded("capture-cut", "a capture is cut", None, None, None, "copy the file again")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "no problems found"),
        (traffic(1.0), "no problems found"),
        (traffic(0.9, TLS), "no problems found"),
        (traffic(0.89, TLS), "nothing found in the 89% of the traffic that could be decoded"),
        (traffic(0.004, TLS), "nothing found in the 0.4% of the traffic that could be decoded"),
        (traffic(0.0, TLS), "nothing could be decoded"),
        (traffic(1.0, CUT), "no problems found in the readable part"),
        (traffic(None), "no Kafka traffic"),
    ],
)
def test_all_clear(seen: VisibleTraffic | None, said: str) -> None:
    assert all_clear(seen) == said
