"""The answer of an overview. Times are nanoseconds since 1970, sizes bytes, latencies microseconds; null: unknown."""

from __future__ import annotations

import msgspec

from kafkasniff.analysis.visibility import VisibleTraffic


class Exchanges(msgspec.Struct, kw_only=True):
    """Counts of exchanges. Sizes are those of messages, without length prefixes."""

    exchanges: int = 0
    """Number of exchanges."""
    requests: int = 0
    """Those whose request was captured."""
    responses: int = 0
    """Those whose response was captured."""
    errors: int = 0
    """Non-zero error codes in responses."""
    with_errors: int = 0
    """Exchanges with at least one of them."""
    unanswered: int = 0
    """Exchanges whose connection, or the capture, ended without a response."""
    lost: int = 0
    """Exchanges whose response, if there was one, is in bytes that the capture lacks."""
    request_bytes: int = 0
    """Size of the requests, without length prefixes."""
    response_bytes: int = 0
    """Size of the responses, without length prefixes."""


class LatencyStats(msgspec.Struct):
    """From the request's last byte to the response's first; percentiles are at most 0.4% off."""

    count: int
    """Exchanges with a latency."""
    mean_us: float
    """Mean."""
    p50_us: int
    """Median."""
    p90_us: int
    """90th percentile."""
    p99_us: int
    """99th percentile."""
    max_us: int
    """Longest."""


class ApiStats(Exchanges, kw_only=True):
    """One API."""

    api: str | None
    """Name, or key if it is unknown; null for responses whose requests were not captured."""
    versions: list[int]
    """Versions used, ascending."""
    latency: LatencyStats | None = None
    """Without long polls (requests that ask the broker to wait for data or members); null if there is no other."""


class BrokerStats(Exchanges, kw_only=True):
    """One endpoint that spoke Kafka as a broker."""

    broker_id: int | None
    """The last id that messages gave this address; null if unknown."""
    address: str
    """IP address."""
    port: int
    """TCP port."""
    cluster: str | None
    """Id of its cluster, or the `address:port` of the cluster's first broker; null if unknown, or if there is only
    one.
    """
    connections: int | None
    """Connections to it; null if an export lacks that table."""


class ClientStats(Exchanges, kw_only=True):
    """One client id at one address."""

    client_id: str | None
    """Client id; null if it sent none."""
    address: str | None
    """IP address; null if unknown."""
    software_name: str | None
    """Its software, from its ApiVersions request; null if unknown."""
    software_version: str | None
    """Version of the software."""


class Traffic(msgspec.Struct):
    """Records in one direction."""

    records: int
    """Number of records, control records included."""
    batches: int
    """Number of batches."""
    bytes: int
    """Size of the batches on the wire."""
    records_per_second: float | None
    """Over the whole duration; null if that is 0 or unknown."""
    bytes_per_second: float | None
    """Over the whole duration."""


class TopicStats(msgspec.Struct):
    """One topic that Produce, Fetch or ShareFetch name."""

    topic: str | None
    """Name, or id if the name is unknown."""
    cluster: str | None
    """As for brokers."""
    partitions: int
    """Number of partitions named."""
    produced: Traffic
    """By Produce requests."""
    fetched: Traffic
    """By consumers."""
    replicated: Traffic
    """By brokers that follow the leader."""
    compression: list[str]
    """Codecs of the batches, including `none`."""
    compression_ratio: float | None
    """Size of batches before compression divided by their size on the wire, where both are known."""
    record_bytes_mean: float | None
    """Mean size of key, value and headers before compression, over all captured records."""
    record_bytes_p50: int | None
    """Median size."""
    record_bytes_p99: int | None
    """99th percentile."""
    record_bytes_max: int | None
    """Largest size."""


class GroupStats(msgspec.Struct):
    """One group that requests name."""

    group_id: str
    """Name."""
    cluster: str | None
    """As for brokers."""
    protocols: list[str]
    """classic, consumer, share, streams; empty if offsets were only committed or fetched."""
    clients: int
    """Clients (client id and address) that name it."""
    requests: int
    """Requests that name it."""
    errors: int
    """Error codes in their responses."""
    with_errors: int
    """Exchanges with at least one."""
    generation_first: int | None
    """Lowest generation or member epoch; null if unknown."""
    generation_last: int | None
    """Highest generation or member epoch; null if unknown."""
    rebalances: int
    """Generations that were seen to begin, and leaves after the last one."""
    members: int | None
    """Members after the last of them; null if unknown."""
    first: int | None
    """Time of the first request."""
    last: int | None
    """Time of the last request."""


