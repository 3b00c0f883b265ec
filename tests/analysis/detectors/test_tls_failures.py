"""`tls-failures`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import run
from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.network_answers import Fine, NetworkCase, check_cut, check_fine, check_network, name_of
from tests.analysis.detectors.talks import capture_of
from tests.cli.console import kafkasniff

CASES = [
    NetworkCase(
        "tls-failures",
        scenes.untrusting,
        "error",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "authority"},
        "2 TLS handshakes of 10.0.0.5 with 10.0.0.9:9093 failed: the client does not trust the authority of the "
        "broker's certificate (alert unknown_ca)",
        [(1, None), (2, None)],
    ),
    NetworkCase(
        "tls-failures",
        scenes.refusing_with_an_encrypted_alert,
        "warning",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "certificate"},
        "failed: probably the client refuses the broker's certificate (by the size of the last record",
        [(1, None), (2, None)],
    ),
    NetworkCase(
        "tls-failures",
        scenes.leaving_in_the_handshake,
        "warning",
        3,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "unknown"},
        "without an alert; cause unknown",
        [(1, None), (2, None), (3, None)],
    ),
]
FINE: list[Fine] = [
    ("tls-failures", scenes.tls_that_works),
    ("tls-failures", scenes.tls_at_plaintext),
]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_is_there_is_found(case: NetworkCase, tmp_path: Path) -> None:
    check_network(case, tmp_path)


@pytest.mark.parametrize("fine", FINE, ids=name_of)
def test_what_is_fine_is_not(fine: Fine, tmp_path: Path) -> None:
    check_fine(fine, tmp_path)


def test_a_capture_that_is_cut(tmp_path: Path) -> None:
    check_cut(CASES[0], tmp_path)


def test_one_direction_of_tls(tmp_path: Path) -> None:
    """The broker's direction is missing: no claim that it did not answer, with or without packets."""
    talk = scenes.secure(("client", scenes.client_hello()))
    talk.packets = [packet for packet in talk.packets if packet.src == "10.0.0.5"]
    path = capture_of(tmp_path / "half.pcap", [scenes.plain(), talk])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    for source in (path, tmp_path / "out"):
        assert run([str(source)], only=["wrong-protocol", "tls-failures"]).findings == []
