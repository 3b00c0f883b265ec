"""Efficiency of consumers: empty fetches, bytes and records per fetch by client and topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ratio, table_of
from kafkasniff.analysis.sql.question import SqlQuestion, texts
from kafkasniff.errors import UsageError

_APIS: Final = ("Fetch", "ShareFetch")
_KEYS: Final = {"client": ("client_id", "client_ip"), "topic": ("topic",)}
_SUMS: Final = ("fetches", "empty", "failed", "bytes", "records", "waited_us")
_WHOLE: Final = "fetched AS (SELECT *, {bytes_inside} AS bytes, {records_inside} AS records FROM fetches)"
_FETCH: Final = "client_id, client_ip, connection_id, exchange_id, error_count, latency_us"
_BY_TOPIC: Final = f"""parts AS (
  SELECT {_FETCH}, coalesce(one.topic, one.topic_id) AS topic, one.bytes AS bytes, one.record_count AS records
  FROM (SELECT {_FETCH}, explode(partitions) AS one FROM fetches) AS exploded
  UNION ALL
  -- Topics of the session without data, and fetches without a known topic.
  SELECT {_FETCH}, topic, NULL AS bytes, NULL AS records
  FROM (SELECT {_FETCH}, {{each_topic}} AS topic, partitions FROM fetches) AS exploded
  WHERE topic IS NOT NULL OR array_size(partitions) = 0
),
fetched AS (
  SELECT {_FETCH}, topic, coalesce(sum(bytes), 0) AS bytes, coalesce(sum(records), 0) AS records
  FROM parts
  GROUP BY {_FETCH}, topic
)"""


class FetchEfficiencyParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `FetchEfficiency`."""

    by: Annotated[
        tuple[Literal["client", "topic"], ...],
        Meta(description="By client alone, a fetch is empty if no topic had data; by topic, if this topic had none."),
    ] = ("client", "topic")


class FetchEfficiency(SqlQuestion[FetchEfficiencyParameters]):
    """Answered fetches, how many of them returned nothing, and the data of the others.

    Many empty fetches with a short wait are a busy loop: a consumer at the end of its partitions normally waits for
    `fetch.max.wait.ms` each time. A fetch counts for each topic of its request or session (KIP-227; in sessions of more
    than 100 topics, of request and response), with `--by client` once.
    """

    name: ClassVar[str] = "fetch-efficiency"
    summary: ClassVar[str] = "Empty fetches, bytes and records per fetch, by client and topic."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "topic", "fetches", "empty", "failed", "bytes", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "topic": "null for fetches without a known topic, such as one that closes its session",
        "fetches": "answered fetches",
        "empty": "fetches without a record batch of this topic",
        "failed": "fetches whose response has an error code; not counted as empty",
        "empty_ratio": "empty fetches divided by all",
        "bytes_per_fetch": "mean over fetches with data",
        "records_per_fetch": "mean over fetches with data",
        "empty_wait_us": "mean latency of empty fetches",
    }
    parameters_type = FetchEfficiencyParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("fetch-efficiency: --by names client, topic or both")
        self._keys = tuple(name for one, names in _KEYS.items() if one in self.parameters.by for name in names)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", "client_id", "client_ip", "connection_id", "exchange_id", "topics", "partitions")
        return {"exchanges": TableReading((*own, "error_count", "latency_us"), _APIS)}

    def pieces(self) -> dict[str, str]:
        fetched = _BY_TOPIC if "topic" in self._keys else _WHOLE
        return {"apis": texts(_APIS), "keys": ", ".join(self._keys), "fetched": fetched}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*((name, pa.string()) for name in self._keys), *((name, pa.int64()) for name in _SUMS)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        brought = pc.subtract(pc.subtract(columns["fetches"], columns["empty"]), columns["failed"])
        columns["empty_ratio"] = ratio(columns["empty"], columns["fetches"])
        columns["bytes_per_fetch"] = ratio(columns["bytes"], brought)
        columns["records_per_fetch"] = ratio(columns["records"], brought)
        columns["empty_wait_us"] = ratio(columns["waited_us"], columns["empty"])
        fields = [
            *((name, pa.string()) for name in self._keys),
            *((name, pa.int64()) for name in ("fetches", "empty", "failed", "bytes", "records")),
            *(
                (name, pa.float64())
                for name in ("empty_ratio", "bytes_per_fetch", "records_per_fetch", "empty_wait_us")
            ),
        ]
        names = [(name, "ascending") for name in self._keys]
        return table_of(columns, fields, [("fetches", "descending"), *names])
