"""Transactions of producers, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, datetimes, floor_divided, table_of
from kafkasniff.analysis.sql.question import SqlQuestion, texts

_APIS: Final = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")
_TEXTS: Final = ("transactional_id", "client_id", "client_ip", "group_id", "error", "committed")
_COUNTS: Final = ("produces", "records", "bytes", "topics", "partitions", "with_errors")
_OTHERS: Final = ("first_ns", "last_ns", "ended", "end_us", "nth")
_OUTCOMES: Final = {("true", True): "committed", ("false", True): "aborted", ("true", False): "committing",
                    ("false", False): "aborting"}  # fmt: skip


class TransactionParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Transactions`."""

    outcome: Annotated[
        tuple[Literal["committed", "aborted", "committing", "aborting", "open"], ...],
        Meta(description="Only transactions that ended like this."),
    ] = ()


class Transactions(SqlQuestion[TransactionParameters]):
    """Transactions in the order of their first request, with what each wrote and how it ended.

    A transaction is what a producer sends between two ends: EndTxn, or InitProducerId of its next start. Retries of
    EndTxn belong to it. Outcomes: committed, aborted (EndTxn succeeded); committing, aborting (EndTxn was not answered,
    or failed); open (the capture has no EndTxn: the broker aborts it when it times out or the producer starts again).
    """

    name: ClassVar[str] = "transactions"
    summary: ClassVar[str] = "Transactions: what each wrote, how long it took, how it ended."
    essential: ClassVar[tuple[str, ...]] = ("time", "transactional_id", "outcome", "duration_us", "records", "error")
    columns: ClassVar[Mapping[str, str]] = {
        "time": "time of its first request",
        "transactional_id": "transactional id of the producer",
        "outcome": "committed, aborted, committing, aborting, open",
        "duration_us": "from its first request to its last response",
        "end_us": "latency of the slowest EndTxn: the coordinator logs the decision before it answers",
        "produces": "number of Produce requests",
        "topics": "number of topics written to",
        "partitions": "number of partitions written to",
        "with_errors": "exchanges with an error code, including those that were retried",
        "error": "name of the last error code",
        "group_id": "group whose offsets it commits",
    }
    parameters_type = TransactionParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            *("transactional_id", "client_id", "client_ip", "api", "api_version", *ORDER, "duration_us", "latency_us"),
            *("status", "error", "error_code", "error_count", "group_id", "record_count", "partitions", "request_body"),
        )
        return {"exchanges": TableReading(own, _APIS)}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_APIS)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*((name, pa.string()) for name in _TEXTS), *((name, pa.int64()) for name in (*_COUNTS, *_OTHERS))]

    def finish(self, found: pa.Table) -> pa.Table:
        found = found.sort_by([(name, "ascending") for name in ("first_ns", "transactional_id", "nth")])
        ended = [bool(one) for one in found.column("ended").to_pylist()]
        outcomes = [
            _OUTCOMES.get((committed, over), "open")
            for committed, over in zip(found.column("committed").to_pylist(), ended, strict=True)
        ]
        columns = {name: found.column(name) for name in (*_TEXTS, *_COUNTS, "end_us")}
        columns["time"] = datetimes(found.column("first_ns"))
        columns["outcome"] = pa.array(outcomes, pa.string())
        columns["duration_us"] = floor_divided(pc.subtract(found.column("last_ns"), found.column("first_ns")), 1000)
        columns["records"] = pc.fill_null(found.column("records"), 0)
        fields = [
            ("time", TIME),
            ("transactional_id", pa.string()),
            ("outcome", pa.string()),
            ("duration_us", pa.int64()),
            ("end_us", pa.int64()),
            *((name, pa.int64()) for name in _COUNTS),
            *((name, pa.string()) for name in ("error", "group_id", "client_id", "client_ip")),
        ]
        table = table_of(columns, fields)
        wanted = self.parameters.outcome
        return table.filter(pc.is_in(table.column("outcome"), pa.array(wanted, pa.string()))) if wanted else table
