"""`tls-failures`: captures that show it, and captures that only look like it."""

from __future__ import annotations

from pathlib import Path

from kafkasniff.analysis.detectors import run
from tests.analysis.detectors import network_scenes as scenes
from tests.analysis.detectors.known_answers import Case, ignores
from tests.analysis.detectors.network_answers import finds, survives_a_cut
from tests.analysis.detectors.talks import capture_of
from tests.cli.console import kafkasniff

CASES = [
    Case(
        "tls-failures",
        scenes.untrusting,
        "error",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "authority"},
        "2 TLS handshakes of 10.0.0.5 with 10.0.0.9:9093 failed: the client does not trust the authority of the "
        "broker's certificate (alert unknown_ca)",
        [(1, None), (2, None)],
    ),
    Case(
        "tls-failures",
        scenes.refusing_with_an_encrypted_alert,
        "warning",
        2,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "certificate"},
        "failed: probably the client refuses the broker's certificate (by the size of the last record",
        [(1, None), (2, None)],
    ),
    Case(
        "tls-failures",
        scenes.leaving_in_the_handshake,
        "warning",
        3,
        {"client_id": None, "client_ip": "10.0.0.5", "broker": "10.0.0.9:9093", "cause": "unknown"},
        "without an alert; cause unknown",
        [(1, None), (2, None), (3, None)],
    ),
]
LOOK_ALIKES = [
    ("tls-failures", scenes.tls_that_works),
    ("tls-failures", scenes.tls_at_plaintext),
]

test_finds = finds(CASES)
test_ignores = ignores(LOOK_ALIKES)
test_survives_a_cut = survives_a_cut(CASES[0])


def test_one_direction_of_tls(tmp_path: Path) -> None:
    """The broker's direction is missing: no claim that it did not answer, with or without packets."""
    talk = scenes.secure(("client", scenes.client_hello()))
    talk.packets = [packet for packet in talk.packets if packet.src == "10.0.0.5"]
    path = capture_of(tmp_path / "half.pcap", [scenes.plain(), talk])
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    for source in (path, tmp_path / "out"):
        assert run([str(source)], only=["wrong-protocol", "tls-failures"]).findings == []