class ErrorStats(msgspec.Struct):
    """One error code, and the first exchange that had it."""

    code: int | None
    """Number; null for codes in bodies that the export does not have."""
    name: str | None
    """Name; null if unknown."""
    retriable: bool | None
    """Whether the same request may succeed later."""
    meaning: str | None
    """Short description."""
    count: int
    """Number of occurrences."""
    apis: list[str]
    """APIs whose responses have it."""
    first: int | None
    """Time of its first occurrence."""
    first_api: str | None
    """API of its first occurrence."""
    first_client_id: str | None
    """Client id of its first occurrence."""
    first_client_address: str | None
    """Address of that client."""
    first_topic: str | None
    """Topic of its first occurrence, if any."""


class ProblemStats(msgspec.Struct):
    """One kind of problem, and the first of it."""

    kind: str
    """Kind."""
    count: int
    """Number of problems."""
    bytes: int
    """Total bytes affected."""
    first: int | None
    """Time of the first one."""
    first_detail: str
    """Detail of the first one."""
    first_packet: int | None
    """Packet number of the first one."""


class ConnectionTotals(msgspec.Struct):
    """All TCP connections that carried data; the columns of the table `connections`, added up."""

    connections: int = 0
    """TCP connections that carried data."""
    kafka: int = 0
    """Those that are Kafka."""
    not_kafka: int = 0
    """Those that are not."""
    undecided: int = 0
    """Those with too little data to judge."""
    packets: int = 0
    """Sum of the column."""
    client_bytes: int = 0
    """Sum of the column."""
    broker_bytes: int = 0
    """Sum of the column."""
    bytes_decoded: int = 0
    """Sum of the column."""
    bytes_skipped: int = 0
    """Sum of the column."""
    bytes_lost: int = 0
    """Sum of the column."""
    bytes_pending: int = 0
    """Sum of the column."""
    bytes_repeated: int = 0
    """Sum of the column."""
    bytes_ignored: int = 0
    """Sum of the column."""
    retransmits: int = 0
    """Sum of the column."""


class FailedConnectStats(msgspec.Struct):
    """TCP connections to one endpoint that failed."""

    address: str
    """IP address."""
    port: int
    """Port."""
    outcome: str
    """`refused` (a reset answered) or `unanswered`."""
    connects: int
    """Number of connections."""
    packets: int
    """Their packets, which `connections` does not count."""


class EncryptedStats(msgspec.Struct):
    """TLS connections to one endpoint that were not decrypted; times of answers are estimates."""

    address: str
    """IP address."""
    port: int
    """Port."""
    connections: int
    """Number of connections."""
    client_bytes: int
    """Bytes of the clients."""
    broker_bytes: int
    """Bytes of the broker."""
    handshakes: int
    """Connections whose handshake was captured and completed."""
    handshake_p50_us: int | None
    """Median time of these handshakes."""
    handshake_max_us: int | None
    """The longest."""
    answers: int
    """Times that the broker sent data after a client had; pipelined requests have one answer."""
    answer_p50_us: int | None
    """Median of the connections' median times of an answer, each with the weight of its answers: an estimate that
    includes long polls.
    """
    answer_max_us: int | None
    """The longest."""
    unanswered: int
    """Connections that ended, or the capture did, before the client's last data were answered."""
    resets: int
    """Connections that ended with a reset."""


class OverviewAnswer(msgspec.Struct):
    """The whole answer. Lists are cut at a number of rows; `more` has the number of omitted ones."""

    first: int | None
    """Time of the first packet of a connection; if an export lacks that table, of the first request."""
    last: int | None
    """Time of the last packet, likewise."""
    duration_us: int | None
    """Time between them."""
    exchanges: Exchanges
    """Counts of all exchanges."""
    connections: ConnectionTotals | None
    """Null if an export lacks that table."""
    visibility: VisibleTraffic
    """How much of the traffic could be decoded, and why the rest could not."""
    failed_connects: list[FailedConnectStats]
    """TCP connections of captures that were refused or got no answer, by endpoint, the most frequent first."""
    encrypted: list[EncryptedStats]
    """TLS connections without keys, by endpoint, those with most bytes first."""
    brokers: list[BrokerStats]
    """Endpoints that acted as Kafka brokers, sorted by id."""
    clients: list[ClientStats]
    """Clients, those with the most bytes first."""
    apis: list[ApiStats]
    """APIs, those with the most exchanges first."""
    topics: list[TopicStats]
    """Topics that Produce, Fetch and ShareFetch name, those with the most bytes first."""
    groups: list[GroupStats]
    """Groups that requests name, those with the most requests first."""
    errors: list[ErrorStats]
    """Error codes of responses, the most frequent first."""
    problems: list[ProblemStats] | None
    """Kinds of problems, the most frequent first; null if an export lacks that table."""
    more: dict[str, int]
    """By list, the number of rows omitted at its end."""
    notes: list[str]
    """Sentences about what is unknown or was dropped to stay within bounds."""
