"""What the list shows of an exchange, as numbers: from its messages, or from columns of the native kernel.

Texts become codes, by a function that the index provides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.paired import PairColumns
from kafkasniff.engine.versions import version_of
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.schema.errors import error_name
from kafkasniff.model import Exchange
from kafkasniff.native.feed import NONE
from kafkasniff.tables.rows.column_rows import string_array
from kafkasniff.tcp.segments import PACKET_NUMBER
from kafkasniff.text.printable import word

__all__ = ["MAX_PROBLEMS", "MISSING", "NUMBERS", "TEXTS", "UNKNOWN", "Block", "column_block", "exchange_row"]

NUMBERS: Final = {
    "packet": np.uint32,
    "connection": np.uint32,
    "exchange_id": np.uint32,
    "time": np.int64,
    "latency": np.int64,
    "request": np.int32,
    "response": np.int32,
    "problems": np.uint16,
}
"""Columns of numbers, with the type in which they are kept."""
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


def exchange_row(exchange: Exchange, code: _Code) -> tuple[int, ...] | None:
    """The values of an exchange, in the order of `NUMBERS` and `TEXTS`; None if neither message was seen."""
    request, response = exchange.request, exchange.response
    seen = request if request is not None else response
    if seen is None:
        return None
    problems = len(exchange.problems) + sum(len(one.problems) for one in (request, response) if one is not None)
    errors = () if response is None else response.errors
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
        code("" if seen.client_id is None else word(seen.client_id)),
        code(_api(seen.api, seen.api_key, seen.api_version)),
        code(_subject(exchange)),
        code(_error(errors[0].code) if errors else ending),
    )


def column_block(found: PairColumns, code: _Code) -> Block:
    """The values of answered exchanges without problems."""
    asked, answered, facts = found.asked, found.answered, found.facts
    rows = facts.columns.rows
    numbers = np.array([0 if owner is None else owner.number for owner in found.owners], np.int64)
    client_id = np.where(found.client_id == NONE, -1, found.client_id)
    return {
        "packet": (asked["first_packet"] & PACKET_NUMBER).astype(np.int64),
        "connection": numbers[asked["connection"]],
        "exchange_id": asked["ordinal"].astype(np.int64),
        "time": asked["time"].astype(np.int64),
        "latency": answered["latency"].astype(np.int64),
        "request": asked["size"].astype(np.int64),
        "response": answered["size"].astype(np.int64),
        "problems": np.zeros(len(asked), np.int64),
        "client_id": _codes(client_id, lambda one: "" if one < 0 else word(found.names[one]), code),
        "api": _codes(asked["code"].astype(np.int64), _api_of, code),
        "subject": _subjects(facts.columns, code),
        "error": _codes(np.where(rows["codes"] == 0, 0, rows["code"].astype(np.int64)), _error, code),
    }


def _codes(values: NDArray[np.int64], text: Callable[[int], str], code: _Code) -> NDArray[np.int64]:
    """The code of the text of each value; texts are made once for equal values."""
    different, where = np.unique(values, return_inverse=True)
    found: NDArray[np.int64] = np.array([code(text(one)) for one in different.tolist()], np.int64)[where]
    return found


def _api(name: str | None, key: int | None, version: int | None) -> str:
    api = name or ("?" if key is None else f"API {key}")
    return api if version is None else f"{api} v{version}"


def _api_of(code: int) -> str:
    version = version_of(code)
    return _api(version.api, version.key, version.version)


def _error(code: int) -> str:
    return "" if code == 0 else error_name(code) or f"error {code}"


def _subject(exchange: Exchange) -> str:
    """The first topic, or else the group or transactional id if there is only one, and the number of others."""
    named = mentions(exchange.request, exchange.response)
    names = [*named.topics]
    for one in (named.groups, named.transactions):
        names += one if len(one) == 1 else ()
    return _counted(names[0], len(names) - 1) if names else ""


def _subjects(columns: Any, code: _Code) -> NDArray[np.int64]:
    """`_subject` of each row."""
    rows = columns.rows
    names = string_array(columns.names).to_pylist()
    topics = rows["topics"].astype(np.int64)
    firsts = np.cumsum(topics) - topics
    # A last element for rows without topics.
    first = np.append(columns.topics, NONE).astype(np.int64)[np.where(topics > 0, firsts, len(columns.topics))]
    count = topics
    for one in (rows["group"].astype(np.int64), rows["transaction"].astype(np.int64)):
        first = np.where(first == NONE, one, first)
        count = count + (one != NONE)

    def text(value: int) -> str:
        more, index = divmod(value, 1 << 32)
        return "" if index == NONE else _counted(names[index], more)

    return _codes(np.maximum(count - 1, 0) << 32 | first, text, code)


def _counted(name: str, others: int) -> str:
    return word(name) + (f" +{others}" if others else "")
