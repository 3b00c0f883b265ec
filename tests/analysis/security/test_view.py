"""Cut captures, filters and bounds of the security view. `reviewed` has the answers about whole captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.security import SecurityView, view
from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.filters import Selector
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange
from tests.analysis.security.test_logins import handshake
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.read import read_packets

CAPTURES = ROOT / "captures"


def seen(*paths: Path, selector: Selector | None = None) -> SecurityView:
    found = SecurityView(selector)
    inspector = Inspector(records="skip", exchanges=True, connections=True)
    with open_captures([str(path) for path in paths]) as source:
        for batch in source:
            found.feed(inspector.feed(batch))
    found.feed(inspector.close())
    return found


def test_the_middle_of_a_connection_claims_nothing() -> None:
    packets = read_packets(CAPTURES / "java-sasl.pcap")
    # From here on the first connections are authenticated.
    start = 15
    found = SecurityView()
    inspector = Inspector(records="skip", exchanges=True, connections=True)
    found.feed(inspector.feed(batch(packets[start:], range(start, len(packets)))))
    found.feed(inspector.close())
    (cut,) = [one for one in found.identities() if one.authentication == "unknown"]
    assert (cut.principal, cut.connections, cut.client_ids) == (None, 1, ("sasl-plain",))
    assert all(cut.examples[0][1] != one.connection for finding in found.findings() for one in finding.evidence)


def test_authentication_of_open_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_OPEN", 2)
    found = SecurityView()
    for number in range(4):
        one = handshake("PLAIN")
        found.feed([Exchange(one.exchange, number, one.status, one.request, one.response)])
    assert len(found._logins) == 2
    assert any("2 connections was forgotten" in note for note in found.notes())


def test_filters_show_connections_of_selected_exchanges() -> None:
    """Authentication counts though it is not selected itself; the wrong passwords have no Produce."""
    path = CAPTURES / "java-sasl.pcap"
    found = seen(path, selector=Selector(parse_filter('api == "Produce"')))
    assert {(one.principal, one.mechanism, one.authentication) for one in found.identities()} == {
        ("bob", "SCRAM-SHA-256", "succeeded"),
        ("bob", "SCRAM-SHA-512", "succeeded"),
    }
    assert sum(one.connections for one in found.identities()) == found.connections < seen(path).connections
    assert not seen(path, selector=Selector(parse_filter('api == "Vote"'))).identities()
