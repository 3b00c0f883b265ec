"""Columns of exchanges: what the list shows and sorts by. Bodies are not kept, they are read again.

One thread appends, another reads. A row is visible once `len` counts it, and rows never change.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.model import Endpoint, Exchange
from kafkasniff.text.printable import word

__all__ = ["COLUMNS", "MAX_EXCHANGES", "MAX_WORDS", "ExchangeIndex", "Row"]

MAX_EXCHANGES: Final = 5_000_000
"""Maximum number of exchanges in the list, about 100 bytes each; the rest of the captures is not read."""
MAX_WORDS: Final = 200_000
"""Maximum number of distinct texts (endpoints, names) in the index; each further one is shown as `…`."""
UNKNOWN: Final = -(1 << 63)
"""Marks a missing time, latency or size."""
MORE: Final = "…"

NUMBERS: Final = ("exchange", "connection", "time", "latency", "request", "response", "problems")
TEXTS: Final = ("client", "client_id", "broker", "api", "subject", "error")
COLUMNS: Final = (*NUMBERS, *TEXTS)
"""Names of the columns; those that one can sort by."""


class Row(NamedTuple):
    """One exchange in the list. Texts are escaped; times in nanoseconds, sizes in bytes."""

    exchange: int
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


class ExchangeIndex:
    """The columns, in order of completion."""

    def __init__(self) -> None:
        self._numbers = {name: array("q") for name in (*NUMBERS, "connection_id", "exchange_id")}
        self._codes = {name: array("i") for name in TEXTS}
        self._words: list[str] = [MORE]
        self._code_of: dict[str, int] = {}
        self._end_of: dict[int, tuple[Endpoint, Endpoint]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """No further exchange is taken."""
        return self._count >= MAX_EXCHANGES

    def add(self, exchange: Exchange) -> None:
        """Append an exchange. Hot."""
        request, response = exchange.request, exchange.response
        seen = request if request is not None else response
        if seen is None or self.is_full:
            return
        problems = len(exchange.problems) + sum(len(one.problems) for one in (request, response) if one is not None)
        if seen.client is not None and seen.broker is not None:
            self._end_of[exchange.connection_id] = seen.client, seen.broker
        api = seen.api or ("?" if seen.api_key is None else f"API {seen.api_key}")
        errors = () if response is None else response.errors
        numbers = {
            "exchange": exchange.exchange,
            "connection": exchange.connection,
            "time": seen.time_ns,
            "latency": exchange.latency_ns,
            "request": None if request is None else request.size,
            "response": None if response is None else response.size,
            "problems": problems,
            "connection_id": exchange.connection_id,
            "exchange_id": exchange.exchange_id,
        }
        texts = {
            "client": str(seen.client or ""),
            "client_id": "" if seen.client_id is None else word(seen.client_id),
            "broker": str(seen.broker or ""),
            "api": api if seen.api_version is None else f"{api} v{seen.api_version}",
            "subject": _subject(exchange),
            "error": (errors[0].name or f"error {errors[0].code}") if errors else _ending(exchange),
        }
        for name, number in numbers.items():
            self._numbers[name].append(UNKNOWN if number is None else number)
        for name, text in texts.items():
            self._codes[name].append(self._code(text))
        self._count += 1

    def _code(self, text: str) -> int:
        code = self._code_of.get(text)
        if code is None:
            if len(self._words) >= MAX_WORDS:
                return 0
            code = self._code_of[text] = len(self._words)
            self._words.append(text)
        return code

    def row(self, place: int) -> Row:
        """The exchange at a place."""

        def number(name: str) -> int | None:
            found = self._numbers[name][place]
            return None if found == UNKNOWN else found

        client, client_id, broker, api, subject, error = (self._words[self._codes[name][place]] for name in TEXTS)
        return Row(
            self._numbers["exchange"][place],
            self._numbers["connection"][place],
            number("time"),
            number("latency"),
            number("request"),
            number("response"),
            self._numbers["problems"][place],
            client,
            client_id,
            broker,
            api,
            subject,
            error,
            self._numbers["connection_id"][place],
            self._numbers["exchange_id"][place],
        )

    def ends(self, row: Row) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of a row's connection."""
        return self._end_of.get(row.connection_id)

    def order(self, column: str, *, descending: bool = False) -> NDArray[np.int64]:
        """The places of all rows so far, sorted by a column; equal ones stay in order of completion."""
        count = self._count
        if column in self._numbers:
            keys = np.array(self._numbers[column][:count], np.int64)
        else:
            words = self._words[:]
            ranks = np.empty(len(words), np.int64)
            ranks[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
            keys = ranks[np.array(self._codes[column][:count], np.int64)]
        # Inverting keeps the order of equal keys, unlike reversing the result; `-` would overflow at UNKNOWN.
        places: NDArray[np.int64] = np.argsort(~keys if descending else keys, kind="stable")
        return places

    def places(self, column: str, like: int) -> NDArray[np.int64]:
        """The places of all rows so far that have the same value in a column as the row at `like`, ascending."""
        values = self._numbers.get(column) or self._codes[column]
        places: NDArray[np.int64] = np.flatnonzero(np.array(values[: self._count]) == values[like])
        return places


def _subject(exchange: Exchange) -> str:
    named = mentions(exchange.request, exchange.response)
    names = [*named.topics, *named.groups, *named.transactions]
    if not names:
        return ""
    return word(names[0]) + (f" +{len(names) - 1}" if len(names) > 1 else "")


def _ending(exchange: Exchange) -> str:
    return "" if exchange.status in {"answered", "no_response"} else exchange.status.replace("_", " ")
