"""Columns of exchanges: what the list shows and sorts by, and histograms of them. Bodies are read again.

One thread appends, another reads. A row is visible once `len` counts it, and rows never change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from kafkasniff.browse.packed_columns import (
    MISSING,
    NUMBERS,
    TEXTS,
    UNKNOWN,
    Block,
    PackedColumn,
    column_block,
    exchange_row,
    in_one_block,
    order_of,
    pack,
    sort_keys,
)
from kafkasniff.engine.message_table import PairColumns
from kafkasniff.engine.roles import distinct
from kafkasniff.model import Endpoint, Exchange
from kafkasniff.text.printable import display_width
from kafkasniff.text.times import rfc3339

MAX_EXCHANGES: Final = 10_000_000
"""Maximum number of exchanges in the list, about 22 bytes each; the rest of the captures is not read."""
MAX_WORDS: Final = 200_000
"""Maximum number of distinct texts (endpoints, names) in the index; others are shown as `…`."""
MAX_NUMBER: Final = (1 << 32) - 1
"""Largest number of a packet, of a connection and of an exchange in its connection; reading stops at a larger one."""
CHUNK: Final = 1 << 14
"""Number of rows that are packed together: the fewer, the closer to each other are their times and packets."""
MORE: Final = "…"

ENDS: Final = ("client", "broker")
NAMES: Final = (*NUMBERS, *TEXTS)
COLUMNS: Final = (*(name for name in NUMBERS if name not in {"exchange_id", "others"}), *ENDS, *TEXTS)
"""Names of the columns; the list can be sorted by each."""


class Row(NamedTuple):
    """One exchange in the list. Texts are escaped; times in nanoseconds, sizes in bytes."""

    number: int | None
    """The number that other commands give it; None in an export."""
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
    """The first topic, or else the group or transactional id."""
    others: int
    """Number of other names."""
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
        self._chunks: list[dict[str, PackedColumn]] = []
        self._buffers: dict[str, NDArray[np.int64]] = {}
        """The numbers of the last chunk until it is full."""
        self._words: list[str] = [MORE]
        self._code_of: dict[str, int] = {}
        self._connections: dict[int, _Connection] = {}
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[Block] = []
        self._ends: object = None
        self._known: set[int] = set()
        """Connections, by their indices in these ends, that need not be looked up again."""
        self._codes: dict[str, set[int]] = {name: set() for name in TEXTS}
        """The words in each column."""
        self.widest: dict[str, int] = {}
        """Columns of the terminal that the longest text, or the number with the most digits, of a column takes."""
        self._count = 0
        self._is_full = False
        self.start: int | None = None
        """The earliest time of a row."""
        self.is_complete = False
        """All rows were appended; set by the thread that appends."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """The index is full: no more exchanges are added."""
        return self._is_full or self._count >= MAX_EXCHANGES

    def add(self, exchange: Exchange, subjects: Sequence[str] | None = None) -> None:
        """Append an exchange, from the next `publish` on. `subjects`: what it names, if its bodies do not say it."""
        row = exchange_row(exchange, self._code, subjects)
        if row is not None:
            self._rows.append(row)
            seen = exchange.request if exchange.request is not None else exchange.response
            assert seen is not None
            self._end(exchange.connection, exchange.connection_id, seen.client, seen.broker)

    def add_columns(self, pair_columns: PairColumns) -> None:
        """Append exchanges that are columns, from the next `publish` on."""
        block = column_block(pair_columns, self._code)
        if self._ends is not pair_columns.ends:
            self._ends, self._known = pair_columns.ends, set()
        unknown = set(distinct(pair_columns.asked["connection"].astype(np.int64))) - self._known
        for number in unknown:
            owner = pair_columns.owners[number]
            assert owner is not None
            self._end(owner.number, owner.identify(), owner.client, owner.broker)
        self._known |= unknown
        self._blocks.append(block)

    def publish(self) -> None:
        """Make visible what was appended, sorted by time."""
        rows, self._rows = self._rows, []
        blocks, self._blocks = self._blocks, []
        if rows:
            blocks.append(dict(zip(NAMES, np.array(rows, np.int64).T, strict=True)))
        if not blocks:
            return
        whole = {name: np.concatenate([block[name] for block in blocks]) for name in NAMES}
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
        for name in ("number", "packet", "problems", "others"):
            # Missing ones are 0.
            if most := int(whole[name].max(initial=0)):
                self._widen(name, f" +{most}" if name == "others" else f"{most:,}")
        for name, codes in self._codes.items():
            new = set(distinct(whole[name])) - codes
            codes.update(new)
            for code in new:
                self._widen(name, self._words[code])
        done = 0
        while done < len(order):
            at = (self._count + done) % CHUNK
            part = order[done : done + CHUNK - at]
            if at == 0:
                self._buffers = {name: np.empty(CHUNK, np.int64) for name in NAMES}
                self._chunks.append({name: PackedColumn(buffer) for name, buffer in self._buffers.items()})
            for name, buffer in self._buffers.items():
                buffer[at : at + len(part)] = whole[name][part]
            done += len(part)
            if at + len(part) == CHUNK:
                # Another thread may still read the buffers.
                self._chunks[-1] = in_one_block(
                    {name: pack(buffer, MISSING.get(name)) for name, buffer in self._buffers.items()}
                )
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
            for name, code in zip(ENDS, codes, strict=True):
                self._widen(name, self._words[code])

    def _widen(self, column: str, text: str) -> None:
        self.widest[column] = max(self.widest.get(column, 0), display_width(text))

    def errors(self) -> Iterator[NDArray[np.bool_]]:
        """Which of the rows so far have an error, or ended without a response, in parts."""
        fine = self._code_of.get("", -1)
        return (~part.equal_to(fine) for part in self._parts("error", self._count))

    def texts(self, column: str) -> list[str]:
        """The different texts in a column, in no order."""
        if column in ENDS:
            codes = [connection.codes[ENDS.index(column)] for connection in list(self._connections.values())]
        else:
            codes = list(self._codes[column])
        return [self._words[code] for code in codes]

    def row(self, place: int) -> Row:
        """The exchange at a place."""
        chunk, at = self._chunks[place // CHUNK], place % CHUNK
        values = {name: chunk[name].at(at) for name in NAMES}
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

    def connection_numbers(self) -> dict[int, int]:
        """The number of each connection of a row so far, by its `connection_id`."""
        return {connection.id: number for number, connection in list(self._connections.items())}

    def numbers(self, column: str) -> Iterator[NDArray[np.int64]]:
        """The numbers of the rows so far in a column, in parts."""
        return (part.numbers() for part in self._parts(column, self._count))

    def _parts(self, column: str, count: int) -> list[PackedColumn]:
        """The column of the first rows, in chunks; of texts, their codes."""
        if column in ENDS:
            table = self._codes_of_ends(column)
            return [PackedColumn(table[part.numbers()]) for part in self._parts("connection", count)]
        parts = [chunk[column] for chunk in self._chunks[: -(-count // CHUNK)]]
        if count % CHUNK:
            # The rest of a buffer is not filled yet.
            last = parts[-1]._replace(values=parts[-1].values[: count % CHUNK])
            parts[-1] = pack(last.numbers(), MISSING.get(column))
        return parts

    def _codes_of_ends(self, column: str) -> NDArray[np.int32]:
        """The code of one end of each connection, by its number."""
        known = list(self._connections.items())
        table = np.zeros(max((number for number, _ in known), default=0) + 1, np.int32)
        table[[number for number, _ in known]] = [connection.codes[ENDS.index(column)] for _, connection in known]
        return table

    def order(self, column: str, *, descending: bool = False) -> NDArray[np.int32]:
        """The places of all rows so far, sorted by a column; equal ones stay in order of reading."""
        is_end = column in ENDS
        parts, ranks = self._parts("connection" if is_end else column, self._count), None
        if column not in NUMBERS:
            # Before the words: meanwhile, another thread adds to both.
            codes = self._codes_of_ends(column) if is_end else None
            ranks = _ranks(self._words[:])
            ranks = ranks if codes is None else ranks[codes]
        keys, top = sort_keys(parts, ranks)
        return order_of(keys, top, descending=descending)

    def shared(self, other: ExchangeIndex) -> NDArray[np.bool_]:
        """Which of the rows so far are rows of an index of the same captures, too."""
        wanted = np.sort(np.concatenate([np.zeros(0, np.uint64), *other._keys(len(other))]))
        parts = [np.isin(keys, wanted) for keys in self._keys(self._count)]
        return np.concatenate([np.zeros(0, bool), *parts])

    def place_of(self, row: Row) -> int | None:
        """The place of an exchange among the rows so far; `row` may be of another index of the same captures."""
        columns = [self._parts(name, self._count) for name in ("connection", "exchange_id")]
        for number, (connection, ordinal) in enumerate(zip(*columns, strict=True)):
            found = np.flatnonzero(connection.equal_to(row.connection) & ordinal.equal_to(row.exchange_id))
            if len(found):
                return number * CHUNK + int(found[0])
        return None

    def _keys(self, count: int) -> Iterator[NDArray[np.uint64]]:
        """A number for each of the first rows that identifies its exchange, in parts."""
        columns = [self._parts(name, count) for name in ("connection", "exchange_id")]
        return (
            (connection.numbers().astype(np.uint64) << np.uint64(32)) | ordinal.numbers().astype(np.uint64)
            for connection, ordinal in zip(*columns, strict=True)
        )

    def same(self, column: str, like: int) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]]:
        """Whether the rows at some places, of those so far, have the same value in a column as the row at `like`.

        Chunks are compared when a place in them is asked for.
        """
        parts = self._parts(column, self._count)
        value = parts[like // CHUNK].at(like % CHUNK)
        count = CHUNK * (len(parts) - 1) + len(parts[-1].values)
        rows, is_compared = np.zeros(count, bool), np.zeros(len(parts), bool)

        def test(places: NDArray[np.int64]) -> NDArray[np.bool_]:
            known = places < count
            places = np.where(known, places, 0)
            asked = np.zeros(len(parts), bool)
            asked[places // CHUNK] = True
            for chunk in np.flatnonzero(asked & ~is_compared).tolist():
                rows[chunk * CHUNK : (chunk + 1) * CHUNK] = parts[chunk].equal_to(value)
            is_compared[asked] = True
            found: NDArray[np.bool_] = rows[places] & known
            return found

        return test


def _ranks(words: list[str]) -> NDArray[np.int32]:
    """The place of each word in their order.

    By Arrow: Python would not let the screen's thread run meanwhile. Only by buffers: both `pa.array` and `to_numpy`
    import pandas if it is installed, which needs 45 MB.
    """
    encoded = [word.encode() for word in words]
    ends = np.zeros(len(words) + 1, np.int32)
    np.cumsum([len(word) for word in encoded], out=ends[1:])
    strings = pa.StringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
    order = np.frombuffer(compute.sort_indices(strings).buffers()[1], np.uint64, len(words))
    ranks = np.empty(len(words), np.int32)
    ranks[order] = np.arange(len(words), dtype=np.int32)
    return ranks


FINEST: Final = 20
"""Maximum number of bins of latencies for each power of ten."""


class Bin(NamedTuple):
    """Exchanges from `low` up to, but not including, `high`, in nanoseconds."""

    low: int
    high: int
    exchanges: int
    errors: int
    """Those with an error, or without a response."""


class Brush(NamedTuple):
    """What the bins count."""

    title: str
    field: str
    bins: list[Bin]

    def expression(self, first: int, last: int) -> str:
        """The filter for the exchanges in some of the bins."""
        low, high = self.bins[first].low, self.bins[last].high
        if self.field == "time":
            return f"time >= {rfc3339(low)} and time < {rfc3339(high)}"
        return f"{self.field} >= {_milliseconds(low)} and {self.field} < {_milliseconds(high)}"


def _milliseconds(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 1_000_000)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:06d}"


_Parts = list[tuple[NDArray[np.int64], NDArray[np.bool_]]]
"""Known numbers of a column, and whether each of these rows has an error."""


def time_bins(index: ExchangeIndex, most: int) -> Brush:
    """At most `most` ranges of the same length, by the times of requests."""
    parts = _known(index, "time")
    low, high = _limits(parts)
    width = max(-(-(high - low + 1) // most), 1)

    def places(part: NDArray[np.int64]) -> NDArray[np.int64]:
        # Distances are unsigned, so times at both ends of the range that a capture may claim do not overflow.
        far = part.view(np.uint64) - np.uint64(low % (1 << 64))
        return (far // np.uint64(width)).astype(np.int64)

    bins = _bins([low + width * place for place in range(most + 1)], parts, places)
    return Brush("exchanges over time", "time", bins)


def latency_bins(index: ExchangeIndex, most: int) -> Brush:
    """At most `most` ranges, each the same multiple of the one before it; the first begins at the smallest latency."""
    parts = _known(index, "latency")
    low, high = _limits(parts)
    first, last = (math.log10(max(one, 1)) for one in (low, high + 1))
    steps = max(min(FINEST, int((most - 1) / max(last - first, 1))), 1)
    edges = {round(10 ** (place / steps)) for place in range(math.floor(first * steps), math.ceil(last * steps) + 1)}
    limits = [low, *sorted(one for one in edges if low < one <= high), high + 1]
    while len(limits) - 1 > most:
        limits = [*limits[:-1:2], limits[-1]]
    inner = np.array(limits[1:-1], np.int64)
    return Brush("latencies", "latency_ms", _bins(limits, parts, lambda part: np.searchsorted(inner, part, "right")))


def _known(index: ExchangeIndex, column: str) -> _Parts:
    # Rows may be added meanwhile, after those that are seen first.
    pairs = [(part, errors[: len(part)]) for part, errors in zip(index.numbers(column), index.errors(), strict=False)]
    known = [(part, errors, part != UNKNOWN) for part, errors in pairs]
    return [(part[is_known], errors[is_known]) for part, errors, is_known in known if is_known.any()]


def _limits(parts: _Parts) -> tuple[int, int]:
    if not parts:
        return 0, 0
    return min(int(part.min()) for part, _ in parts), max(int(part.max()) for part, _ in parts)


def _bins(limits: list[int], parts: _Parts, places: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> list[Bin]:
    """Without the empty ones at the end. `places`: the bin of each number."""
    counts = np.zeros((2, len(limits) - 1), np.int64)
    for part, errors in parts:
        found = places(part)
        for row, chosen in enumerate((found, found[errors])):
            counts[row] += np.bincount(chosen, minlength=len(limits) - 1)
    filled = np.flatnonzero(counts[0])
    return [
        Bin(limits[index], limits[index + 1], *counts[:, index].tolist())
        for index in range(int(filled[-1]) + 1 if len(filled) else 0)
    ]
