"""The answer of a comparison. Times are nanoseconds since 1970, latencies microseconds; null: unknown or absent."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

__all__ = [
    "SECTIONS",
    "BatchingDiff",
    "BrokerDiff",
    "Change",
    "ClientDiff",
    "Compared",
    "ComparisonAnswer",
    "ErrorDiff",
    "LatencyDiff",
    "Rate",
    "Shift",
    "Size",
    "Software",
    "TopicDiff",
    "Verdict",
    "VersionDiff",
]

SECTIONS: Final = ("versions", "rates", "latency", "sizes", "errors", "topics", "batching", "clients", "brokers")
"""What is compared, in the order of output; the names of the lists in `ComparisonAnswer`."""

Verdict = Literal["slower", "faster", "slower-tail", "faster-tail", "same", "unclear"]


class Compared(msgspec.Struct):
    """One side."""

    first: int | None
    """Time of the first request."""
    last: int | None
    duration_us: int | None
    exchanges: int
    spans: int
    """Number of time spans that the side was cut into."""
    span_us: int | None
    """Duration of one span."""


class Change(msgspec.Struct):
    """A number on both sides."""

    before: float | None
    after: float | None
    change: float | None
    """`after` divided by `before`, minus 1; null if undefined."""
    p: float | None
    """Probability of such a difference by chance, corrected for the number of tests in the list; null: too few."""
    differs: bool


class DiffRow(msgspec.Struct, kw_only=True):
    """Base of the rows."""

    differs: bool


class VersionDiff(DiffRow, kw_only=True):
    """The versions of one API that were used; an empty list: it was not called."""

    api: str
    before: list[int]
    after: list[int]


class Rate(DiffRow, kw_only=True):
    """How often one API was called."""

    api: str
    before: int
    after: int
    """Exchanges."""
    per_second: Change


class Shift(msgspec.Struct):
    """A percentile of latencies."""

    before_us: int
    after_us: int
    change: float | None
    """`after_us` divided by `before_us`, minus 1."""
    shift_us: float
    """`after_us` minus `before_us`."""
    low_us: float | None
    high_us: float | None
    """Confidence interval of the difference, at the confidence that `significance` leaves; null: too few."""
    differs: bool


class LatencyDiff(DiffRow, kw_only=True):
    """The latencies of one API."""

    api: str
    before: int
    after: int
    """Exchanges with a latency."""
    verdict: Verdict
    slower: float | None
    """Probability that an exchange of `after` takes longer than one of `before`, a tie counting half; null: too few."""
    p: float | None
    """p value of `slower` differing from one half, corrected for the number of tests; null: too few."""
    tail_p: float | None
    """p value of the slowest hundredth coming unequally from both sides, likewise corrected; null: too few."""
    p50: Shift
    p90: Shift
    p99: Shift


class Size(DiffRow, kw_only=True):
    """Mean sizes of one API's messages, without length prefixes."""

    api: str
    request_bytes: Change
    response_bytes: Change


class ErrorDiff(DiffRow, kw_only=True):
    """One error code of one API."""

    api: str
    code: int
    name: str | None
    before: int
    after: int
    """Number of exchanges with this code in the response."""
    share: Change
    """As a share of the API's exchanges."""


class TopicDiff(DiffRow, kw_only=True):
    """Data produced to a topic and fetched from it, except by followers."""

    topic: str | None
    """Its name, or its id if the name is unknown."""
    produced_per_second: Change
    """Records."""
    fetched_per_second: Change


class BatchingDiff(DiffRow, kw_only=True):
    """The batches that were produced to a topic."""

    topic: str | None
    before: int
    after: int
    """Batches."""
    records_per_batch: Change
    bytes_per_batch: Change
    """As on the wire."""
    codecs_before: list[str]
    codecs_after: list[str]


class Software(msgspec.Struct, frozen=True):
    """Software of a client according to ApiVersions."""

    software_name: str
    software_version: str | None


class ClientDiff(DiffRow, kw_only=True):
    """A client id."""

    client_id: str | None
    before: int
    after: int
    """Exchanges."""
    software_before: list[Software]
    software_after: list[Software]


class BrokerDiff(DiffRow, kw_only=True):
    """A broker."""

    broker_id: int | None
    """Null: unknown, and this is one endpoint."""
    before: list[str]
    after: list[str]
    """`address:port`."""


class ComparisonAnswer(msgspec.Struct, kw_only=True):
    """The whole answer. A list is null if it was not requested or cannot be known."""

    before: Compared
    after: Compared
    differences: dict[str, int]
    """By list, the number of rows that differ."""
    versions: list[VersionDiff] | None = None
    rates: list[Rate] | None = None
    latency: list[LatencyDiff] | None = None
    sizes: list[Size] | None = None
    errors: list[ErrorDiff] | None = None
    topics: list[TopicDiff] | None = None
    batching: list[BatchingDiff] | None = None
    clients: list[ClientDiff] | None = None
    brokers: list[BrokerDiff] | None = None
    notes: list[str]
