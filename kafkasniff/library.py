"""The public functions of the library: `read` captures, decode single messages."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka.messages import message as messages
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Body, Exchange, Message
from kafkasniff.sinks.jsonl import plain

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.engine.inspector import Inspector, Output
    from kafkasniff.enrich import Catalog
    from kafkasniff.tcp.packets import PacketBatch
    from kafkasniff.values.stage import ValueDecoder

__all__ = ["can_be_read_twice", "decode_request", "decode_response", "learn", "read"]

_SHOWN: Final = DecodeOptions(show_secrets=True)

Path = str | os.PathLike[str]


def read(
    paths: Path | list[Path] | tuple[Path, ...],
    *,
    enrich: bool = True,
    two_pass: bool = False,
    topic_ids: Mapping[str, str] | None = None,
    keylog: Path | None = None,
    registry: str | None = None,
    **options: Any,
) -> Iterator[Exchange]:
    """Exchanges of one or several captures, in order of completion.

    `enrich`: add facts from other messages (`_topic_name` beside topic ids, `Exchange.broker_id` …); `two_pass`: read
    the captures twice, so that facts learned late are known from the beginning; `topic_ids`: topic id → name, for names
    that no message has; `keylog`: a file with secrets that decrypt TLS (SSLKEYLOGFILE); `registry`: URL or folder of
    schemas, by which keys and values are decoded. Other `options` are those of
    `Inspector`. Bytes stay bytes in bodies. Raises CaptureError if a capture cannot be opened, UsageError if `two_pass`
    is used with input that can be read only once, or if the key log cannot be read.
    """
    # Imports that single messages do not need, especially NumPy.
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.engine.inspector import Inspector  # noqa: PLC0415
    from kafkasniff.enrich import Catalog, Enricher  # noqa: PLC0415

    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    if keylog is not None:
        from kafkasniff.capture.timeline.key_log_file import open_key_log  # noqa: PLC0415

        options["keys"] = open_key_log(keylog)
    inspector = Inspector(**{**options, "exchanges": True})
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
            arguments = {name: value for name, value in options.items() if name in {"ports", "max_frame", "memory"}}
            if keylog is not None:
                arguments["keys"] = open_key_log(keylog)
            learn(catalog, lambda: open_captures(names), arguments)
        enricher = Enricher(catalog, summary=inspector.summary)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
    with open_captures(names) as source:
        fed = itertools.chain.from_iterable(map(inspector.feed_slices, source))
        for events in itertools.chain(fed, _close(inspector)):
            if enricher is not None:
                enricher.feed(events)
            if values is not None:
                values.feed(events)
            exchanges = [event for event in events if isinstance(event, Exchange)]
            del events  # before the next ones are decoded
            yield from exchanges
            del exchanges


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
