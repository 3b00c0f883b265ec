"""Reads an export for the explorer: its rows into an index, and one of them again when it is looked at.

An export has no bytes of messages, and no numbers: connections are numbered in the order of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.browse.reading import GrowingCapture, Progress, unseen
from kafkasniff.errors import UsageError
from kafkasniff.filters import Candidate, Predicate, compiled, fields_of
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Body, Direction, Endpoint, ErrorCode, Exchange, Message, Problem
from kafkasniff.sinks.tree import layout_of

KEY: Final = ("connection_id", "exchange_id")
LISTED: Final = (
    *(*KEY, "time_ns", "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api", "api_version"),
    *("client_id", "status", "request_size", "response_size", "latency_us", "error_code", "topics", "group_id"),
    *("transactional_id", "problems"),
)
"""Columns that the list is made from."""
WHOLE: Final = (
    *(*LISTED, "capture", "correlation_id", "software_name", "software_version", "broker_id", "duration_us"),
    *("throttle_time_ms", "retransmits", "request_body", "response_body"),
)
UNKNOWN_FIELDS: Final = frozenset({"exchange", "first_packet", "last_packet"})
"""Fields of filters that no export has."""
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


class ExportReading:
    """An export. It offers what `CaptureReading` does."""

    growing: GrowingCapture | None = None

    def __init__(self, export: Export) -> None:
        self._export = export
        self._numbers: dict[int, int] = {}
        """Numbers of connections."""

    def fill(
        self,
        index: ExchangeIndex,
        predicate: Predicate | None,
        *,
        stopped: Callable[[], bool],
        progress: Progress,
        follow: bool = False,
    ) -> bool:
        """See `CaptureReading`. Raises CaptureError; UsageError if a filter needs what the export does not have."""
        fields = fields_of(predicate)
        missing = sorted(fields & UNKNOWN_FIELDS)
        if missing:
            raise UsageError(f"an export does not have {missing[0]}, so it cannot be filtered by it")
        if predicate is not None and not self._export.has_json:
            raise UsageError("this export has no bodies, so it cannot be filtered (export without --no-json)")
        holds = None if predicate is None else compiled(predicate)
        for batch in self._batches(LISTED if holds is None else WHOLE):
            if stopped() or index.is_full:
                break
            for row in batch.to_pylist():
                exchange = self._exchange(row)
                if holds is None or holds(
                    Candidate(request=exchange.request, response=exchange.response, ended=exchange)
                ):
                    index.add(exchange, _subjects(row))
            index.publish()
            progress(0, None)
        index.is_complete = True
        return False

    def look(
        self,
        index: ExchangeIndex,
        row: Row,
        *,
        stopped: Callable[[], bool],
        progress: Progress = unseen,
        most: int = 0,
    ) -> Exchange | None:
        """See `CaptureReading`; all records of the export are decoded. Raises CaptureError."""
        times = (row.time, row.time) if row.time is not None else (None, None)
        for batch in self._export.batches("exchanges", TableReading(WHOLE), *times):
            if stopped():
                return None
            keys = zip(*(batch.column(name).to_pylist() for name in KEY), strict=True)
            for place, key in enumerate(keys):
                if key == (row.connection_id, row.exchange_id):
                    return self._exchange(batch.slice(place, 1).to_pylist()[0])
        return None

    def _batches(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        return self._export.batches("exchanges", TableReading(columns))

    def _exchange(self, row: Mapping[str, Any]) -> Exchange:
        number = self._numbers.setdefault(row["connection_id"], len(self._numbers) + 1)
        request = None if row["request_size"] is None else self._message(row, "request", number)
        response = None if row["response_size"] is None else self._message(row, "response", number)
        return Exchange(
            0,
            number,
            row["status"],
            request,
            response,
            latency_ns=_nanoseconds(row["latency_us"]),
            duration_ns=_nanoseconds(row.get("duration_us")),
            problems=tuple(Problem(kind, "the table problems has the details") for kind in row["problems"] or ()),
            connection_id=row["connection_id"],
            exchange_id=row["exchange_id"],
            retransmits=row.get("retransmits") or 0,
            broker_id=row.get("broker_id"),
            software_name=row.get("software_name"),
            software_version=row.get("software_version"),
        )

    @staticmethod
    def _message(row: Mapping[str, Any], side: Direction, number: int) -> Message:
        text = row.get(f"{side}_body")
        is_response = side == "response"
        time = row["time_ns"]
        if is_response and time is not None and row["request_size"] is not None:
            # Approximately: only the time of the request is in the table.
            time += _nanoseconds(row["latency_us"]) or 0
        message = Message(
            side,
            row[f"{side}_size"],
            correlation_id=row.get("correlation_id"),
            api_key=row["api_key"],
            api=row["api"],
            api_version=row["api_version"],
            client_id=row["client_id"],
            body=None if text is None else _BODY.decode(text),
            connection=number,
            capture=row.get("capture"),
            time_ns=time,
            client=_end(row["client_ip"], row["client_port"]),
            broker=_end(row["broker_ip"], row["broker_port"]),
            latency_ns=_nanoseconds(row["latency_us"]) if is_response else None,
            duration_ns=_nanoseconds(row.get("duration_us")) if is_response else None,
        )
        if not is_response:
            return message
        layout = layout_of(message)
        errors: tuple[ErrorCode, ...] = ()
        if message.body is not None and layout is not None:
            errors = tuple(_errors(layout, message.body, ""))
        elif row["error_code"]:
            errors = (ErrorCode(row["error_code"], error_name(row["error_code"]), ""),)
        return msgspec.structs.replace(message, errors=errors)


def _nanoseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds * 1000


def _end(address: str | None, port: int | None) -> Endpoint | None:
    return None if address is None or port is None else Endpoint(address, port)


def _subjects(row: Mapping[str, Any]) -> list[str]:
    """What the row names: topics, then its only group and transactional id."""
    return [*(row["topics"] or ()), *(row[name] for name in ("group_id", "transactional_id") if row[name] is not None)]


def _errors(layout: Struct, body: Body, path: str) -> Iterator[ErrorCode]:
    """The error codes of a body, in order."""
    for field in (*layout.fields, *layout.tagged):
        if field.type != "error" and (field.struct is None or not field.struct.errors):
            continue
        value = body.get(field.name)
        places = (
            [(f"{path}{field.name}[{index}]", one) for index, one in enumerate(value)]
            if isinstance(value, list)
            else [(f"{path}{field.name}", value)]
        )
        for place, one in places:
            if field.struct is None:
                if one:
                    yield ErrorCode(one, error_name(one), place)
            elif isinstance(one, dict):
                yield from _errors(field.struct, one, f"{place}.")
