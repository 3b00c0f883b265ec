"""Hostile captures, each made of two or three quantities that meet: requests that wait, and gaps that look at each. The
fuzz families make short inputs in great numbers. What a megabyte costs shows only in long inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.fuzz.costs import captures, contents, findings, streams

PAIRS: Final[dict[str, Callable[[int], bytes]]] = {
    "gaps-outstanding": partial(streams.gaps_outstanding, outstanding=40_000, ids=40_000, hole=1, together=5),
    "segments-holes": partial(streams.segments_holes, segment=1, run=2, backwards=1),
    "segments-candidates": partial(streams.segments_candidates, segment=1, spacing=13, stated=100_000_000),
    "segments-repeats": partial(streams.repeats_segments, repeats=4, segment=20),
    "requests-early": partial(streams.early_requests, early=20_000, reverse=1, hole=0),
    "connections-overhead": partial(streams.overhead_connections, exchanges=1),
    "connections-unfinished": partial(streams.unfinished_connections, stated=100_000_000, segment=1),
    "connections-tokens": partial(streams.tokens_connections, token=26, tokens=10_000),
    "dates-rows": partial(streams.dates_rows, seconds=86_400, exchanges=1),
    "ratio-messages": contents.ratio_messages,
    "nested-records": partial(contents.nested_records, records=10),
    "headers-records": partial(contents.headers_records, headers=10, records=10),
    "elements-messages": partial(contents.elements_messages, topics=5_000, partitions=1),
    "tags-messages": partial(contents.tags_messages, tags=1_000),
    "problems-messages": partial(contents.problems_exchanges, batches=10),
    "topics-fetches": partial(contents.topics_fetches, topics=100, together=20, changed=0),
    "sessions-partitions": partial(contents.sessions_partitions, partitions=10, fetches=10),
    "names-requests": partial(contents.names_requests, length=10, requests=10_000),
    "names-topics": partial(contents.topics_names, length=1, topics=30),
    "connections-records": partial(captures.records_connections, length=0, records=50_000),
    "connections-handshakes": partial(captures.records_connections, length=1, records=50_000, kind=0x16),
    "records-odd": captures.odd_records,
    "labels-depth": captures.labels_in_each_other,
    "datagrams-overlaps": partial(captures.fragments_datagrams, fragments=8_000, length=180, overlap=1),
    "datagrams-fragments": partial(captures.fragments_datagrams, fragments=8_000, length=1, overlap=0),
    "interfaces-options": partial(captures.interfaces_options, interfaces=500, option=0),
    "packets-tunnels": partial(captures.tunnels_packets, depth=3, length=10),
    "topics-errors": partial(findings.topics_errors, topics=100, kind=0, again=0),
    "clients-errors": findings.clients_errors,
    "attempts-endpoints": partial(findings.attempts_endpoints, brokers=60_000),
    "segments-overlaps": partial(findings.segments_overlaps, segment=20, back=19),
    "members-groups": partial(findings.members_groups, groups=10, members=1_000),
    "leaders-topics": partial(findings.leaders_topics, topics=100, brokers=10),
    "connections-unanswered": findings.unanswered_connections,
    "producers-batches": partial(findings.producers_batches, sequences=1_000),
}
"""`PAIRS[name](size)`: a capture file of about `size` bytes, with the numbers at which earlier code was furthest from
linear, or which run most of its code."""
