"""The public functions of the library: `read` captures, decode single messages."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkasniff.errors import MissingExtraError, MissingPartError, UsageError
from kafkasniff.kafka.messages import message as messages
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Body, Connection, Exchange, Message
from kafkasniff.sinks.jsonl import plain
from kafkasniff.text.printable import suggestion

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.capture import CaptureSource
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.engine.message_table import Output
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.packets import PacketBatch
    from kafkasniff.values.stage import ValueDecoder

_SHOWN: Final = DecodeOptions(show_secrets=True)

Path = str | os.PathLike[str]


def read(
    paths: Path | list[Path] | tuple[Path, ...],
    *,
    filter: str | None = None,
    enrich: bool = True,
    two_pass: bool = False,
    topic_ids: Mapping[str, str] | None = None,
    keylog: Path | None = None,
    registry: str | None = None,
    **options: Any,
) -> ReadExchanges:
    """Exchanges of one or several captures, in order of completion.

    `filter`: an expression as of `--filter`, which selects exchanges; `enrich`: add facts from other messages
    (`_topic_name` beside topic ids, `Exchange.broker_id` …); `two_pass`: read the captures twice, so that facts learned
    late are known from the beginning; `topic_ids`: topic id → name, for names that no message has; `keylog`: a file
    with secrets that decrypt TLS (SSLKEYLOGFILE); `registry`: URL or folder of schemas, by which keys and values are
    decoded. Other `options` are those of `Inspector`. Bytes stay bytes in bodies. Raises UsageError for an invalid
    filter and an unknown option. Taking the first exchange raises CaptureError if a capture cannot be opened,
    UsageError if the key log cannot be read, or if `two_pass` is used with input that can be read only once.
    """
    # Imports that single messages do not need, especially NumPy.
    from kafkasniff.engine.inspector import Inspector  # noqa: PLC0415

    known = [*inspect.signature(Inspector).parameters]
    for name in options:
        if name not in known:
            raise UsageError(f"read() has no option {name}{suggestion(name, [*known, *read.__annotations__])}")
    predicate: Predicate | None = None
    if filter is not None:
        from kafkasniff.filters.expression import parse_filter  # noqa: PLC0415

        predicate = parse_filter(filter)
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    shared: dict[str, Any] = {"predicate": predicate, "topic_ids": topic_ids, "keylog": keylog}
    return ReadExchanges(
        _read(names, enrich=enrich, two_pass=two_pass, registry=registry, options=options, **shared),
        lambda: _table(names, options=options, **shared),
    )


class ReadExchanges(Iterator[Exchange]):
    """Exchanges of captures, one by one, or all of them as a table."""

    def __init__(self, exchanges: Iterator[Exchange], table: Callable[[], pa.Table]) -> None:
        self._exchanges = exchanges
        self._table = table

    def __next__(self) -> Exchange:
        return next(self._exchanges)

    def to_arrow(self) -> pa.Table:
        """All exchanges as the table `exchanges` of exports (`docs/reference/tables.md`); the captures are read again.

        Raises CaptureError, UsageError, MissingExtraError.
        """
        return self._table()

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`. Raises MissingPartError without pandas."""
        if importlib.util.find_spec("pandas") is None:
            raise MissingPartError("to_pandas() needs pandas: pip install pandas")
        return self.to_arrow().to_pandas()


