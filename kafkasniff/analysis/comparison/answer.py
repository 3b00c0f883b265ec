"""The answer of a comparison. Times are nanoseconds since 1970, latencies microseconds; null: unknown or absent."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SECTIONS: Final = ("versions", "rates", "latency", "sizes", "errors", "topics", "batching", "clients", "brokers")
"""What is compared, in the order of output; the names of the lists in `ComparisonAnswer`."""

Verdict = Literal["slower", "faster", "slower-tail", "faster-tail", "same", "unclear"]


class Compared(msgspec.Struct):
    """One side."""

    first: int | None
    """Time of the first request."""
    last: int | None
    """Time of the last request."""
    duration_us: int | None
    """Time between them."""
    exchanges: int
    """Number of exchanges."""
    spans: int
    """Number of time spans that the side was cut into."""
    span_us: int | None
    """Length of a span."""


class Change(msgspec.Struct):
    """A number on both sides."""

    before: float | None
    """Value on this side."""
    after: float | None
    """Value on this side."""
    change: float | None
    """`after` divided by `before`, minus 1; null if `before` is 0."""
    p: float | None
    """Corrected p value; null if there are too few values for a test."""
    differs: bool
    """Whether it is a difference."""


class DiffRow(msgspec.Struct, kw_only=True):
    """Base of the rows."""

    differs: bool
    """Whether any of its numbers is a difference."""


class VersionDiff(DiffRow, kw_only=True):
    """The versions of one API that were used; an empty list: it was not called."""

    api: str
    """Name, or key if it is unknown."""
    before: list[int]
    """Versions in use; empty if the API was not called."""
    after: list[int]
    """Likewise."""


class Rate(DiffRow, kw_only=True):
    """How often one API was called."""

    api: str
    """Name, or key if it is unknown."""
    before: int
    """Exchanges on this side."""
    after: int
    """Exchanges on this side."""
    per_second: Change
    """Exchanges per second."""


class Shift(msgspec.Struct):
    """A percentile of latencies."""

    before_us: int
    """The percentile on this side."""
    after_us: int
    """The percentile on this side."""
    change: float | None
    """`after_us` divided by `before_us`, minus 1."""
    shift_us: float
    """`after_us` minus `before_us`."""
    low_us: float | None
    """Lower end of the confidence interval of the shift; null: too few exchanges."""
    high_us: float | None
    """Upper end."""
    differs: bool
    """Whether it changed by `min_change`, by chance or not."""


class LatencyDiff(DiffRow, kw_only=True):
    """The latencies of one API."""

    api: str
    """Name, or key if it is unknown."""
    before: int
    """Exchanges with a latency."""
    after: int
    """Exchanges with a latency."""
    verdict: Verdict
    """`slower`, `faster`, `slower-tail`, `faster-tail`, `same`; `unclear`: too few exchanges."""
    slower: float | None
    """Probability that an exchange of `after` takes longer than one of `before`, a tie counting half; null: too few."""
    p: float | None
    """p value of `slower` differing from one half, corrected for the number of tests; null: too few."""
    tail_p: float | None
    """p value of the slowest hundredth coming unequally from both sides, likewise corrected; null with fewer than 500.
    """
    p50: Shift
    """Median, accurate to 0.4%."""
    p90: Shift
    """90th percentile, likewise."""
    p99: Shift
    """99th percentile, likewise."""


class Size(DiffRow, kw_only=True):
    """Mean sizes of one API's messages, without length prefixes."""

    api: str
    """Name, or key if it is unknown."""
    request_bytes: Change
    """Mean size of requests, without length prefixes."""
    response_bytes: Change
    """Mean size of responses, without length prefixes."""


class ErrorDiff(DiffRow, kw_only=True):
    """One error code of one API."""

    api: str
    """Name, or key if it is unknown."""
    code: int
    """Error code. An exchange counts once for each code of its partitions, and for the first code of its response."""
    name: str | None
    """Name of the error; null if unknown."""
    before: int
    """Exchanges with this error."""
    after: int
    """Exchanges with this error."""
    share: Change
    """As a share of the API's exchanges."""


class TopicDiff(DiffRow, kw_only=True):
    """Data produced to a topic and fetched from it, except by followers."""

    topic: str | None
    """Name, or id if the name is unknown."""
    produced_per_second: Change
    """Records produced."""
    fetched_per_second: Change
    """Records fetched, except by followers."""


class BatchingDiff(DiffRow, kw_only=True):
    """The batches that were produced to a topic."""

    topic: str | None
    """Name, or id if the name is unknown."""
    before: int
    """Batches."""
    after: int
    """Batches."""
    records_per_batch: Change
    """Mean number of records."""
    bytes_per_batch: Change
    """Mean size on the wire."""
    codecs_before: list[str]
    """Codecs, including `none`."""
    codecs_after: list[str]
    """Codecs, including `none`."""


class Software(msgspec.Struct, frozen=True):
    """Software of a client according to ApiVersions."""

    software_name: str
    """Name."""
    software_version: str | None
    """Version; null if unknown."""


class ClientDiff(DiffRow, kw_only=True):
    """A client id."""

    client_id: str | None
    """Client id."""
    before: int
    """Exchanges."""
    after: int
    """Exchanges."""
    software_before: list[Software]
    """Software that the client reported in ApiVersions."""
    software_after: list[Software]
    """Likewise."""


class BrokerDiff(DiffRow, kw_only=True):
    """A broker."""

    broker_id: int | None
    """Null: unknown, and this is one endpoint."""
    before: list[str]
    """Addresses (`address:port`) at which clients reached it."""
    after: list[str]
    """Likewise."""


class ComparisonAnswer(msgspec.Struct, kw_only=True):
    """The whole answer. A list is null if it was not requested or cannot be known."""

    before: Compared
    """First side."""
    after: Compared
    """Second side."""
    differences: dict[str, int]
    """By list, the number of rows that differ."""
    versions: list[VersionDiff] | None = None
    """Versions that clients use."""
    rates: list[Rate] | None = None
    """Calls of APIs."""
    latency: list[LatencyDiff] | None = None
    """APIs that have latencies on both sides."""
    sizes: list[Size] | None = None
    """Sizes of messages."""
    errors: list[ErrorDiff] | None = None
    """Error codes by API."""
    topics: list[TopicDiff] | None = None
    """Topics named in Produce, Fetch and ShareFetch."""
    batching: list[BatchingDiff] | None = None
    """Topics that were produced to on both sides."""
    clients: list[ClientDiff] | None = None
    """Client ids."""
    brokers: list[BrokerDiff] | None = None
    """Brokers."""
    notes: list[str]
    """Sentences about what is not compared, or was dropped to stay within bounds."""
