"""The formats in which messages are written, by their names in `--format`, and the keys of JSON lines.

A format is added by an entry in `FORMATS`: the options, the engine and `--jobs` ask only that entry. Modules of sinks
are imported when their format is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from kafkasniff.engine.lines import Ends, LineMaker, MakeLines
    from kafkasniff.enrich import Enricher
    from kafkasniff.filters.fields import FilterField
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.native.library import Kernel
    from kafkasniff.redact.payload import Payload
    from kafkasniff.sinks.jsonl import BytesForm
    from kafkasniff.sinks.lines import ByteOutput, FormatSink


# -- keys of JSON lines ------------------------------------------------------------------------------------------------


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


# -- formats -----------------------------------------------------------------------------------------------------------


Left = Callable[[], int] | None
"""Returns how many messages may still be written; None: all of them."""


class SinkSettings(NamedTuple):
    """What users choose, and what the output is; a format ignores the parts that do not concern it."""

    payload: Payload
    """How payload is shown."""
    captures: bool = False
    """There are several captures: show which one."""
    terminal: bool = False
    """The output is a terminal."""
    colour: bool = False
    encoding: str = "utf-8"
    """Encoding of text. JSON and CSV are UTF-8."""
    width: int = 120
    """Columns available for text."""
    verbosity: int = 0
    """0: lines; 1: bodies as well; 2: records as well."""
    hex: int = 0
    """1: also bytes; 2: all of them."""
    secrets: bool = False
    """Secrets are shown."""
    names: Mapping[str, str] | None = None
    """Address, or address:port, → the name shown for it."""
    bytes_form: BytesForm = "auto"
    """How bytes are written in JSON."""


class Format(NamedTuple):
    """How messages can be written."""

    summary: str
    """Its name in a sentence."""
    open: Callable[[ByteOutput, SinkSettings], FormatSink]
    """Create the sink."""
    line_maker: (
        Callable[[Kernel, FormatSink, SinkSettings, Enricher, Renderer | None, Left], MakeLines | None] | None
    ) = None
    """The native kernel's writer of the same lines, given the stage before the sink and the renderer of bodies; it
    returns None if the kernel cannot write them with these settings. Without it, Python writes every line."""
    bodies: Literal["decoded", "json"] = "decoded"
    """The sink takes bodies as dicts, or also as JSON that the kernel rendered."""
    records_from: int | None = None
    """The verbosity from which records are decoded; None: only if the user asks for them."""
    shows_hex: bool = False
    """It can show the bytes of messages."""
    lines_ahead: bool = False
    """No line depends on earlier ones, so that threads can make them ahead."""


def _open_text(stream: ByteOutput, settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.text import FILE_COLUMNS, TextSink, column_widths

    if settings.terminal:
        from kafkasniff.sinks.lines import TerminalOutput

        stream = TerminalOutput(stream, settings.width, settings.encoding)
    return TextSink(
        stream,
        verbosity=settings.verbosity,
        hex=settings.hex,
        secrets=settings.secrets,
        colour=settings.colour,
        encoding=settings.encoding,
        width=settings.width,
        captures=settings.captures,
        names=settings.names,
        payload=settings.payload,
        columns=column_widths(settings.width) if settings.terminal else FILE_COLUMNS,
    )


def _text_lines(
    native: Kernel,
    sink: FormatSink,
    _settings: SinkSettings,
    enricher: Enricher,
    _renderer: Renderer | None,
    left: Left,
) -> MakeLines | None:
    from kafkasniff.sinks.text import TextSink

    assert isinstance(sink, TextSink)
    if not sink.writes_plain_lines:
        return None
    text = sink

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.sinks.native_text import NativeText

        if ahead:
            raise ValueError("each line of text depends on those before it")
        return NativeText(native, text, ends, capture, enricher, left)

    return make


def _open_json(stream: ByteOutput, settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.jsonl import JsonSink

    return JsonSink(
        stream,
        form=settings.bytes_form,
        capture=settings.captures,
        payload=settings.payload,
        terminal=settings.terminal,
    )


def _json_lines(
    native: Kernel,
    _sink: FormatSink,
    settings: SinkSettings,
    enricher: Enricher,
    renderer: Renderer | None,
    _left: Left,
) -> MakeLines | None:
    if renderer is None:
        return None

    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.sinks.native_lines import NativeLines

        return NativeLines(
            native,
            renderer,
            ends,
            capture,
            enricher,
            names_captures=settings.captures,
            terminal=settings.terminal,
            ahead=ahead,
        )

    return make


def _csv_lines(
    native: Kernel,
    _sink: FormatSink,
    _settings: SinkSettings,
    enricher: Enricher,
    _renderer: Renderer | None,
    _left: Left,
) -> MakeLines:
    def make(ends: Callable[[int], Ends], capture: Callable[[int], str | None], *, ahead: bool = False) -> LineMaker:
        from kafkasniff.enrich.plan import shows_nothing
        from kafkasniff.kafka.messages.rendered import Renderer
        from kafkasniff.sinks.csv import CSV
        from kafkasniff.sinks.native_lines import NativeLines

        renderer = Renderer(native, "auto", shows_nothing)
        return NativeLines(native, renderer, ends, capture, enricher, shape=CSV, names_captures=True, ahead=ahead)

    return make


def _open_csv(stream: ByteOutput, _settings: SinkSettings) -> FormatSink:
    from kafkasniff.sinks.csv import CsvSink

    return CsvSink(stream)


FORMATS: Final[Mapping[str, Format]] = {
    "text": Format("text", _open_text, _text_lines, records_from=2, shows_hex=True),
    "json": Format("JSON lines", _open_json, _json_lines, bodies="json", records_from=0, lines_ahead=True),
    "csv": Format("CSV without bodies", _open_csv, _csv_lines, lines_ahead=True),
}
"""The first one is the default."""


def fields_format(fields: Sequence[FilterField], form: str) -> Format:
    """The format of rows with these fields: `form` is "text", "csv" or "json"."""

    def opened(stream: ByteOutput, settings: SinkSettings) -> FormatSink:
        from kafkasniff.sinks.csv import FieldsSink

        return FieldsSink(stream, fields, form, settings.payload, settings.bytes_form)

    return Format(f"fields as {form}", opened)
