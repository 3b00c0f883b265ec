"""Detectors of trouble between clients and brokers on shipped captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import run
from tests.analysis.detectors.network_answers import plain
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

ONLY = [
    "broker-gone", "connection-churn", "mixed-broker-versions", "sasl-failures", "skewed-partitions", "slow-broker",
    "tls-failures", "transport-trouble", "unreached-listeners", "wrong-protocol",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("java-sasl", {"sasl-failures": {None}}),
        ("kraft-2.8", {"broker-gone": {None}}),
        ("java-errors", {}),
        ("tls/tls-plaintext-client", {"wrong-protocol": {"answer-not-kafka"}}),
        ("tls/tls-plaintext-listener", {"wrong-protocol": {"tls-unanswered"}}),
        ("tls/tls-refused", {"tls-failures": {None}}),
    ],
)
def test_real_captures(name: str, expected: dict[str, set[str | None]], tmp_path: Path) -> None:
    """The findings that their names promise, and no others, both in a capture and in its export."""
    path = ROOT / "captures" / f"{name}.pcap"
    captured = run([str(path)], only=ONLY).findings
    found: dict[str, set[str | None]] = {}
    for one in captured:
        found.setdefault(one.detector, set()).add(one.subject.get("kind"))
    assert found == expected
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    by_rows = [one for one in captured if one.detector != "broker-gone"]  # only packets show that
    assert [*map(plain, by_rows)] == run([str(tmp_path / "out")], only=ONLY).findings
