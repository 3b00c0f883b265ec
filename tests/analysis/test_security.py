"""Cut captures, filters and bounds of the security view. `reviewed` has the answers about whole captures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafkasniff.analysis.security import SecurityView
from kafkasniff.capture import open_captures
from kafkasniff.filters import Predicate
from kafkasniff.filters.expression import parse_filter
from kafkasniff.packets import PacketBatch
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.read import read_packets

CAPTURES = ROOT / "captures"


def view_of(batches: Iterable[PacketBatch], predicate: Predicate | None = None) -> SecurityView:
    found = SecurityView()
    rows = CountedRows(ExportOptions(tables=("exchanges", "connections")), found.update, predicate=predicate)
    for one in batches:
        rows.feed(one)
    rows.end()
    return found


def seen(*paths: Path, predicate: Predicate | None = None) -> SecurityView:
    with open_captures([str(path) for path in paths]) as source:
        return view_of(source, predicate)


def test_the_middle_of_a_connection_claims_nothing() -> None:
    packets = read_packets(CAPTURES / "java-sasl.pcap")
    # From here on the first connections are authenticated.
    start = 15
    found = view_of([batch(packets[start:], range(start, len(packets)))])
    (cut,) = [one for one in found.identities() if one.authentication == "unknown"]
    assert (cut.principal, cut.connections, cut.client_ids) == (None, 1, ("sasl-plain",))


def test_filters_show_connections_of_selected_exchanges() -> None:
    """Authentication counts though it is not selected itself; the wrong passwords have no Produce."""
    path = CAPTURES / "java-sasl.pcap"
    found = seen(path, predicate=parse_filter('api == "Produce"'))
    assert {(one.principal, one.mechanism, one.authentication) for one in found.identities()} == {
        ("bob", "SCRAM-SHA-256", "succeeded"),
        ("bob", "SCRAM-SHA-512", "succeeded"),
    }
    assert sum(one.connections for one in found.identities()) == found.connections < seen(path).connections
    assert not seen(path, predicate=parse_filter('api == "Vote"')).identities()
