"""The pairs of quantities, each with the bounds of its numbers and what makes a capture of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.fuzz.costs import captures, contents, findings, streams

__all__ = ["PAIRS", "Pair", "Quantity"]


class Quantity(NamedTuple):
    """A number that a capture is made of, lowest to highest."""

    name: str
    low: int
    high: int


class Pair(NamedTuple):
    """Quantities that meet in a capture."""

    name: str
    make: Callable[..., bytes]
    """`make(size, *values)`: a capture file of about `size` bytes; the same arguments give the same bytes."""
    worst: tuple[int, ...]
    """The numbers at which earlier code was furthest from linear, or which run most of its code."""
    quantities: tuple[Quantity, ...]
    expands: int = 1
    """Above 1: a codec makes far more of its bytes, and all of that is shown. Inputs are this many times shorter."""


def _pair(
    name: str, make: Callable[..., bytes], worst: tuple[int, ...], expands: int = 1, **bounds: tuple[int, int]
) -> Pair:
    return Pair(name, make, worst, tuple(Quantity(quantity, *ends) for quantity, ends in bounds.items()), expands)


CODECS: Final = (0, 4)

PAIRS: Final = {
    pair.name: pair
    for pair in (
        _pair(
            "gaps-outstanding",
            streams.gaps_outstanding,
            (40000, 40000, 1, 5),
            outstanding=(1, 40_000),
            ids=(1, 40_000),
            hole=(1, 1_000_000),
            together=(1, 1_000),
        ),
        _pair("segments-holes", streams.segments_holes, (1, 2, 1), segment=(1, 1448), run=(1, 1_000), backwards=(0, 1)),
        _pair(
            "segments-candidates",
            streams.segments_candidates,
            (1, 13, 100000000),
            segment=(1, 1448),
            spacing=(1, 10_000),
            stated=(8, 100_000_000),
        ),
        _pair("segments-repeats", streams.repeats_segments, (4, 20), repeats=(1, 10_000), segment=(1, 1448)),
        _pair(
            "requests-early", streams.early_requests, (20000, 1, 0), early=(1, 20_000), reverse=(0, 1), hole=(0, 1_000)
        ),
        _pair("connections-overhead", streams.overhead_connections, (1, 3), exchanges=(1, 1_000), kind=(0, 3)),
        _pair(
            "connections-unfinished",
            streams.unfinished_connections,
            (100000000, 1),
            stated=(100, 100_000_000),
            segment=(1, 1448),
        ),
        _pair("connections-tokens", streams.tokens_connections, (26, 10000), token=(0, 60_000), tokens=(1, 10_000)),
        _pair("dates-rows", streams.dates_rows, (86400, 1), seconds=(0, 40_000_000), exchanges=(1, 1_000)),
        _pair(
            "ratio-messages",
            contents.ratio_messages,
            (1, 100, 4, 1),
            expands=64,
            records=(1, 2_000_000),
            value=(0, 10_000_000),
            codec=CODECS,
            batches=(1, 1_000),
        ),
        _pair(
            "nested-records", contents.nested_records, (1, 10, 1), depth=(0, 5), records=(1, 1_000_000), codec=(1, 3)
        ),
        _pair(
            "headers-records",
            contents.headers_records,
            (10, 10, 0),
            headers=(0, 1_000_000),
            records=(1, 1_000_000),
            codec=CODECS,
        ),
        _pair("elements-messages", contents.elements_messages, (5000, 1), topics=(0, 50_000), partitions=(0, 50_000)),
        _pair("tags-messages", contents.tags_messages, (1000, 0), tags=(0, 200_000), value=(0, 1_000)),
        _pair("problems-messages", contents.problems_exchanges, (10, 0), batches=(1, 10_000), kind=(0, 3)),
        _pair(
            "topics-fetches",
            contents.topics_fetches,
            (100, 20, 0),
            topics=(1, 30_000),
            together=(1, 1_000),
            changed=(0, 100),
        ),
        _pair(
            "sessions-partitions", contents.sessions_partitions, (10, 10), partitions=(1, 20_000), fetches=(0, 10_000)
        ),
        _pair("names-requests", contents.names_requests, (10, 10000), length=(0, 30_000), requests=(1, 10_000)),
        _pair("names-topics", contents.topics_names, (1, 30), length=(1, 249), topics=(1, 20_000)),
        _pair("connections-records", captures.records_connections, (0, 50000), length=(0, 16_000), records=(1, 50_000)),
        _pair(
            "datagrams-fragments",
            captures.fragments_datagrams,
            (8000, 1, 0),
            fragments=(1, 8_000),
            length=(1, 180),
            overlap=(0, 1),
        ),
        _pair("interfaces-options", captures.interfaces_options, (500, 0), interfaces=(1, 20_000), option=(0, 60_000)),
        _pair("packets-tunnels", captures.tunnels_packets, (3, 10), depth=(0, 12), length=(0, 1400)),
        _pair("topics-errors", findings.topics_errors, (100, 0, 0), topics=(1, 20_000), kind=(0, 5), again=(0, 1)),
        _pair("clients-errors", findings.clients_errors, (1, 1), exchanges=(1, 10_000), kind=(0, 4)),
        _pair(
            "attempts-endpoints",
            findings.attempts_endpoints,
            (60000, 1, 1),
            brokers=(1, 60_000),
            answer=(0, 2),
            repeats=(1, 5),
        ),
        _pair(
            "segments-overlaps", findings.segments_overlaps, (20, 19, 1), segment=(1, 1448), back=(0, 1448), hole=(0, 1)
        ),
        _pair("members-groups", findings.members_groups, (10, 1000), groups=(1, 10_000), members=(1, 10_000)),
        _pair("leaders-topics", findings.leaders_topics, (100, 10), topics=(1, 20_000), brokers=(1, 1_000)),
        _pair("connections-unanswered", findings.unanswered_connections, (1, 2), requests=(1, 10_000), end=(0, 2)),
        _pair(
            "producers-batches",
            findings.producers_batches,
            (1, 1000, 1),
            producers=(1, 10_000),
            sequences=(1, 1_000),
            refused=(0, 1),
        ),
    )
}
"""All pairs by name, in the order of the table."""
