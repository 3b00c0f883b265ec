"""Columns of exchanges: what the list shows and sorts by. Bodies are not kept, they are read again.

One thread appends, another reads. A row is visible once `len` counts it, and rows never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.browse.row_facts import MISSING, NUMBERS, TEXTS, UNKNOWN, Block, column_block, exchange_row
from kafkasniff.engine.paired import PairColumns
from kafkasniff.model import Endpoint, Exchange

__all__ = ["COLUMNS", "MAX_EXCHANGES", "MAX_NUMBER", "MAX_WORDS", "ExchangeIndex", "Row"]

MAX_EXCHANGES: Final = 5_000_000
"""Maximum number of exchanges in the list, about 60 bytes each; the rest of the captures is not read."""
MAX_WORDS: Final = 200_000
"""Maximum number of distinct texts (endpoints, names) in the index; each further one is shown as `…`."""
MAX_NUMBER: Final = (1 << 32) - 1
"""Largest number of a packet, of a connection and of an exchange in its connection; reading stops at a larger one."""
CHUNK: Final = 1 << 16
"""Rows for which memory is allocated at a time: rows never move, so another thread may read them."""
MORE: Final = "…"

ENDS: Final = ("client", "broker")
COLUMNS: Final = (*(name for name in NUMBERS if name != "exchange_id"), *ENDS, *TEXTS)
"""Names of the columns; those that one can sort by."""


class Row(NamedTuple):
    """One exchange in the list. Texts are escaped; times in nanoseconds, sizes in bytes."""

    packet: int | None
    """The first packet of the request, or of the response without one; counted in its capture."""
    connection: int
    time: int | None
    latency: int | None
    request: int | None
    response: int | None
    problems: int
    client: str
    client_id: str
    broker: str
    api: str
    """API and version."""
    subject: str
    """The first topic, group or transactional id, and the number of others."""
    error: str
    """The first error, or how the exchange ended without a response."""
    connection_id: int
    exchange_id: int


class _Connection(NamedTuple):
    id: int
    client: Endpoint | None
    broker: Endpoint | None
    codes: tuple[int, int]
    """The words of both ends."""


class ExchangeIndex:
    """The columns, in order of reading: by time within what one call of `publish` adds."""

    def __init__(self) -> None:
        self._chunks: dict[str, list[NDArray[Any]]] = {name: [] for name in (*NUMBERS, *TEXTS)}
        self._words: list[str] = [MORE]
        self._code_of: dict[str, int] = {}
        self._connections: dict[int, _Connection] = {}
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[Block] = []
        self._count = 0
        self._is_full = False
        self.start: int | None = None
        """The earliest time of a row."""
        self.is_complete = False
        """No further rows will come; set by the thread that appends."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """No further exchange is taken."""
        return self._is_full or self._count >= MAX_EXCHANGES

    def add(self, exchange: Exchange) -> None:
        """Append an exchange, from the next `publish` on."""
        row = exchange_row(exchange, self._code)
        if row is not None:
            self._rows.append(row)
            seen = exchange.request if exchange.request is not None else exchange.response
            assert seen is not None
            self._end(exchange.connection, exchange.connection_id, seen.client, seen.broker)

    def add_columns(self, found: PairColumns) -> None:
        """Append exchanges that are columns, from the next `publish` on."""
        block = column_block(found, self._code)
        for number in np.unique(found.asked["connection"]).tolist():
            owner = found.owners[number]
            assert owner is not None
            self._end(owner.number, owner.identify(), owner.client, owner.broker)
        self._blocks.append(block)

    def publish(self) -> None:
        """Make visible what was appended, sorted by time."""
        rows, self._rows = self._rows, []
        blocks, self._blocks = self._blocks, []
        if rows:
            blocks.append(dict(zip(self._chunks, np.array(rows, np.int64).T, strict=True)))
        if not blocks:
            return
        whole = {name: np.concatenate([block[name] for block in blocks]) for name in self._chunks}
        order = np.lexsort((whole["packet"], whole["time"]))
        fits = np.ones(len(order), bool)
        for name in ("packet", "connection", "exchange_id"):
            fits &= whole[name] <= MAX_NUMBER
        if not fits.all():
            self._is_full = True
            order = order[fits[order]]
        self._append(whole, order[: MAX_EXCHANGES - self._count])

    def _append(self, whole: Mapping[str, NDArray[np.int64]], order: NDArray[np.int64]) -> None:
        times = whole["time"][order]
        known = times[times != UNKNOWN]
        if len(known):
            # Missing times are first.
            self.start = int(known[0]) if self.start is None else min(self.start, int(known[0]))
        done = 0
        while done < len(order):
            at = (self._count + done) % CHUNK
            part = order[done : done + CHUNK - at]
            for name, chunks in self._chunks.items():
                if at == 0:
                    chunks.append(np.empty(CHUNK, NUMBERS.get(name, np.int32)))
                chunks[-1][at : at + len(part)] = whole[name][part]
            done += len(part)
        self._count += done

    def _code(self, text: str) -> int:
        code = self._code_of.get(text)
        if code is None:
            if len(self._words) >= MAX_WORDS:
                return 0
            code = self._code_of[text] = len(self._words)
            self._words.append(text)
        return code

    def _end(self, number: int, connection_id: int, client: Endpoint | None, broker: Endpoint | None) -> None:
        known = self._connections.get(number)
        if known is None or (known.client, known.broker) != (client, broker):
            codes = self._code(str(client or "")), self._code(str(broker or ""))
            self._connections[number] = _Connection(connection_id, client, broker, codes)

    def row(self, place: int) -> Row:
        """The exchange at a place."""
        chunk, at = divmod(place, CHUNK)
        values = {name: int(chunks[chunk][at]) for name, chunks in self._chunks.items()}
        connection = self._connections[values["connection"]]
        words = {name: self._words[values[name]] for name in TEXTS}
        words |= {name: self._words[code] for name, code in zip(ENDS, connection.codes, strict=True)}
        numbers = {name: None if values[name] == MISSING[name] else values[name] for name in MISSING}
        return Row(**{**values, **numbers, **words}, connection_id=connection.id)  # type: ignore[arg-type]

    def ends(self, row: Row) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of a row's connection."""
        connection = self._connections[row.connection]
        if connection.client is None or connection.broker is None:
            return None
        return connection.client, connection.broker

    def _values(self, column: str, count: int) -> NDArray[Any]:
        """The column of the first rows; of texts, their codes."""
        if column in ENDS:
            known = list(self._connections.items())
            table = np.zeros(max((number for number, _ in known), default=0) + 1, np.int32)
            table[[number for number, _ in known]] = [one.codes[ENDS.index(column)] for _, one in known]
            codes: NDArray[Any] = table[self._values("connection", count)]
            return codes
        chunks = self._chunks[column][: -(-count // CHUNK)]
        return np.concatenate(chunks)[:count] if chunks else np.zeros(0, np.int32)

    def order(self, column: str, *, descending: bool = False) -> NDArray[np.int32]:
        """The places of all rows so far, sorted by a column; equal ones stay in order of reading, times by packet."""
        count = self._count
        keys = self._values(column, count)
        if column not in NUMBERS:
            words = self._words[:]
            # Numpy sorts numbers of 16 bits many times faster.
            ranks = np.empty(len(words), np.uint16 if len(words) <= 1 << 16 else np.int32)
            ranks[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
            keys = ranks[keys]
        # Inverting keeps the order of equal keys, unlike reversing the result; `-` would overflow at a missing time.
        keys = ~keys if descending else keys
        if column == "time":
            return np.lexsort((self._values("packet", count), keys)).astype(np.int32)
        return np.argsort(keys, kind="stable").astype(np.int32)

    def same(self, column: str, like: int) -> NDArray[np.bool_]:
        """Which of the rows so far have the same value in a column as the row at `like`."""
        values = self._values(column, self._count)
        found: NDArray[np.bool_] = values == values[like]
        return found
