"""Forms of a body that only stages of the same run see: large ones, and ones that are rendered already.

A `LargeBody` is a `model.Body` like any other. The rendered forms replace bodies, and records in bodies, that only a
sink of JSON lines reads. No event that leaves the run has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.model import Body, ErrorCode

__all__ = ["LARGE_BODY", "BodyWithErrors", "LargeBody", "RenderedBody", "RenderedRecords"]


class LargeBody(dict[str, Any]):
    """A body that takes much memory (`LARGE_BODY`), so sinks render it in pieces; otherwise an ordinary dict."""

    __slots__ = ()


LARGE_BODY: Final = 4 << 20
"""Bytes of a message, including decompressed ones, from which on its body is a `LargeBody`."""


class BodyWithErrors(NamedTuple):
    """A decoded body with error codes."""

    body: Body
    errors: tuple[ErrorCode, ...]


class RenderedBody(msgspec.Struct, frozen=True, gc=False):
    """Replaces a body in a run that only writes JSON lines, if nothing else needs messages of its kind.

    Only an `Inspector` with a renderer yields such bodies, and only a sink of the same run gets them.
    """

    json: bytes
    """The body as in the JSON lines."""
    errors: tuple[Any, ...] = ()
    """Its error codes that are not zero, as `ErrorCode`."""


class RenderedRecords(msgspec.Struct, frozen=True, gc=False):
    """Replaces a `records` field in such a run: only its JSON is needed."""

    json: bytes
    truncated: int
    """Its `truncated_bytes`."""
    decode: Callable[[], Body]
    """Creates the field's value as in any other run, for code that needs it after all."""
