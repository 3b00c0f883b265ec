"""The library's front door: `read` captures, decode single messages."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.kafka import message as messages
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.model import Body, Exchange, Message
from kafkasniff.sinks.jsonl import plain

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.enrich import Catalog
    from kafkasniff.inspector import Inspector, Output
    from kafkasniff.packets import PacketBatch

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
    **options: Any,
) -> Iterator[Exchange]:
    """Exchanges of one or several captures, in order of completion.

    `enrich`: add what other messages tell (`_topic_name` beside topic ids, `Exchange.broker_id` …); `two_pass`: read
    the captures twice, so that what is told later is known from the beginning; `topic_ids`: topic id → name, for what
    no message tells; `keylog`: a file with secrets that decrypt TLS (SSLKEYLOGFILE). Other `options` are those of
    `Inspector`. Bytes stay bytes in bodies. Raises CaptureError if a capture cannot be opened, UsageError where
    `two_pass` is asked of what can be read only once, or the key log cannot be read.
    """
    # What single messages do not need, NumPy above all, is imported here.
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.enrich import Catalog, Enricher  # noqa: PLC0415
    from kafkasniff.inspector import Inspector  # noqa: PLC0415

    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    if keylog is not None:
        from kafkasniff.capture.key_log_file import open_key_log  # noqa: PLC0415

        options["keys"] = open_key_log(keylog)
    inspector = Inspector(**{**options, "exchanges": True})
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
            exchanges = [event for event in events if isinstance(event, Exchange)]
            del events  # before the next ones are decoded
            yield from exchanges
            del exchanges


def _close(inspector: Inspector) -> Iterator[list[Output]]:
    """What was still open, asked for when the packets have ended."""
    yield from inspector.close_slices()


def can_be_read_twice(name: str) -> bool:
    """Whether a capture is still there when it was read, other than standard input (`-`) and pipes.

    What cannot be opened at all is for who opens it to tell.
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
    """Read captures for what they tell about topics, brokers and clients; `catalog` knows it from the beginning then.

    `open_source` opens the captures, `options` are those of the `Inspector`, `parts` says in which pieces packets are
    taken. Records are left out, which makes it fast; where ids without a name are left and KRaft's metadata log passed
    by, the captures are read again with them. Raises what `open_source` raises.
    """
    from kafkasniff.enrich import Enricher  # noqa: PLC0415
    from kafkasniff.inspector import Inspector  # noqa: PLC0415

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

    Never raises on bad bytes: then `problems` tells what is wrong, and `header` and `body` may be None. Values are as
    in the JSON lines (bytes that are not text as `{"base64": …}`); secrets are shown.
    """
    return _message("request", data, messages.decode_request(data, 0, len(data), _SHOWN))


def decode_response(data: bytes, api_key: int, api_version: int) -> Message:
    """Decode one response, header and body, without its length prefix; a response does not say what it answers.

    Values and errors as for `decode_request`.
    """
    return _message("response", data, messages.decode_response(data, 0, len(data), api_key, api_version, _SHOWN))


def _message(kind: Any, data: bytes, decoded: messages.Decoded) -> Message:
    header: Body | None = None if decoded.header is None else plain(decoded.header)
    body: Body | None = None if decoded.body is None else plain(decoded.body)
    fields = {name: getattr(decoded, name) for name in decoded.__struct_fields__ if name in Message.__struct_fields__}
    return msgspec.structs.replace(Message(kind, len(data)), **{**fields, "header": header, "body": body})