def _table(
    names: list[str],
    *,
    predicate: Predicate | None,
    topic_ids: Mapping[str, str] | None,
    keylog: Path | None,
    options: Mapping[str, Any],
) -> pa.Table:
    """The exchanges of captures as a table, by way of a temporary export."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("to_arrow()", "pyarrow", "tables")
    import pyarrow as pa  # noqa: PLC0415

    from kafkasniff.analysis.accumulator import TableReading  # noqa: PLC0415
    from kafkasniff.analysis.export import Export  # noqa: PLC0415
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.filters import needs_records, needs_topic_names  # noqa: PLC0415
    from kafkasniff.tables.exports.options import ExportOptions  # noqa: PLC0415
    from kafkasniff.tables.exports.run import export  # noqa: PLC0415
    from kafkasniff.tables.rows.schemas import TABLES  # noqa: PLC0415

    given = {name: options[name] for name in ("max_frame", "show_secrets") if name in options}
    ports = tuple(sorted(set(options.get("ports", ()))))
    wanted = ExportOptions(("exchanges",), records=needs_records(predicate), ports=ports, **given)
    keys = None if keylog is None else os.fspath(keylog)

    def names_first(catalog: Catalog, paths: Sequence[str]) -> None:
        learn(catalog, lambda: open_captures(paths), _framing(options, keylog))

    with tempfile.TemporaryDirectory(prefix="kafkasniff-") as folder:
        place = os.path.join(folder, "tables")
        export(
            names,
            place,
            wanted,
            given=topic_ids,
            predicate=predicate,
            learn=names_first if needs_topic_names(predicate) else None,
            keylog=keys,
            memory=options.get("memory"),
        )
        schema = TABLES["exchanges"]
        batches = Export.open(place).batches("exchanges", TableReading(tuple(schema.names)))
        return pa.Table.from_batches(batches, schema)


def _framing(options: Mapping[str, Any], keylog: Path | None) -> dict[str, Any]:
    """The options that decide what is decoded, for a reading of names."""
    arguments = {name: value for name, value in options.items() if name in {"ports", "max_frame", "memory"}}
    if keylog is not None:
        from kafkasniff.capture.timeline.key_log_file import open_key_log  # noqa: PLC0415

        arguments["keys"] = open_key_log(keylog)
    return arguments


def _read(
    names: list[str],
    *,
    predicate: Predicate | None,
    enrich: bool,
    two_pass: bool,
    topic_ids: Mapping[str, str] | None,
    keylog: Path | None,
    registry: str | None,
    options: Mapping[str, Any],
) -> Iterator[Exchange]:
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.engine.inspector import Inspector  # noqa: PLC0415
    from kafkasniff.enrich import Catalog, Enricher  # noqa: PLC0415
    from kafkasniff.filters import Selector  # noqa: PLC0415

    inspector = Inspector(**{**options, **_framing(options, keylog), "exchanges": True})
    selector = Selector(predicate)
    values: ValueDecoder | None = None
    if registry is not None:
        from kafkasniff.values.registries import open_registry  # noqa: PLC0415
        from kafkasniff.values.stage import ValueDecoder, ValueSchemas  # noqa: PLC0415

        values = ValueDecoder(ValueSchemas(open_registry(registry, os.environ)), inspector.summary)
    enricher: Enricher | None = None
    if enrich:
        catalog = Catalog(topic_ids)
        if two_pass:
            once = next((name for name in names if not can_be_read_twice(name)), None)
            if once is not None:
                raise UsageError(f"{once} can be read only once")
            learn(catalog, lambda: open_captures(names), _framing(options, keylog))
        enricher = Enricher(catalog, summary=inspector.summary)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
    with open_captures(names) as source:
        for events in itertools.chain(_fed(inspector, source, selector), _close(inspector)):
            if enricher is not None:
                enricher.feed(events)
            if values is not None:
                values.feed(events)
            selected: Sequence[object] = events
            if predicate is not None:
                selected = selector.feed(event for event in events if not isinstance(event, Connection))
            exchanges = [event for event in selected if isinstance(event, Exchange)]
            del events, selected  # before the next ones are decoded
            yield from exchanges
            del exchanges


def _fed(inspector: Inspector, source: CaptureSource, selector: Selector) -> Iterator[list[Output]]:
    for batch in source:
        selector.begins(batch.time_ns)
        yield from inspector.feed_slices(batch)


def _close(inspector: Inspector) -> Iterator[list[Output]]:
    """Exchanges that were still open, when the packets have ended."""
    yield from inspector.close_slices()


def can_be_read_twice(name: str) -> bool:
    """Whether a capture can be read a second time, unlike standard input (`-`) and pipes.

    Captures that cannot be opened at all are reported by the code that opens them.
    """
    try:
        mode = os.stat(name).st_mode if name != "-" else stat.S_IFIFO
    except (OSError, ValueError):
        return True
    return not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode))


def learn(
    catalog: Catalog,
    open_source: Callable[[], CaptureSource],
    options: Mapping[str, Any],
    *,
    parts: Callable[[CaptureSource], Iterable[PacketBatch]] = iter,
) -> None:
    """Read captures for facts about topics, brokers and clients, which `catalog` then knows from the beginning.

    `open_source` opens the captures, `options` are those of the `Inspector`, `parts` defines the pieces in which
    packets are taken. Records are skipped, which makes it fast; if ids without a name remain and KRaft's metadata log
    was captured, the captures are read again with records. Raises what `open_source` raises.
    """
    from kafkasniff.engine.inspector import Inspector  # noqa: PLC0415
    from kafkasniff.enrich import Enricher  # noqa: PLC0415

    catalog.retroactive = True
    for records in ("skip", "full"):
        inspector: Inspector = Inspector(**{**options, "records": records, "exchanges": False})
        enricher = Enricher(catalog, adds=False)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
        with open_source() as source:
            for batch in parts(source):
                for events in inspector.feed_slices(batch):
                    enricher.feed(events)
        for events in inspector.close_slices():
            enricher.feed(events)
        catalog.hosts = inspector.names
        if not enricher.wants_metadata_log:
            break
    catalog.retroactive = False


def decode_request(data: bytes) -> Message:
    """Decode one request, header and body, without its length prefix.

    Never raises on bad bytes: then `problems` describes what is wrong, and `header` and `body` may be None. Values are
    as in the JSON lines (bytes that are not text as `{"base64": …}`); secrets are shown.
    """
    return _message("request", data, messages.decode_request(data, 0, len(data), _SHOWN))


def decode_response(data: bytes, api_key: int, api_version: int) -> Message:
    """Decode one response, header and body, without its length prefix; a response does not name its request.

    Values and errors as for `decode_request`.
    """
    return _message("response", data, messages.decode_response(data, 0, len(data), api_key, api_version, _SHOWN))


def _message(kind: Any, data: bytes, decoded: messages.Decoded) -> Message:
    header: Body | None = None if decoded.header is None else plain(decoded.header)
    body: Body | None = None if decoded.body is None else plain(decoded.body)
    fields = {name: getattr(decoded, name) for name in decoded.__struct_fields__ if name in Message.__struct_fields__}
    return msgspec.structs.replace(Message(kind, len(data)), **{**fields, "header": header, "body": body})
