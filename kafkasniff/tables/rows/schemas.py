"""The tables' columns, each with its type and meaning, and their Arrow schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

SCHEMA_VERSION: Final = 1
"""Version of the tables. It rises when a column changes meaning or type or is removed, not when one is appended."""
_TIME: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """A column of a table, or a field of its structs."""

    name: str
    type: pa.DataType
    meaning: str


def _fields(columns: Iterable[Column]) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in columns]


def _array(item: pa.DataType) -> pa.DataType:
    # "element" is the name in Parquet and Spark; Arrow's default "item" would differ after a round trip.
    return pa.list_(pa.field("element", item))


_PARTITION: Final = (
    Column("topic", pa.string(), "null if only the id is known"),
    Column("topic_id", pa.string(), "22 characters; null if the message has none"),
    Column("partition", pa.int32(), "number"),
    Column("error_code", pa.int32(), "as in the response, 0 for none"),
    Column("error", pa.string(), "its name; null for none and for an unknown code"),
    Column(
        "offset",
        pa.int64(),
        "base offset assigned to Produce; fetch offset of Fetch; offset in the response of ListOffsets and "
        "OffsetFetch; in the request of OffsetCommit, TxnOffsetCommit and DeleteRecords; end offset of "
        "OffsetForLeaderEpoch",
    ),
    Column("high_watermark", pa.int64(), "as in the response"),
    Column("record_count", pa.int64(), "records of all batches, control records included"),
    Column("batch_count", pa.int32(), "record batches; each outermost message of a legacy message set is one"),
    Column("bytes", pa.int64(), "size of the batches on the wire, including a truncated last one"),
    Column(
        "uncompressed_bytes",
        pa.int64(),
        "the same before compression; null if it is unknown, or the table `records` is not written",
    ),
    Column("compression", pa.string(), "none, gzip, snappy, lz4, zstd; `mixed` if batches differ"),
    Column("producer_id", pa.int64(), "of the first batch; -1 for a producer that is not idempotent"),
    Column("producer_epoch", pa.int32(), "of the first batch"),
    Column("base_sequence", pa.int32(), "of the first batch"),
    Column("last_stable_offset", pa.int64(), "as in the response; read_committed consumers get records before it"),
)
PARTITION: Final = pa.struct(_fields(_PARTITION))
"""One element of the column `partitions`."""

_EXCHANGES: Final = (
    Column("capture", pa.string(), "name of the capture of the request, or of an orphan response"),
    Column(
        "connection_id",
        pa.int64(),
        "BLAKE2b-64 (signed) of the sorted endpoints and the nanoseconds of the connection's first packet: the same in "
        "every run over the same packets",
    ),
    Column("exchange_id", pa.int64(), "ordinal within the connection, from 0"),
    Column("time", _TIME, "time of the packet that completed the request"),
    Column("time_ns", pa.int64(), "nanoseconds since 1970"),
    Column("client_ip", pa.string(), "address of the client"),
    Column("client_port", pa.int32(), "port of the client"),
    Column("broker_ip", pa.string(), "address of the broker"),
    Column("broker_port", pa.int32(), "port of the broker"),
    Column(
        "broker_id",
        pa.int32(),
        "id of the broker at that address, from Metadata, FindCoordinator and similar responses",
    ),
    Column("api_key", pa.int32(), "null for an orphan response"),
    Column("api", pa.string(), "null for an unknown key and for an orphan response"),
    Column("api_version", pa.int32(), "null for an orphan response"),
    Column("correlation_id", pa.int32(), "as in the request"),
    Column("client_id", pa.string(), "from the request's header"),
    Column(
        "software_name",
        pa.string(),
        "name of the client's software, from an ApiVersions request (v3 and later) on this connection",
    ),
    Column("software_version", pa.string(), "its version"),
    Column(
        "status",
        pa.string(),
        "answered, no_response (acks 0), unanswered (connection ended), open (capture ended), lost (a gap may have "
        "swallowed the response), orphan (a response without its request)",
    ),
    Column("request_size", pa.int64(), "bytes of header and body, without the length prefix"),
    Column("response_size", pa.int64(), "the same for the response"),
    Column(
        "latency_us",
        pa.int64(),
        "from the completion of the request to the packet with the response's first byte; may be negative",
    ),
    Column(
        "duration_us", pa.int64(), "from the packet with the request's first byte to the completion of the response"
    ),
    Column("throttle_time_ms", pa.int32(), "as in the response"),
    Column("error_code", pa.int32(), "the first non-zero error code of the response; 0 if there is none"),
    Column("error", pa.string(), "its name; null for none and for an unknown code"),
    Column("error_count", pa.int32(), "number of non-zero error codes in the response"),
    Column("group_id", pa.string(), "the group that the request names, if it names exactly one"),
    Column(
        "member_id",
        pa.string(),
        "the member that the request names; if it names none yet, the one that the response assigns",
    ),
    Column("transactional_id", pa.string(), "the transactional id that the request names, if it names exactly one"),
    Column("acks", pa.int32(), "Produce only: 0 none, 1 the leader, -1 all in-sync replicas"),
    Column(
        "record_count",
        pa.int64(),
        "records of all batches in request and response, control records included; null if there are no record fields",
    ),
    Column(
        "topics",
        _array(pa.string()),
        "names of topics in request, then response, each once. For a Fetch in a session (KIP-227), first all topics "
        "of the session if there are at most 100",
    ),
    Column(
        "partitions",
        _array(PARTITION),
        "details of each topic and partition",
    ),
    Column(
        "request_body",
        pa.string(),
        "JSON as in the JSON lines, without records unless you give `--records`; those of KRaft's metadata log are "
        "always included",
    ),
    Column("response_body", pa.string(), "the same for the response"),
    Column(
        "problems",
        _array(pa.string()),
        "kinds of the problems of the exchange and its messages, each once; those within records if records are "
        "decoded",
    ),
    Column(
        "retransmits",
        pa.int32(),
        "retransmitted segments of the connection, both directions, since its previous exchange ended",
    ),
    Column(
        "sender",
        pa.string(),
        "of a request with a replica id (Fetch, ListOffsets, OffsetForLeaderEpoch): client, replica (a broker), "
        "quorum (a node that replicates KRaft's metadata log)",
    ),
    Column(
        "behind_us",
        pa.int64(),
        "part of `latency_us` in which the broker answered earlier requests; without a response an upper bound",
    ),
    Column(
        "muted_us",
        pa.int64(),
        "part of `latency_us` in which a quota throttled the client; without a response an upper bound",
    ),
    Column(
        "wait_us", pa.int64(), "upper bound of the requested wait. 0: it asks for none; null: it could not be decoded"
    ),
    Column("waits_for", pa.string(), "reason of the wait: data, members, leader, replicas, operation"),
)
EXCHANGES: Final = pa.schema(_fields(_EXCHANGES))
"""Schema of the table `exchanges`, in the order of its columns."""

_HEADER: Final = (
    Column("key", pa.string(), r"bytes that are not UTF-8 as `\xNN`"),
    Column("value", pa.binary(), "hidden like the values of records"),
)
HEADER: Final = pa.struct(_fields(_HEADER))
"""One element of the column `headers`."""

_RECORDS: Final = (
    Column("capture", pa.string(), "name of the capture in which the message was completed"),
    Column("connection_id", pa.int64(), "key of the connection, as in exchanges"),
    Column("exchange_id", pa.int64(), "key of the exchange, as in exchanges"),
    Column("time", _TIME, "time of the packet that completed the message"),
    Column("api", pa.string(), "Produce, Fetch, ShareFetch, FetchSnapshot"),
    Column("direction", pa.string(), "request, response"),
    Column("topic", pa.string(), "null if only the id is known"),
    Column("topic_id", pa.string(), "22 characters; null if the message has none"),
    Column("partition", pa.int32(), "number"),
    Column(
        "offset", pa.int64(), "as in the batch; in a Produce request the producer's own count, from 0 in each batch"
    ),
    Column(
        "timestamp",
        _TIME,
        "of the record; for LogAppendTime that of the batch; null if there is none, or outside of the years 1 to 9999",
    ),
    Column("timestamp_type", pa.string(), "CreateTime, LogAppendTime; null in the oldest format (magic 0)"),
    Column("key", pa.binary(), "null or hashed with `--no-payload` and `--hash-payload`"),
    Column("value", pa.binary(), "as `key`; also null if it may hold a secret"),
    Column("headers", _array(HEADER), "null in the formats that have none (magic 0 and 1)"),
    Column("compression", pa.string(), "of the batch: none, gzip, snappy, lz4, zstd"),
    Column("magic", pa.int32(), "format of the batch: 0, 1, 2"),
    Column("producer_id", pa.int64(), "of the batch; -1 for a producer that is not idempotent; null in magic 0 and 1"),
    Column("producer_epoch", pa.int32(), "of the batch; null in magic 0 and 1"),
    Column(
        "sequence",
        pa.int32(),
        "of the record: the batch's base sequence plus the record's position; -1 if the batch has none",
    ),
    Column("transactional", pa.bool_(), "null in magic 0 and 1"),
    Column("control", pa.string(), "type of a control record: ABORT, COMMIT, LEADER_CHANGE …; null for all others"),
    Column("trace_ids", _array(pa.string()), "trace ids in its headers; null if there are none"),
    Column("key_decoded", pa.string(), "the key as JSON, decoded by a schema (`--registry`, `--schema`); else null"),
    Column("value_decoded", pa.string(), "likewise"),
)
RECORDS: Final = pa.schema(_fields(_RECORDS))
"""Schema of the table `records`."""

_CONNECTIONS: Final = (
    Column("capture", pa.string(), "name of the capture with its first packet"),
    Column("connection_id", pa.int64(), "the key; as in exchanges"),
    Column("time", _TIME, "of its first packet"),
    Column("time_ns", pa.int64(), "nanoseconds since 1970"),
    Column("end_time", _TIME, "of its last packet"),
    Column("end_time_ns", pa.int64(), "nanoseconds since 1970"),
    Column(
        "client_ip",
        pa.string(),
        "if no message shows the roles: the sender of the SYN, else the end with the higher port",
    ),
    Column("client_port", pa.int32(), "port of the client"),
    Column("broker_ip", pa.string(), "address of the broker"),
    Column("broker_port", pa.int32(), "port of the broker"),
    Column("broker_id", pa.int32(), "as in exchanges, at the connection's first packet"),
    Column("software_name", pa.string(), "as in exchanges"),
    Column("software_version", pa.string(), "as in exchanges"),
    Column("client_ids", _array(pa.string()), "client ids of its requests in order of appearance, at most 16"),
    Column("verdict", pa.string(), "kafka, not_kafka, undecided (too little to judge)"),
    Column(
        "ended",
        pa.string(),
        "fin, rst; reused (by a new connection), idle (silent for an hour, or dropped at a bound), end (of the "
        "captures)",
    ),
    Column("syn_seen", pa.bool_(), "whether its beginning is in the capture"),
    Column("packets", pa.int64(), "packets of both directions"),
    Column("requests", pa.int64(), "number of requests"),
    Column("responses", pa.int64(), "number of responses, including orphans"),
    Column("unanswered", pa.int64(), "exchanges with a missing response: unanswered, open, lost"),
    Column("sasl_mechanism", pa.string(), "the last one that the client requested"),
    Column("client_bytes", pa.int64(), "payload bytes of the client's stream in the capture"),
    Column("broker_bytes", pa.int64(), "the same for the broker's stream"),
    Column(
        "bytes_decoded",
        pa.int64(),
        "bytes of both streams decoded as messages and SASL tokens, including length prefixes",
    ),
    Column("bytes_skipped", pa.int64(), "captured bytes of both streams that were not decoded"),
    Column(
        "bytes_lost",
        pa.int64(),
        "bytes of both streams that the capture lacks. Decoded, skipped and lost bytes add up to all bytes from the "
        "first to the last",
    ),
    Column("retransmits", pa.int64(), "retransmitted segments, both directions"),
    Column("problems", pa.int64(), "problems of its streams, exchanges and messages"),
    Column("bytes_pending", pa.int64(), "part of `bytes_skipped`: incomplete frames at the end of the streams"),
    Column(
        "bytes_repeated",
        pa.int64(),
        "additional: retransmitted bytes, packets captured twice, late bytes that count as lost",
    ),
    Column("bytes_ignored", pa.int64(), "additional: bytes of packets that do not fit the streams"),
    Column(
        "protocol",
        pa.string(),
        "`Kafka`, `Kafka over TLS`, `TLS` (not decrypted), `TLS with ALPN` (of another protocol), `HTTP`, `SSH` …; "
        "null if unknown",
    ),
    Column(
        "captured",
        pa.string(),
        "whose packets are in the capture: `both`; `client` or `broker` if only one direction was captured",
    ),
    Column(
        "authentication",
        pa.string(),
        "none (served without SASL), begun (the end of SASL was not seen), succeeded, failed, unserved (no SASL, and "
        "no request was answered), hidden (encrypted), unknown (it began before the capture); the last one after "
        "re-authentication",
    ),
    Column("authentication_error", pa.string(), "why it failed: the error, and the broker's words"),
    Column("authentication_exchange", pa.int64(), "the exchange that decided, as in exchanges"),
    Column("principal", pa.string(), "the user that authenticates with SASL, by name alone"),
    Column("by_token", pa.bool_(), "whether that is the id of a delegation token"),
    Column("credentials", pa.bool_(), "whether messages of the SASL mechanism were sent"),
    Column("tls", pa.bool_(), "whether it is TLS"),
    Column("tls_version", pa.string(), "null if its handshake was not seen"),
    Column("tls_cipher", pa.string(), "the cipher suite, or its number if it has no known name"),
    Column("tls_server_name", pa.string(), "the host that the client asks for (SNI)"),
    Column("tls_resumed", pa.bool_(), "whether an earlier session is resumed, without a certificate"),
    Column("tls_certificate", pa.binary(), "the broker's certificate in DER; TLS 1.3 encrypts it"),
    Column("tls_client_certificate", pa.binary(), "the client's, likewise"),
    Column(
        "tls_lacks_client_certificate",
        pa.bool_(),
        "whether the client was asked for a certificate and has none",
    ),
    Column("tls_handshake_us", pa.int64(), "from the ClientHello until both ends sent under their keys"),
    Column(
        "tls_answers",
        pa.int64(),
        "answers of the broker, as TLS shows them without keys: its first data after data of the client. Pipelined "
        "requests have one",
    ),
    Column("tls_answer_p50_us", pa.int64(), "median time from the client's last packet to these: an estimate"),
    Column("tls_answer_p99_us", pa.int64(), "99th percentile, likewise"),
    Column("tls_answer_max_us", pa.int64(), "the longest, likewise"),
    Column(
        "tls_unanswered_us",
        pa.int64(),
        "from the client's last data to the last packet, if the broker sent nothing in it; null if it did",
    ),
)
CONNECTIONS: Final = pa.schema(_fields(_CONNECTIONS))
"""Schema of the table `connections`."""

_STALL: Final = (
    Column("sender", pa.string(), "whose data did not arrive: client, broker"),
    Column("since", pa.int64(), "first sent, acknowledged in part, or overtaken by later data: nanoseconds since 1970"),
    Column("until", pa.int64(), "when it arrived; otherwise the last retransmission, or the last packet after a hole"),
    Column("kind", pa.string(), "unacknowledged: retransmitted in vain; hole: later data arrived, this did not"),
    Column("retries", pa.int64(), "retransmissions in this time"),
    Column("retried", pa.int64(), "when the last one was sent: nanoseconds since 1970"),
    Column("size", pa.int64(), "bytes of the smallest retransmitted segment, or of the hole"),
    Column("passed", pa.int64(), "bytes of the largest segment of the sender that had arrived"),
    Column("heard", pa.int64(), "packets of the receiver in this time"),
    Column("quiet", pa.int64(), "nanoseconds of the longest time in it without new data of the receiver"),
    Column("over", pa.bool_(), "the data arrived in the end"),
)
STALL: Final = pa.struct(_fields(_STALL))

_TRANSPORT: Final = (
    Column("connection_id", pa.int64(), "key of the connection, as in connections"),
    Column("time", _TIME, "of its first packet"),
    Column("time_ns", pa.int64(), "nanoseconds since 1970"),
    Column("end_time", _TIME, "of its last packet"),
    Column("end_time_ns", pa.int64(), "nanoseconds since 1970"),
    Column(
        "client_ip",
        pa.string(),
        "the client by messages, else by the handshake; without both the end with the higher port",
    ),
    Column("client_port", pa.int32(), "port of the client"),
    Column("broker_ip", pa.string(), "address of the broker"),
    Column("broker_port", pa.int32(), "port of the broker"),
    Column(
        "opening",
        pa.string(),
        "outcome of the handshake: answered, refused, unanswered; null if its beginning is not in the capture",
    ),
    Column("syns", pa.int64(), "number of SYNs of the client"),
    Column("ended_by", pa.string(), "who closed or reset it first: client, broker; null if that is not in the capture"),
    Column("ended_with", pa.string(), "how: fin, rst"),
    Column("ended_ns", pa.int64(), "when: nanoseconds since 1970"),
    Column("quiet_ns", pa.int64(), "how long the client had sent nothing then, in nanoseconds"),
    Column("broker_round_trip_us", pa.int64(), "shortest time from the capture point to the broker and back"),
    Column("client_round_trip_us", pa.int64(), "shortest time from the capture point to the client and back"),
    Column("client_packets", pa.int64(), "packets of the client"),
    Column("broker_packets", pa.int64(), "packets of the broker"),
    Column("client_data", pa.int64(), "payload bytes of the client, including retransmitted segments"),
    Column("broker_data", pa.int64(), "the same of the broker"),
    Column("client_again", pa.int64(), "retransmitted segments of the client"),
    Column("broker_again", pa.int64(), "retransmitted segments of the broker"),
    Column("client_late", pa.int64(), "segments of the client that followed later ones: lost or reordered on the way"),
    Column("broker_late", pa.int64(), "the same of the broker"),
    Column("client_closed", pa.int64(), "number of times that the client could accept no more data (window 0)"),
    Column("broker_closed", pa.int64(), "the same of the broker"),
    Column("client_closed_us", pa.int64(), "total time for which its windows were closed"),
    Column("broker_closed_us", pa.int64(), "the same of the broker"),
    Column("client_lost", pa.int64(), "late segments of the client that were lost before the capture point"),
    Column("broker_lost", pa.int64(), "the same of the broker"),
    Column("lost_longest_us", pa.int64(), "the longest time for which one of them was missing"),
    Column(
        "broker_round_trips",
        pa.int64(),
        "number of round trips to the broker that were measured: one segment after the other, none of them sent again",
    ),
    Column("client_round_trips", pa.int64(), "the same to the client"),
    Column(
        "broker_slow_round_trips",
        pa.int64(),
        "those of at least 250 ms: kernels delay acknowledgements for 200 ms at most, so they waited on the way",
    ),
    Column("client_slow_round_trips", pa.int64(), "the same to the client"),
    Column("slowest_round_trip_us", pa.int64(), "the longest of all these round trips"),
    Column("stalls", _array(STALL), "times in which data of the client or the broker did not arrive"),
)
TRANSPORT: Final = pa.schema(_fields(_TRANSPORT))
"""Schema of the table `transport`."""

_PROBLEMS: Final = (
    Column("capture", pa.string(), "the capture that `packet` is in"),
    Column("connection_id", pa.int64(), "null for problems of a capture"),
    Column("exchange_id", pa.int64(), "null for problems of a capture or a connection"),
    Column(
        "time", _TIME, "of the packet at which it was found; for an exchange and its messages, the exchange's `time`"
    ),
    Column("time_ns", pa.int64(), "nanoseconds since 1970"),
    Column("kind", pa.string(), "name for programs (`kafkasniff help problems`)"),
    Column("detail", pa.string(), "sentence for people"),
    Column("packet", pa.int64(), "for messages the last packet; null for `internal-record`"),
    Column("direction", pa.string(), "request, response: of the stream or message affected"),
    Column("bytes", pa.int64(), "number of bytes affected"),
    Column("offset", pa.int64(), "for messages the byte affected, counted from the first after the length prefix"),
)
PROBLEMS: Final = pa.schema(_fields(_PROBLEMS))
"""Schema of the table `problems`."""

TABLES: Final = {
    "exchanges": EXCHANGES,
    "records": RECORDS,
    "connections": CONNECTIONS,
    "transport": TRANSPORT,
    "problems": PROBLEMS,
}
"""All tables, by name."""
TABLE_NAMES: Final = tuple(TABLES)

COLUMNS: Final = {
    "exchanges": _EXCHANGES,
    "partitions": _PARTITION,
    "records": _RECORDS,
    "headers": _HEADER,
    "connections": _CONNECTIONS,
    "transport": _TRANSPORT,
    "stalls": _STALL,
    "problems": _PROBLEMS,
}
"""The columns of each table, and those of the structs in its columns `partitions`, `headers` and `stalls`."""

ROWS: Final = {
    "exchanges": (
        "A row per request and its response, if any. `connection_id` and `exchange_id` are the key. A partly decoded "
        "message has its decoded part in its row."
    ),
    "partitions": "A struct per topic and partition that request or response name, in order of first appearance.",
    "records": "A row per record in Produce requests and in responses to Fetch, ShareFetch and FetchSnapshot.",
    "headers": "A struct per header of the record.",
    "connections": (
        "A row per TCP connection that carried data, Kafka or not; with filters, only those of selected exchanges."
    ),
    "transport": (
        "A row per TCP connection, judged by its packets alone, including connects that were refused or not answered. "
        "Filters do not apply to it."
    ),
    "stalls": "A struct per time in which data of the client or the broker did not arrive.",
    "problems": "A row per problem of a capture, a stream, an exchange or a message.",
}
"""What the rows of a table, or the structs of a column, are."""
