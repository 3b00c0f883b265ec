"""The bytes of an exchange as rows, and which of them show a field of the tree."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kafkasniff.model import Exchange
from kafkasniff.sinks.hex_view import HexRow, HexView
from kafkasniff.text.printable import PLAIN

__all__ = ["MAX_ROWS", "ByteRows", "body_path"]

MAX_ROWS: Final = 20_000
"""Maximum number of rows of bytes for each message; `decode -xx` shows all."""
_RECORD: Final = re.compile(r"\.records\[\d+\](?=\.|$)")
_ON_THE_WIRE: Final = {
    "offset": "offset_delta",
    "timestamp": "timestamp_delta",
    "crc_ok": "crc",
    "compression": "attributes",
    "timestamp_type": "attributes",
    "transactional": "attributes",
    "control": "attributes",
    "base_offset": "offset",
    "batch_length": "message_size",
}
"""Fields of batches and records in bodies, and the bytes from which they are made; the last two are of old formats."""
_IN_BODIES: Final = {"offset_delta": "offset", "timestamp_delta": "timestamp", "attributes": "compression"}


class ByteRows:
    """Rows of request and response, as `decode -x` shows them; the first of each names it.

    `width`: columns available; `whole`: all bytes of long fields.
    """

    def __init__(self, exchange: Exchange | None, width: int, *, whole: bool = False) -> None:
        self.rows: list[HexRow] = []
        self._starts: list[int] = []
        """The first row of each message."""
        self._places: list[dict[str, tuple[int, int]]] = []
        """First and last row of each field of a message, with all that is in it."""
        view = HexView(PLAIN, whole=whole, secrets=False, width=max(width, 80))
        for message in () if exchange is None else (exchange.request, exchange.response):
            if message is None:
                continue
            self._starts.append(len(self.rows))
            self._places.append({})
            self.rows.append(HexRow(message.type))
            if message.frame is None:
                self.rows.append(HexRow("no bytes: an export does not have them"))
                continue
            rows = view.rows(message, message.frame)
            for row in islice(rows, MAX_ROWS):
                self._note(row.path)
                self.rows.append(row)
            if next(rows, None) is not None:
                self.rows.append(HexRow("… more bytes, shown by decode -xx"))

    def _note(self, path: str) -> None:
        here, places = len(self.rows), self._places[-1]
        while path:
            first, _ = places.get(path, (here, here))
            places[path] = first, here
            path = _above(path)

    def message_of(self, row: int) -> int:
        """The message of a row, as its place among those that were seen."""
        return bisect_right(self._starts, row) - 1

    def find(self, message: int, path: str) -> range:
        """The rows that show a field of the tree, or the closest one around it; of all of a message, its first."""
        for one in _byte_paths(path):
            found = self._places[message].get(one)
            if found is not None:
                return range(found[0], found[1] + 1)
        return range(self._starts[message], self._starts[message] + 1)


def _above(path: str) -> str:
    """The path of the struct or array around a field or element."""
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _byte_paths(path: str) -> Iterator[str]:
    """The fields on the wire that a field of a body may come from, the closest first."""
    while path:
        yield path
        above, dot, name = path.rpartition(".")
        yield f"{above}{dot}{_ON_THE_WIRE.get(name, name.removeprefix('_'))}"
        # Old formats: messages in a compressed one, and one that is its own batch.
        yield _RECORD.sub(lambda found: found[0].replace("records", "messages"), path)
        yield _RECORD.sub("", path)
        path = _above(path)


def body_path(path: str) -> str:
    """The field of a body that is made from a field on the wire; the body may lack it, but not what is around it."""
    above, dot, name = path.rpartition(".")
    return f"{above}{dot}{_IN_BODIES.get(name, name)}".replace(".messages[", ".records[")
