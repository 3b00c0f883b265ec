"""The kinds of problems, with their meanings: for `kafkasniff help problems` and the reference."""

from __future__ import annotations

from typing import Final

PROBLEM_KINDS: Final = {
    "Captures": {
        "capture-broken": "the file violates its format; reading continues at the next valid packet if one is found",
        "capture-cut": (
            "the file or pipe ends in the middle of a packet, or a captured interface did not come back; everything "
            "before it was read"
        ),
        "capture-loss": "packets were lost while capturing, as the capture or the kernel reports",
        "capture-skipped": "an export skipped a file that is empty or not a capture (`--on-bad-capture`)",
        "date-bound": (
            "a table of an export has rows of more than 400 dates; some are in the partition `date=1970-01-01`"
        ),
        "interface-down": "a captured interface was down or gone; the detail says for how long nothing was captured",
        "ip-fragment-dropped": "an IP datagram whose fragments could not be reassembled",
        "link-type-unknown": "packets of an unknown link type; they are not read",
        "live-behind": "a live capture receives packets faster than it decodes them; it now decodes less",
        "live-caught-up": "a live capture has caught up; the detail says what was skipped",
        "memory-bound": "the process reached a memory bound; the detail says what it dropped and why",
        "packet-cut-headers": (
            "packets cut by the snap length before the end of their TCP header; the detail says how many"
        ),
        "packet-malformed": "packets with contradictory headers; the detail says how many",
        "request-log": "the file is a log, or state of a broker; the detail says what a capture has in addition",
    },
    "Connections and streams": {
        "answer-not-kafka": (
            "the client speaks Kafka but something else answers, such as a TLS listener or a web server"
        ),
        "connection-rejected": (
            "the broker closed the connection before it answered more than handshake and authentication, or in the "
            "middle of a large request; the detail gives the probable cause"
        ),
        "frame-incomplete": "some bytes of this message are not in the capture; the rest was decoded",
        "frame-size": "an impossible length prefix; the stream is searched for the next frame",
        "frame-unreadable": (
            "a frame of a synchronised stream that is neither request nor response, such as a raw SASL token; its "
            "bytes are not shown. Consecutive frames that are too short for a header are one further problem"
        ),
        "not-kafka": (
            "the connection uses another protocol, at an endpoint that spoke Kafka before or on a port given by "
            "`--port`"
        ),
        "one-direction": (
            "the capture has one direction of the connection, as from some mirror ports (SPAN) and paths (ECMP). Its "
            "requests are `lost`, not `unanswered`"
        ),
        "proxy-protocol": "a PROXY protocol header precedes the stream; the detail gives its endpoints",
        "stream-cut": "the stream ended in the middle of a frame or a TLS record",
        "stream-resync": (
            "bytes were skipped until the next frame was found, after a gap or where the capture starts in the middle"
            " of a stream"
        ),
        "tcp-data-after-fin": "data after the FIN of its stream; ignored",
        "tcp-data-after-rst": "data sent after the other side's RST; not decoded, reported once per connection",
        "tcp-fin-ignored": "a FIN whose sequence number does not fit its stream",
        "tcp-gap": "`bytes` bytes were sent but are not in the capture",
        "tcp-out-of-window": "data too far from the expected sequence number to belong to the stream; ignored",
        "tcp-rst-ignored": "a RST whose sequence number is outside the window of its stream",
        "tcp-syn-ignored": "a SYN on an open connection that did not start a new connection",
        "tls-alert": "one side ended TLS with an unusual alert; the detail names it",
        "tls-key-log": "unusable lines of a key log: the first 20 by line number, the rest as a count",
        "tls-lost": "decryption of a stream ended: no record could be found after missing or damaged bytes",
        "tls-not-decrypted": "a TLS connection that was not decrypted; the detail says why, and what is visible",
        "tls-record-damaged": "a TLS record that its keys cannot decrypt: damaged in the capture, or forged",
    },
    "Exchanges": {
        "latency-negative": (
            "the response begins before its request ends: the packet order or the clocks of the capture are wrong"
        ),
        "orphan-response": (
            "the request with this correlation id was in missing bytes or before the capture; the body is not decoded"
        ),
        "request-unanswered": (
            "the connection ended without a response. If the broker had closed its side before the request was sent, "
            "the detail says how long before"
        ),
        "response-lost": "the response was in bytes missing from the capture",
        "response-out-of-order": "a response came before that of an earlier request",
        "response-to-acks-0": "the broker answered a Produce request that asked for no response",
        "sasl-refused": (
            "authentication was refused: wrong mechanism, wrong order, a listener without SASL, or wrong credentials"
        ),
    },
    "Messages": {
        "api-unknown": "unknown API key; only the header was decoded",
        "array-too-long": "an array with more elements than remaining bytes; the body ends before it",
        "body-let-go": "the request's body was dropped because pending requests used too much memory; it is null",
        "body-skipped": "a live capture could not keep up: the body was not decoded and is null",
        "body-truncated": "a field extends past the end; the body contains the fields before it",
        "body-withheld": (
            "a malformed message that may contain secrets: only its numbers are shown, unless `--show-secrets`"
        ),
        "bool-not-0-or-1": "a boolean with another value, read as true",
        "envelope-nesting": "envelopes nested too deep",
        "group-protocol": (
            "topics or assignments of a group's members could not be decoded to the end; the adjacent `_<field>` has "
            "the fields before"
        ),
        "header-truncated": "the header could not be decoded",
        "length-negative": "a negative length where null is not possible; the body ends before it",
        "metrics-bound": "pushed metrics with too many points and attributes; the detail says how many were omitted",
        "metrics-malformed": "pushed metrics that do not follow OpenTelemetry's format",
        "more-problems": "this message has more problems than are kept; the detail says how many",
        "null-not-allowed": "null in a field that must not be null; read as null",
        "string-not-utf8": "a string that is not UTF-8; shown as bytes",
        "struct-mark-odd": "the byte before a nullable struct is neither -1 (null) nor 1; read by its sign",
        "tag-size-mismatch": (
            "a tagged field takes more or fewer bytes than its size; decoding continues after that size"
        ),
        "tags-not-ascending": "tagged fields out of order or repeated",
        "too-many-elements": "more elements in one message than are kept in memory; the body ends before them",
        "trailing-bytes": "bytes after the end of the body; some clients send them",
        "varint-too-long": "a varint longer than its type allows; the body ends before it",
        "version-unknown": "a known API in an unknown version; only the header was decoded",
    },
    "Records": {
        "batch-attributes": "undefined attribute bits are set",
        "batch-length": "an impossible batch length; the rest of the field is counted in `truncated_bytes`",
        "compression-codec": "an unknown compression codec; the records of the batch are not decoded",
        "control-record": "a malformed control record; its key and value are shown as bytes",
        "crc-mismatch": "a wrong checksum; the batch was decoded nevertheless",
        "decompression-bound": (
            "the records would exceed a bound when decompressed. The header of the batch is shown, its records are not"
        ),
        "decompression-failed": "the compressed records are damaged",
        "decompression-trailing": "bytes after the end of the compressed records",
        "internal-record": "a record of one of Kafka's own topics that is malformed, or of an unknown type or version",
        "message-magic": "a compressed message contains messages of another format version",
        "message-malformed": "a malformed message of the legacy formats",
        "message-nesting": "compressed messages nested too deep",
        "message-wrapper-key": "a compressed message has a key, which Kafka never sets",
        "record-bound": "more batches, records or headers than the bounds of a message or batch allow",
        "record-count": "a batch has more or fewer records than it states",
        "record-magic": "an unknown format version of records; the rest of the field is counted in `truncated_bytes`",
        "record-malformed": "a malformed record; the records of the batch end before it",
        "record-search": "a slice of a snapshot in which no batch was found",
        "records-skipped": (
            "a live capture could not keep up: records were not decoded, and batches are shown without them"
        ),
        "records-truncated": "the records of a Produce request end within a batch; this is normal in a Fetch response",
        "schema-bound": "more schema ids than are looked up in one run; the detail gives the bound",
        "schema-invalid": "a schema of the registry that cannot be used, reported once; its values are not decoded",
        "schema-registry": (
            "the registry (`--registry`) does not answer, or refuses; it is asked again after half a minute"
        ),
        "schema-unknown": "a schema id that the registry does not have, reported once; its values are not decoded",
        "schema-value": (
            "keys or values that do not follow their schema, or are too large to decode; the detail names the first"
        ),
    },
}
"""By what they are about. A kind keeps its name between releases."""
