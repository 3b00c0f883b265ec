"""The tables' Arrow schemas and the builders that make their rows from what an inspector yields.

Only the table `exchanges` stands here so far: one row per exchange, its columns documented in `docs/tables.md`. A leaf:
Parquet, Spark and the analyses use it, text and JSON do not. What an exchange does not tell is null; columns that a
catalog fills (`broker_id`, names for topic ids) are null until the enrichment after the merge has been there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from kafkasniff.entities import mentions, only, record_count, text
from kafkasniff.model import Exchange, Message, Problem

__all__ = ["EXCHANGES", "SCHEMA_VERSION", "ExchangeRows", "capture_name", "exchange_row"]

SCHEMA_VERSION: Final = 1
"""Rises whenever a column changes its meaning or type or goes; a new column at the end does not raise it."""


def _array(item: pa.DataType) -> pa.DataType:
    # "element" is what Parquet's list layout and Spark call it; Arrow's default "item" would differ after a round trip.
    return pa.list_(pa.field("element", item))


PARTITION: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("error_code", pa.int32()),
        ("error", pa.string()),
        ("offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("record_count", pa.int64()),
        ("batch_count", pa.int32()),
        ("bytes", pa.int64()),
        ("uncompressed_bytes", pa.int64()),
        ("compression", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
    ]
)
"""One element of the column `partitions`."""

EXCHANGES: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("exchange_id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_ns", pa.int64()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int32()),
        ("broker_id", pa.int32()),
        ("api_key", pa.int32()),
        ("api", pa.string()),
        ("api_version", pa.int32()),
        ("correlation_id", pa.int32()),
        ("client_id", pa.string()),
        ("software_name", pa.string()),
        ("software_version", pa.string()),
        ("status", pa.string()),
        ("request_size", pa.int64()),
        ("response_size", pa.int64()),
        ("latency_us", pa.int64()),
        ("duration_us", pa.int64()),
        ("throttle_time_ms", pa.int32()),
        ("error_code", pa.int32()),
        ("error", pa.string()),
        ("error_count", pa.int32()),
        ("group_id", pa.string()),
        ("member_id", pa.string()),
        ("transactional_id", pa.string()),
        ("acks", pa.int32()),
        ("record_count", pa.int64()),
        ("topics", _array(pa.string())),
        ("partitions", _array(PARTITION)),
        ("request_body", pa.string()),
        ("response_body", pa.string()),
        ("problems", _array(pa.string())),
        ("retransmits", pa.int32()),
    ]
)
"""Schema of the table `exchanges`, in the order of its columns."""


def _microseconds(nanoseconds: int | None) -> int | None:
    # Floored, also below zero, so that two rows never change their order by the rounding.
    return None if nanoseconds is None else nanoseconds // 1000


def capture_name(name: str | None) -> str | None:
    r"""The name with bytes that are not UTF-8 as `\xNN`: file names may have them (PEP 383), Arrow strings may not."""
    return None if name is None else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _kinds(problems: Iterable[Problem]) -> list[str]:
    return list(dict.fromkeys(problem.kind for problem in problems))


def _value(message: Message | None, field: str) -> Any:
    return None if message is None or message.body is None else message.body.get(field)


def exchange_row(exchange: Exchange, body_json: Callable[[Message], str] | None) -> dict[str, Any]:
    """One row of `exchanges`, values by column in the order of `EXCHANGES`.

    `body_json` renders a message's body as the JSON lines have it; with None both body columns are null. The place, the
    time and the API are those of the request; an orphan response gives its own. Raises ValueError for an exchange that
    has neither request nor response.
    """
    request, response = exchange.request, exchange.response
    seen = request if request is not None else response
    if seen is None:
        raise ValueError("an exchange without request and response")
    decoded = response is not None and response.body is not None
    errors = () if response is None else response.errors
    client, broker = seen.client, seen.broker
    software = request is not None and request.api == "ApiVersions"
    problems = [*exchange.problems, *(request.problems if request else ()), *(response.problems if response else ())]
    named = mentions(request, response)
    throttle, acks = _value(response, "throttle_time_ms"), _value(request, "acks")
    return {
        "capture": capture_name(seen.capture),
        "connection_id": exchange.connection_id,
        "exchange_id": exchange.exchange_id,
        "time": _microseconds(seen.time_ns),
        "time_ns": seen.time_ns,
        "client_ip": None if client is None else client.address,
        "client_port": None if client is None else client.port,
        "broker_ip": None if broker is None else broker.address,
        "broker_port": None if broker is None else broker.port,
        "broker_id": None,
        "api_key": seen.api_key,
        "api": seen.api,
        "api_version": seen.api_version,
        "correlation_id": seen.correlation_id,
        "client_id": text(seen.client_id),
        "software_name": text(_value(request, "client_software_name")) if software else None,
        "software_version": text(_value(request, "client_software_version")) if software else None,
        "status": exchange.status,
        "request_size": None if request is None else request.size,
        "response_size": None if response is None else response.size,
        "latency_us": _microseconds(exchange.latency_ns),
        "duration_us": _microseconds(exchange.duration_ns),
        "throttle_time_ms": throttle if isinstance(throttle, int) else None,
        "error_code": errors[0].code if errors else (0 if decoded else None),
        "error": errors[0].name if errors else None,
        "error_count": len(errors) if decoded else None,
        "group_id": only(named.groups),
        "member_id": _member_id(request, response),
        "transactional_id": only(named.transactions),
        "acks": acks if isinstance(acks, int) else None,
        "record_count": record_count(named),
        "topics": list(named.topics),
        "partitions": [msgspec.structs.asdict(facts) for facts in named.partitions.values()],
        "request_body": _body(request, body_json),
        "response_body": _body(response, body_json),
        "problems": _kinds(problems),
        "retransmits": exchange.retransmits,
    }


def _member_id(request: Message | None, response: Message | None) -> str | None:
    # A member that joins for the first time says "" and is told its id; LeaveGroup has a list of members as of v3.
    members = _value(request, "members")
    if isinstance(members, list) and len(members) == 1 and isinstance(members[0], dict):
        asked = text(members[0].get("member_id"))
    else:
        asked = text(_value(request, "member_id"))
    return asked or text(_value(response, "member_id")) or asked


def _body(message: Message | None, body_json: Callable[[Message], str] | None) -> str | None:
    if message is None or message.body is None or body_json is None:
        return None
    return body_json(message)


class ExchangeRows:
    """Rows of `exchanges` that wait to become a record batch; `size` says when it is time."""

    def __init__(self, body_json: Callable[[Message], str] | None) -> None:
        self._body_json = body_json
        self._columns: list[list[Any]] = [[] for _ in EXCHANGES]
        self.size = 0
        """Estimated bytes that the waiting rows hold: what varies without bound is counted, the rest is a constant."""

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, exchange: Exchange) -> None:
        """Add the row of one exchange."""
        row = exchange_row(exchange, self._body_json)
        for column, value in zip(self._columns, row.values(), strict=True):
            column.append(value)
        self.size += (
            ROW_BYTES
            + sum(len(value) for value in row.values() if isinstance(value, str))
            + sum(len(topic) for topic in row["topics"])
            + PARTITION_BYTES * (len(row["topics"]) + len(row["partitions"]))
        )

    def take(self) -> pa.RecordBatch:
        """The waiting rows as one record batch of schema `EXCHANGES`; none wait afterwards."""
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, EXCHANGES, strict=True)]
        self._columns = [[] for _ in EXCHANGES]
        self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=EXCHANGES)


ROW_BYTES: Final = 1000
"""What the columns of bounded size cost per waiting row, as Python objects."""
PARTITION_BYTES: Final = 1000
"""What one element of `partitions` or `topics` costs while it waits."""
