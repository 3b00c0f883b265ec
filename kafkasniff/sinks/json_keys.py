"""The keys of JSON lines and their meanings: for `kafkasniff help json` and the reference."""

from __future__ import annotations

from typing import Final

JSON_KEYS: Final = {
    "Requests and responses": {
        "type": "`request` or `response`",
        "exchange": "number shared by a request and its response",
        "connection": "number of the TCP connection",
        "time": (
            "of the packet that completed the message: RFC 3339 in UTC with nine digits; null if the capture has no "
            "times"
        ),
        "client": "`10.0.0.5:51334`, IPv6 as `[::1]:9092`",
        "broker": "likewise",
        "api_key": "of the request; responses repeat it",
        "api": "its name; null for an unknown key",
        "api_version": "of the request; responses repeat it",
        "correlation_id": "number that pairs the messages",
        "client_id": "of the request; responses repeat it",
        "size": "the length prefix: bytes of header and body",
        "first_packet": "lowest number of the packets that delivered its bytes, from 1",
        "last_packet": "highest number",
        "problems": "`[{kind, detail, offset}]`",
        "latency_ms": (
            "responses: from the completion of the request to the packet with the response's first byte; null if a "
            "time or the request is missing, negative if two capture points disagree"
        ),
        "duration_ms": "responses: from the packet with the request's first byte to the completion of the response",
        "errors": "responses: each non-zero error code as `{code, name, path}`; the name of an unknown code is null",
        "body": "the fields of the message; null if nothing of it could be decoded",
        "capture": "the capture of the completing packet; only with several captures in one call",
        "header_tags": "tagged fields of the header, `[{tag, base64}]`; only if it has any",
        "body_version": "the version that the body was decoded as; only if it is not `api_version`",
        "raw": (
            "everything after the header in base64, `{redacted: N}` if it may hold a secret; only if the body could "
            "not be decoded to its end"
        ),
    },
    "Raw SASL tokens": {
        "type": "`sasl`",
        "connection": "number of the TCP connection",
        "time": "of the packet that completed the token",
        "client": "as in messages",
        "broker": "as in messages",
        "direction": "`request` or `response`",
        "size": "bytes of the token",
        "mechanism": "of the connection's SaslHandshake; null if unknown",
        "capture": "only with several captures in one call",
        "token": "`{redacted: N}`, unless you give `--show-secrets`",
        "_token": "its parts that are not secret, as in `_auth_bytes`; only if they are known",
    },
    "Problems of streams and captures": {
        "type": "`problem`",
        "kind": "name for programs, see `kafkasniff help problems`",
        "detail": "sentence for people",
        "connection": "number of the TCP connection; null for a problem of a capture",
        "time": "of the packet at which it was found; null if unknown",
        "capture": "name; null if unknown",
        "packet": "number of that packet; null if unknown",
        "direction": "stream affected, `request` or `response`; null if it is not about one stream",
        "bytes": "number of bytes affected; null if unknown",
        "exchange": "number; only if the problem is about how an exchange ended",
    },
    "Records fields": {
        "batches": "record batches; in a legacy message set (magic 0 and 1), each outermost message is one",
        "truncated_bytes": "bytes after the last whole batch, which are normal in a Fetch response",
        "leading_bytes": "FetchSnapshot: bytes of the slice before its first whole batch",
    },
    "Batches": {
        "base_offset": "as in the batch",
        "batch_length": "as in the batch",
        "partition_leader_epoch": "as in the batch; only in magic 2",
        "magic": "format: 0, 1, 2",
        "crc": "checksum in the batch",
        "crc_ok": "whether it is right",
        "compression": "`none`, `gzip`, `snappy`, `lz4`, `zstd`",
        "timestamp_type": "`CreateTime`, `LogAppendTime`; not in magic 0",
        "transactional": "only in magic 2",
        "control": "whether its records are markers of transactions or of the quorum; only in magic 2",
        "last_offset_delta": "only in magic 2",
        "base_timestamp": "milliseconds since 1970; only in magic 2",
        "max_timestamp": "milliseconds since 1970; not in magic 0",
        "producer_id": "-1 for a producer that is not idempotent; only in magic 2",
        "producer_epoch": "only in magic 2",
        "base_sequence": "only in magic 2",
        "_delete_horizon": (
            "time from which compaction may remove its tombstones, in milliseconds; only if the batch has one"
        ),
        "record_count": "number of records",
        "records": "omitted with `--no-records`",
    },
    "Records": {
        "offset": "number in the partition; in a Produce request from 0 in each batch",
        "timestamp": "milliseconds since 1970; null in magic 0",
        "key": "bytes; `{length}` with `--no-payload`, `{hash, length}` with `--hash-payload`",
        "value": "likewise",
        "headers": "`[{key, value}]`",
    },
    "Decoded values": {
        "_key": "key of a record of Kafka's own topics, or the id of its schema",
        "_value": "value of a record of Kafka's own topics or of Kafka Connect, or the id of its schema",
        "_control": "content of a control record",
        "_trace_ids": "trace ids in the headers of a record, at most eight",
        "_metadata": "what a member of a group subscribes to",
        "_assignment": "what a member of a group is assigned",
        "_member_metadata": "as `_metadata`, in DescribeGroups",
        "_member_assignment": "as `_assignment`, in DescribeGroups",
        "_subscription": "as `_metadata`, in records of `__consumer_offsets`",
        "_user_data": "what an assignor adds to a subscription or an assignment",
        "_allocation": "what a worker of Kafka Connect runs",
        "_authorized_operations": "names of the operations in the bit set",
        "_topic_authorized_operations": "likewise",
        "_cluster_authorized_operations": "likewise",
        "_auth_bytes": "the SASL message in SaslAuthenticate, without its secrets",
        "_request": "the request in an Envelope",
        "_response": "the response in an Envelope; only if its request was captured",
        "_request_principal": "the client's principal in an Envelope",
        "_client_host_address": "the client's address in an Envelope",
        "_metrics": "the metrics in PushTelemetry",
        "_topic_name": "name of the topic with this `topic_id`; only if it is known",
        "_session": "size of the fetch session after the request: `{partitions}`, above 100 topics also `topics`",
        "_unknown_tags": "tagged fields that the version does not define, `[{tag, base64}]`",
    },
}
"""By the kind of object. Keys that begin with `_` are not on the wire: they interpret the value next to them."""
