"""The answer of an overview. Times are nanoseconds since 1970, sizes bytes, latencies microseconds; null: unknown."""

from __future__ import annotations

import msgspec

from kafkasniff.analysis.visibility import VisibleTraffic

__all__ = [
    "ApiStats",
    "BrokerStats",
    "ClientStats",
    "ConnectionTotals",
    "ErrorStats",
    "Exchanges",
    "GroupStats",
    "LatencyStats",
    "OverviewAnswer",
    "ProblemStats",
    "TopicStats",
    "Traffic",
]


class Exchanges(msgspec.Struct, kw_only=True):
    """Counts of exchanges. Sizes are those of messages, without length prefixes."""

    exchanges: int = 0
    requests: int = 0
    responses: int = 0
    errors: int = 0
    """Error codes in responses that are not zero."""
    with_errors: int = 0
    """Exchanges that have one."""
    unanswered: int = 0
    """Without the response that should be in the capture: the connection or the capture ended before it."""
    lost: int = 0
    """The response, if any, was in bytes missing from the capture."""
    request_bytes: int = 0
    response_bytes: int = 0


class LatencyStats(msgspec.Struct):
    """From the request's last byte to the response's first; percentiles are at most 0.4% off."""

    count: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int


class ApiStats(Exchanges, kw_only=True):
    """One API."""

    api: str | None
    """Its name, or number; null: responses whose requests were not captured."""
    versions: list[int]
    latency: LatencyStats | None = None


class BrokerStats(Exchanges, kw_only=True):
    """One endpoint that spoke Kafka as a broker."""

    broker_id: int | None
    """The broker number of this address according to messages."""
    address: str
    port: int
    cluster: str | None
    """Id of its cluster, or the endpoint of the cluster's first broker; None: unknown, or there is only one."""
    connections: int | None


class ClientStats(Exchanges, kw_only=True):
    """One client id at one address."""

    client_id: str | None
    address: str | None
    software_name: str | None
    software_version: str | None


class Traffic(msgspec.Struct):
    """Records in one direction."""

    records: int
    batches: int
    bytes: int
    """Size of batches, as on the wire."""
    records_per_second: float | None
    """Over the whole duration."""
    bytes_per_second: float | None


class TopicStats(msgspec.Struct):
    """One topic that Produce, Fetch or ShareFetch name."""

    topic: str | None
    """Its name, or its id if the name is unknown."""
    cluster: str | None
    """Id of its cluster, or the endpoint of the cluster's first broker; None: unknown, or there is only one."""
    partitions: int
    """Number of partitions that were named."""
    produced: Traffic
    fetched: Traffic
    replicated: Traffic
    """Fetched by brokers that follow the leader."""
    compression: list[str]
    """Codecs of batches, `none` among them."""
    compression_ratio: float | None
    """Size before compression divided by that on the wire."""
    record_bytes_mean: float | None
    """Key, value and headers, before compression, of all captured records."""
    record_bytes_p50: int | None
    record_bytes_p99: int | None
    record_bytes_max: int | None


class GroupStats(msgspec.Struct):
    """One group that requests name."""

    group_id: str
    cluster: str | None
    """Id of its cluster, or the endpoint of the cluster's first broker; None: unknown, or there is only one."""
    protocols: list[str]
    """classic, consumer, share, streams; none if offsets were only committed or fetched."""
    clients: int
    """Client ids and addresses that name it."""
    requests: int
    errors: int
    with_errors: int
    generation_first: int | None
    """Lowest and highest generation; for the newer protocols, member epoch."""
    generation_last: int | None
    rebalances: int
    """Generations that were seen to begin, and leaves after the last one."""
    members: int | None
    """After the last of them."""
    first: int | None
    last: int | None


class ErrorStats(msgspec.Struct):
    """One error code, and the first exchange that had it."""

    code: int | None
    """Null: one of several codes in a response whose body, which has the others, is missing."""
    name: str | None
    retriable: bool | None
    """Whether the same request may succeed later, unchanged."""
    meaning: str | None
    count: int
    apis: list[str]
    first: int | None
    first_api: str | None
    first_client_id: str | None
    first_client_address: str | None
    first_topic: str | None


class ProblemStats(msgspec.Struct):
    """One kind of problem, and the first of it."""

    kind: str
    count: int
    bytes: int
    """Number of connections concerned."""
    first: int | None
    first_detail: str
    first_packet: int | None


class ConnectionTotals(msgspec.Struct):
    """All TCP connections that carried data; the columns of the table `connections`, added up."""

    connections: int = 0
    kafka: int = 0
    not_kafka: int = 0
    undecided: int = 0
    packets: int = 0
    client_bytes: int = 0
    broker_bytes: int = 0
    bytes_decoded: int = 0
    bytes_skipped: int = 0
    bytes_lost: int = 0
    bytes_pending: int = 0
    bytes_repeated: int = 0
    bytes_ignored: int = 0
    retransmits: int = 0


class OverviewAnswer(msgspec.Struct):
    """The whole answer. Lists are cut at a number of rows; `more` has the number of omitted ones."""

    first: int | None
    """Time of the first packet of a connection, or request."""
    last: int | None
    duration_us: int | None
    exchanges: Exchanges
    connections: ConnectionTotals | None
    """Null without the table."""
    visibility: VisibleTraffic
    """How much of the traffic could be decoded."""
    brokers: list[BrokerStats]
    clients: list[ClientStats]
    apis: list[ApiStats]
    topics: list[TopicStats]
    groups: list[GroupStats]
    errors: list[ErrorStats]
    problems: list[ProblemStats] | None
    """Null without the table."""
    more: dict[str, int]
    """By list, the number of omitted rows."""
    notes: list[str]
    """Caveats: what memory bounds have dropped, and what the rows do not show."""
