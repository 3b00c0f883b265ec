"""The pairs of quantities, each with the bounds of its numbers and what makes a capture of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.fuzz.costs import captures, contents, findings, streams


class Quantity(NamedTuple):
    """A number that a capture is made of, lowest to highest."""

    name: str
    low: int
    high: int
    worst: int
    """The one at which earlier code was furthest from linear, or which runs most of its code."""


class Pair(NamedTuple):
    """Quantities that meet in a capture."""

    name: str
    make: Callable[..., bytes]
    """`make(size, *values)`: a capture file of about `size` bytes; the same arguments give the same bytes."""
    quantities: tuple[Quantity, ...]
    expands: int = 1
    """Above 1: a codec makes far more of its bytes, and all of that is shown. Inputs are this many times shorter."""

    @property
    def worst(self) -> tuple[int, ...]:
        """The worst numbers."""
        return tuple(one.worst for one in self.quantities)


def _pair(name: str, make: Callable[..., bytes], expands: int = 1, **numbers: tuple[int, int, int]) -> Pair:
    return Pair(name, make, tuple(Quantity(quantity, *ends) for quantity, ends in numbers.items()), expands)


PAIRS: Final = {
    pair.name: pair
    for pair in (
        _pair(
            "gaps-outstanding",
            streams.gaps_outstanding,
            outstanding=(1, 40_000, 40_000),
            ids=(1, 40_000, 40_000),
            hole=(1, 1_000_000, 1),
            together=(1, 1_000, 5),
        ),
        _pair("segments-holes", streams.segments_holes, segment=(1, 1_448, 1), run=(1, 1_000, 2), backwards=(0, 1, 1)),
        _pair(
            "segments-candidates",
            streams.segments_candidates,
            segment=(1, 1_448, 1),
            spacing=(1, 10_000, 13),
            stated=(8, 100_000_000, 100_000_000),
        ),
        _pair("segments-repeats", streams.repeats_segments, repeats=(1, 10_000, 4), segment=(1, 1_448, 20)),
        _pair(
            "requests-early", streams.early_requests, early=(1, 20_000, 20_000), reverse=(0, 1, 1), hole=(0, 1_000, 0)
        ),
        _pair("connections-overhead", streams.overhead_connections, exchanges=(1, 1_000, 1), kind=(0, 3, 3)),
        _pair(
            "connections-unfinished",
            streams.unfinished_connections,
            stated=(100, 100_000_000, 100_000_000),
            segment=(1, 1_448, 1),
        ),
        _pair("connections-tokens", streams.tokens_connections, token=(0, 60_000, 26), tokens=(1, 10_000, 10_000)),
        _pair("dates-rows", streams.dates_rows, seconds=(0, 40_000_000, 86_400), exchanges=(1, 1_000, 1)),
        _pair(
            "ratio-messages",
            contents.ratio_messages,
            expands=64,
            records=(1, 2_000_000, 1),
            value=(0, 10_000_000, 100),
            codec=(0, 4, 4),
            batches=(1, 1_000, 1),
        ),
        _pair("nested-records", contents.nested_records, depth=(0, 5, 1), records=(1, 1_000_000, 10), codec=(1, 3, 1)),
        _pair(
            "headers-records",
            contents.headers_records,
            headers=(0, 1_000_000, 10),
            records=(1, 1_000_000, 10),
            codec=(0, 4, 0),
        ),
        _pair("elements-messages", contents.elements_messages, topics=(0, 50_000, 5_000), partitions=(0, 50_000, 1)),
        _pair("tags-messages", contents.tags_messages, tags=(0, 200_000, 1_000), value=(0, 1_000, 0)),
        _pair("problems-messages", contents.problems_exchanges, batches=(1, 10_000, 10), kind=(0, 3, 0)),
        _pair(
            "topics-fetches",
            contents.topics_fetches,
            topics=(1, 30_000, 100),
            together=(1, 1_000, 20),
            changed=(0, 100, 0),
        ),
        _pair("sessions-partitions", contents.sessions_partitions, partitions=(1, 20_000, 10), fetches=(0, 10_000, 10)),
        _pair("names-requests", contents.names_requests, length=(0, 30_000, 10), requests=(1, 10_000, 10_000)),
        _pair("names-topics", contents.topics_names, length=(1, 249, 1), topics=(1, 20_000, 30)),
        _pair("connections-records", captures.records_connections, length=(0, 16_000, 0), records=(1, 50_000, 50_000)),
        _pair(
            "datagrams-fragments",
            captures.fragments_datagrams,
            fragments=(1, 8_000, 8_000),
            length=(1, 180, 1),
            overlap=(0, 1, 0),
        ),
        _pair("interfaces-options", captures.interfaces_options, interfaces=(1, 20_000, 500), option=(0, 60_000, 0)),
        _pair("packets-tunnels", captures.tunnels_packets, depth=(0, 12, 3), length=(0, 1_400, 10)),
        _pair("topics-errors", findings.topics_errors, topics=(1, 20_000, 100), kind=(0, 5, 0), again=(0, 1, 0)),
        _pair("clients-errors", findings.clients_errors, exchanges=(1, 10_000, 1), kind=(0, 4, 1)),
        _pair(
            "attempts-endpoints",
            findings.attempts_endpoints,
            brokers=(1, 60_000, 60_000),
            answer=(0, 2, 1),
            repeats=(1, 5, 1),
        ),
        _pair(
            "segments-overlaps", findings.segments_overlaps, segment=(1, 1_448, 20), back=(0, 1_448, 19), hole=(0, 1, 1)
        ),
        _pair("members-groups", findings.members_groups, groups=(1, 10_000, 10), members=(1, 10_000, 1_000)),
        _pair("leaders-topics", findings.leaders_topics, topics=(1, 20_000, 100), brokers=(1, 1_000, 10)),
        _pair("connections-unanswered", findings.unanswered_connections, requests=(1, 10_000, 1), end=(0, 2, 2)),
        _pair(
            "producers-batches",
            findings.producers_batches,
            producers=(1, 10_000, 1),
            sequences=(1, 1_000, 1_000),
            refused=(0, 1, 1),
        ),
    )
}
"""All pairs by name, in the order of the table."""
