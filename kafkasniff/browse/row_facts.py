"""What the list shows of an exchange, as numbers: from its messages, or from columns of the native kernel.

Texts become codes, by a function that the index provides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.pair_columns import PairColumns
from kafkasniff.engine.versions import distinct, version_of
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import PACKET_NUMBER, Exchange
from kafkasniff.native.exchanges import ExchangeColumns
from kafkasniff.native.feed import NONE
from kafkasniff.text.printable import WORDS, word

__all__ = ["MAX_PROBLEMS", "MISSING", "NUMBERS", "TEXTS", "UNKNOWN", "Block", "column_block", "exchange_row"]

NUMBERS: Final = (
    "packet", "connection", "exchange_id", "time", "latency", "request", "response", "problems", "others",
)  # fmt: skip
"""Columns of numbers."""
TEXTS: Final = ("client_id", "api", "subject", "error")
"""Columns of texts that are not the same for a whole connection."""
UNKNOWN: Final = -(1 << 63)
MISSING: Final = {"packet": 0, "time": UNKNOWN, "latency": UNKNOWN, "request": -1, "response": -1}
"""The numbers that mark missing values."""
MAX_PROBLEMS: Final = (1 << 16) - 1
"""Largest number of problems of an exchange that is shown."""

Block = dict[str, NDArray[np.int64]]
"""Values of `NUMBERS` and `TEXTS`, which are codes."""
_Code = Callable[[str], int]


def exchange_row(exchange: Exchange, code: _Code, subjects: Sequence[str] | None = None) -> tuple[int, ...] | None:
    """The values of an exchange, in the order of `NUMBERS` and `TEXTS`; None if neither message was seen.

    `subjects`: what it names; None: what its bodies name.
    """
    request, response = exchange.request, exchange.response
    seen = request if request is not None else response
    if seen is None:
        return None
    problems = len(exchange.problems) + sum(len(one.problems) for one in (request, response) if one is not None)
    errors = () if response is None else response.errors
    names = _subjects_of(exchange) if subjects is None else subjects
    ending = "" if exchange.status in {"answered", "no_response"} else exchange.status.replace("_", " ")
    return (
        seen.first_packet or 0,
        exchange.connection,
        exchange.exchange_id,
        UNKNOWN if seen.time_ns is None else seen.time_ns,
        UNKNOWN if exchange.latency_ns is None else exchange.latency_ns,
        -1 if request is None else request.size,
        -1 if response is None else response.size,
        min(problems, MAX_PROBLEMS),
        max(len(names) - 1, 0),
        code("" if seen.client_id is None else word(seen.client_id)),
        code(_api(seen.api, seen.api_key, seen.api_version)),
        code(word(names[0]) if names else ""),
        code(_error(errors[0].code) if errors else ending),
    )


def column_block(found: PairColumns, code: _Code) -> Block:
    """The values of answered exchanges without problems."""
    asked, answered, facts = found.asked, found.answered, found.facts
    rows = facts.columns.rows
    numbers = np.array([0 if owner is None else owner.number for owner in found.owners], np.int64)
    others, subject = _subjects(facts.columns)

    def name(index: int) -> str:
        return "" if index < 0 else WORDS[found.names[index]]

    return {
        "packet": (asked["first_packet"] & PACKET_NUMBER).astype(np.int64),
        "connection": numbers[asked["connection"]],
        "exchange_id": asked["ordinal"].astype(np.int64),
        "time": asked["time"].astype(np.int64),
        "latency": answered["latency"].astype(np.int64),
        "request": asked["size"].astype(np.int64),
        "response": answered["size"].astype(np.int64),
        "problems": np.zeros(len(asked), np.int64),
        "others": others,
        "client_id": _codes(_without_none(found.client_id), name, code),
        "api": _codes(asked["code"].astype(np.int64), _api_of, code),
        "subject": _codes(_without_none(subject), name, code),
        "error": _codes(np.where(rows["codes"] == 0, 0, rows["code"].astype(np.int64)), _error, code),
    }


def _codes(values: NDArray[np.int64], text: Callable[[int], str], code: _Code) -> NDArray[np.int64]:
    """The code of the text of each value; texts are made once for equal values.

    By a table, which suits indices of names and numbers of 16 bits: `np.unique` takes ten times as long.
    """
    if not len(values):
        return values
    low = int(values.min())
    far = values - low
    different = distinct(far)
    table = np.zeros(different[-1] + 1, np.int64)
    table[different] = [code(text(low + one)) for one in different]
    return table[far]


def _without_none(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of names, -1 for no name."""
    return np.where(indices == NONE, -1, indices)


def _api(name: str | None, key: int | None, version: int | None) -> str:
    api = name or ("?" if key is None else f"API {key}")
    return api if version is None else f"{api} v{version}"


def _api_of(code: int) -> str:
    version = version_of(code)
    return _api(version.api, version.key, version.version)


def _error(code: int) -> str:
    return "" if code == 0 else error_name(code) or f"error {code}"


def _subjects_of(exchange: Exchange) -> list[str]:
    """The topics, and the group or transactional id if there is only one."""
    named = mentions(exchange.request, exchange.response)
    names = [*named.topics]
    for one in (named.groups, named.transactions):
        names += one if len(one) == 1 else ()
    return names


def _subjects(columns: ExchangeColumns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of `_subjects_of` each row except the first one, and the index of that one's name."""
    rows = columns.rows
    topics = rows["topics"].astype(np.int64)
    firsts = np.cumsum(topics) - topics
    # A last element for rows without topics.
    first = np.append(columns.topics, NONE).astype(np.int64)[np.where(topics > 0, firsts, len(columns.topics))]
    count = topics
    for one in (rows["group"].astype(np.int64), rows["transaction"].astype(np.int64)):
        first = np.where(first == NONE, one, first)
        count = count + (one != NONE)
    return np.maximum(count - 1, 0), first
