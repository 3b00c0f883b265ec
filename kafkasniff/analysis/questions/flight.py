"""Flight: how long records take from producer to acknowledgement, to each group, to its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import table_of
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.sql.question import SqlQuestion, ranked, texts
from kafkasniff.errors import UsageError

_APIS: Final = ("Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit")
_KEYS: Final = {"topic": ("topic",), "group": ("group_id", "client_id"), "rack": ("client_rack",)}
_LEGS: Final = ("acknowledged", "fetched", "committed")
_NUMBERS: Final = ("p50", "p99", "most")
"""Nanoseconds in what the query finds."""
_NAMES: Final = ("p50", "p99", "max")


class FlightParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Flight`."""

    by: Annotated[
        tuple[Literal["topic", "group", "rack"], ...],
        Meta(description="Dimensions of the answer; rack is the consumer's (client.rack)."),
    ] = ("topic", "group")


class Flight(SqlQuestion[FlightParameters]):
    """Percentiles of the time that records take: to acknowledgement, to the first fetch by each group, to its commit.

    A record counts if the capture has its Produce request and an acknowledgement with its offset, and once for each
    group that fetches it. A consumer without a known group counts by its client id; a row without either has records
    that nobody fetched. Transactional records wait for the end of their transaction. Percentiles are exact.
    """

    name: ClassVar[str] = "flight"
    summary: ClassVar[str] = "Time of records from producer to acknowledgement, to each group, to its commit."
    essential: ClassVar[tuple[str, ...]] = (
        *("topic", "group_id", "records", "acknowledged_p50_us", "fetched", "fetched_p50_us", "fetched_p99_us"),
        "committed_p50_us",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "group_id": "the group that fetched; null if it is unknown, or nobody did",
        "client_id": "client id of a consumer without a known group",
        "records": "produced records with a known offset",
        "acknowledged_p50_us": "from the Produce request to its response",
        "acknowledged_p99_us": "from the Produce request to its response",
        "acknowledged_max_us": "from the Produce request to its response",
        "fetched": "records that were fetched",
        "fetched_p50_us": "from the Produce request to the first fetch of the group",
        "fetched_p99_us": "from the Produce request to the first fetch of the group",
        "fetched_max_us": "from the Produce request to the first fetch of the group",
        "committed": "records with a commit of the group beyond them",
        "committed_p50_us": "from the first fetch of the group to its first commit beyond the record",
        "committed_p99_us": "from the first fetch of the group to its first commit beyond the record",
        "committed_max_us": "from the first fetch of the group to its first commit beyond the record",
    }
    parameters_type = FlightParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("flight: --by names at least one dimension")
        self._keys = tuple(name for one in dict.fromkeys(self.parameters.by) for name in _KEYS[one])

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            *("connection_id", "exchange_id", "api", "client_id", "client_ip", "group_id", "time_ns", "latency_us"),
            *("status", "sender", "partitions", *(("request_body",) if "client_rack" in self._keys else ())),
        )
        carried = (*own[:3], "time", "direction", "topic", "topic_id", "partition", "offset", "control")
        return {
            "exchanges": TableReading(own, tuple(dict.fromkeys((*_APIS, *MEMBER_APIS)))),
            "records": TableReading(carried),
        }

    def pieces(self) -> dict[str, str]:
        keys = ", ".join(self._keys)
        # Bodies are not read for nothing.
        no_rack = {} if "client_rack" in self._keys else {"rack": "CAST(NULL AS STRING)"}
        return {"apis": texts(_APIS), "keys": keys, "ranked": ranked(f"{keys}, leg"), **no_rack}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = ("records", "measured", *_NUMBERS)
        return [*((name, pa.string()) for name in (*self._keys, "leg")), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in found.to_pylist():
            keys = {name: row[name] for name in self._keys}
            group = groups.setdefault(tuple(keys.values()), {**keys, "records": row["records"]})
            leg = row["leg"]
            for name, column in zip(_NUMBERS, _NAMES, strict=True):
                group[f"{leg}_{column}_us"] = None if row[name] is None else row[name] // 1000
            group[leg] = row["measured"] or 0
        fields: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in self._keys]
        fields.append(("records", pa.int64()))
        for leg in _LEGS:
            counted = () if leg == "acknowledged" else (leg,)
            names = (*counted, *(f"{leg}_{one}_us" for one in _NAMES))
            fields += [(name, pa.int64()) for name in names]
        columns = {name: [group[name] for group in groups.values()] for name, _ in fields}
        return table_of(columns, fields, [(name, "ascending") for name in self._keys])
