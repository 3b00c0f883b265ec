"""Single values as bytes, passed between stages of a run through files: exchanges, connections, problems.

As in a state they are data of types known in advance, checked field by field. Unlike a state they are trees, without
shared objects and without a header line: writer and reader belong to the same run.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.tables.checkpoint.wire import codec_of, decoder, encode

__all__ = ["Values"]

_Kind = TypeVar("_Kind")


class Values(Generic[_Kind]):
    """Values of one type: a struct, a named tuple, or a tuple of such."""

    __slots__ = ("_decoder", "_name", "_read", "_write")

    def __init__(self, kind: Any) -> None:
        """Raises TypeError if values of the type cannot be written."""
        codec = codec_of(kind, ())
        self._name: Final = getattr(kind, "__name__", str(kind))
        self._write, self._read = codec.write, codec.read
        self._decoder: Final = decoder(codec.wire)

    def dump(self, value: _Kind) -> bytes:
        """A value as bytes. Hot: called once per exchange."""
        return encode(value if self._write is None else self._write(value, _no_number))

    def load(self, data: bytes | memoryview) -> _Kind:
        """The dumped value. Raises UsageError if the bytes are not one. Hot."""
        try:
            found: Any = self._decoder.decode(data)
            loaded: _Kind = found if self._read is None else self._read(found, ())
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(f"what a task wrote is damaged ({self._name}: {ascii(str(error))[1:-1]})") from error
        return loaded


def _no_number(value: Any) -> int:
    raise TypeError(f"a {type(value).__qualname__} has no number here")
