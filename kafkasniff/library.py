"""The library's front door: `read` captures, decode single messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kafkasniff.kafka import message as messages
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.model import Body, Exchange, Message
from kafkasniff.sinks.jsonl import plain

__all__ = ["decode_request", "decode_response", "read"]

_SHOWN: Final = DecodeOptions(show_secrets=True)

Path = str | os.PathLike[str]


def read(paths: Path | list[Path] | tuple[Path, ...], **options: Any) -> Iterator[Exchange]:
    """Exchanges of one or several captures, in order of completion.

    `options` are those of `Inspector`. Bytes stay bytes in bodies. Raises CaptureError if a capture cannot be opened.
    """
    # What single messages do not need, NumPy above all, is imported here.
    from kafkasniff.capture import open_captures  # noqa: PLC0415
    from kafkasniff.inspector import Inspector  # noqa: PLC0415

    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    inspector = Inspector(**{**options, "exchanges": True})
    with open_captures([os.fspath(path) for path in paths]) as source:
        for batch in source:
            yield from (event for event in inspector.feed(batch) if isinstance(event, Exchange))
    yield from (event for event in inspector.close() if isinstance(event, Exchange))


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
