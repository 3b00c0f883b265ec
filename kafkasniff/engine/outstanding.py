"""Requests of earlier batches that wait for their responses, as columns: many begin and end with each batch.

`OutstandingRequests` has the facts that lines of responses need. `BegunRequests` has whole messages, for exchanges that
become columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.versions import client_id_text
from kafkasniff.native.calls import address_of
from kafkasniff.native.feed import ARENA, MESSAGE
from kafkasniff.native.rows import joined

__all__ = ["HIDDEN", "ROW", "BegunRequests", "OutstandingRequests", "keys_of"]

HIDDEN: Final = -1
"""Number of an exchange that is counted but not shown; 0: it has no number yet."""
ORDINAL_BITS: Final = 40
"""Bits of a key for the ordinal of an exchange within its connection. The rest is the index of the connection."""
SPARE_IDS: Final = 4096
"""Client ids that are kept although no request has them any more."""

ROW: Final = np.dtype(
    [
        *((name, np.int64) for name in ("number", "first_time", "time", "ordinal")),
        ("correlation", np.int32),
        ("client_id", np.int32),
        ("code", np.uint16),
        ("selected", np.uint8),
    ]
)
"""A request: the number of its exchange, the times of `feed.MESSAGE`, and `client_id`: an index (-1: null).
`selected`: whether a filter selects it (`selected_messages.SELECTED` or `REJECTED`)."""


def keys_of(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """The keys of the exchanges of messages (`feed.MESSAGE`)."""
    keys: NDArray[np.int64] = (rows["connection"].astype(np.int64) << ORDINAL_BITS) + rows["ordinal"]
    return keys


class _ByKey:
    """Rows by key; each can be taken once."""

    def __init__(self, kind: np.dtype[np.void]) -> None:
        self._keys = np.empty(0, np.int64)
        """Rising."""
        self._rows = np.empty(0, kind)
        self._gone = np.empty(0, np.bool_)
        """Which rows were taken."""

    def _add(self, keys: NDArray[np.int64], rows: NDArray[np.void]) -> None:
        """Add rows, whose keys are new; the order of the others stays."""
        here = ~self._gone
        keys = np.concatenate((self._keys[here], keys))
        order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[order], joined((self._rows.compress(here), rows)).take(order)
        self._gone = np.zeros(len(keys), np.bool_)

    def take(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.void]]:
        """Which of these keys are known, and their rows, which are removed."""
        places, found = self._find(keys)
        self._gone[places] = True
        return found, self._rows.take(places)

    def has(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these keys are known."""
        return self._find(keys)[1]

    def take_connection(self, index: int) -> NDArray[np.void]:
        """The requests of a connection, which are removed."""
        bounds = np.searchsorted(self._keys, (index << ORDINAL_BITS, index + 1 << ORDINAL_BITS))
        place = slice(int(bounds[0]), int(bounds[1]))
        rows = self._rows[place].compress(~self._gone[place])
        self._gone[place] = True
        return rows

    def number(self, keys: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Give exchanges their numbers; returns which of the keys are known."""
        places, found = self._find(keys)
        self._rows["number"][places] = numbers[found]
        return found

    def _find(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        if not len(self._keys):
            return np.empty(0, np.intp), np.zeros(len(keys), np.bool_)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: NDArray[np.bool_] = (self._keys[places] == keys) & ~self._gone[places]
        return places[found], found


class BegunRequests(_ByKey):
    """Requests by key, with their bytes, as messages of the feed (`feed.MESSAGE`)."""

    def __init__(self) -> None:
        super().__init__(MESSAGE)
        self.data = b""
        """The base of the rows' `start`. Rows that were taken point into it until more are added."""

    @property
    def memory(self) -> int:
        """Bytes of memory, about."""
        return len(self._rows) * (MESSAGE.itemsize + 9) + len(self.data)

    def add(self, rows: NDArray[np.void], buffer: bytes, arena: bytes) -> None:
        """Add requests, whose bytes are in the buffer or in the arena as their flags say."""
        here = self._rows.compress(~self._gone)
        if not len(rows) and not len(here):
            self.__init__()  # type: ignore[misc]
            return
        kept = [self.data[start:stop] for start, stop in _bounds(here)]
        for (start, stop), flags in zip(_bounds(rows), rows["flags"].tolist(), strict=True):
            kept.append((arena if flags & ARENA else buffer)[start:stop])
        self.data = b"".join(kept)
        rows = joined((here, rows))
        ends = np.cumsum(rows["size"], dtype=np.int64)
        rows["start"] = ends - rows["size"]
        rows["flags"] |= ARENA
        self._gone[:] = True
        self._add(keys_of(rows), rows)


def _bounds(rows: NDArray[np.void]) -> list[tuple[int, int]]:
    starts = rows["start"].astype(np.int64)
    return list(zip(starts.tolist(), (starts + rows["size"]).tolist(), strict=True))


class OutstandingRequests(_ByKey):
    """Requests by key, with their client ids."""

    def __init__(self) -> None:
        super().__init__(ROW)
        self._indices: dict[bytes, int] = {}
        self._ids: list[bytes] = []
        self._sizes = np.empty(0, np.int32)
        self._addresses = np.empty(0, np.uint64)
        self._id_bytes = 0

    @property
    def memory(self) -> int:
        """Bytes of memory, about."""
        return len(self._rows) * (ROW.itemsize + 9) + self._id_bytes

    # -- requests -----------------------------------------------------------------------------------------------------

    def add(self, keys: NDArray[np.int64], rows: NDArray[np.void]) -> None:
        """Add requests, whose keys are new."""
        self._add(keys, rows)

    def take(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.void]]:
        """Which of these keys are known, and their rows, which are removed.

        This invalidates the client ids of rows that were returned before.
        """
        if len(self._ids) > 2 * len(self._keys) + SPARE_IDS:
            self._drop_ids()
        return super().take(keys)

    def drop(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Remove these keys and return which of them were known. Rows that were returned keep their client ids."""
        return super().take(keys)[0]

    # -- client ids ---------------------------------------------------------------------------------------------------

    @property
    def client_ids(self) -> Sequence[bytes]:
        """Client ids by index. The list and its indices are valid until `take` is called."""
        return self._ids

    def indices(self, client_ids: Sequence[bytes | None]) -> list[int]:
        """The indices of client ids. Hot."""
        known = self._indices
        new = dict.fromkeys(one for one in client_ids if one not in known and one is not None)
        if new:
            self._add_ids(list(new))
        return [-1 if one is None else known[one] for one in client_ids]

    def client_id(self, row: Any) -> str | bytes | None:
        """The client id of a request; bytes where it is not UTF-8."""
        index = int(row["client_id"])
        return None if index < 0 else client_id_text(self._ids[index])

    def texts(self, rows: NDArray[np.void]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        """Sizes (-1: null) and addresses of the client ids of requests, valid while `client_ids` are kept."""
        indices = rows["client_id"]
        if not self._ids:
            return np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.uint64)
        is_null = indices < 0
        sizes = np.where(is_null, np.int32(-1), self._sizes[indices])
        return sizes, np.where(is_null, np.uint64(0), self._addresses[indices])

    def _add_ids(self, client_ids: list[bytes]) -> None:
        first = len(self._ids)
        addresses = [address_of(one, self._ids) for one in client_ids]
        self._indices.update(zip(client_ids, range(first, len(self._ids)), strict=True))
        self._addresses = np.concatenate((self._addresses, np.array(addresses, np.uint64)))
        sizes = [len(one) for one in client_ids]
        self._sizes = np.concatenate((self._sizes, np.array(sizes, np.int32)))
        self._id_bytes += sum(sizes)

    def _drop_ids(self) -> None:
        """Forget client ids that no request has."""
        indices = self._rows["client_id"]
        ids = [None if index < 0 else self._ids[index] for index in indices.tolist()]
        self._indices, self._ids, self._id_bytes = {}, [], 0
        self._sizes, self._addresses = self._sizes[:0], self._addresses[:0]
        self._rows["client_id"] = self.indices(ids)
