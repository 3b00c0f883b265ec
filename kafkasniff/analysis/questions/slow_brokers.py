"""Which brokers are slower than their peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, Reading
from kafkasniff.analysis.columns import column, in_any, only, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.partials import Shape

__all__ = ["SlowBrokerParameters", "SlowBrokers"]

_QUANTILES: Final = {"p50_us": 0.5, "p99_us": 0.99}
WAITING: Final = ("JoinGroup", "SyncGroup")
"""Answered when other members have come, however fast the broker is."""
FETCHES: Final = ("Fetch", "ShareFetch")
"""An empty one waited for data."""


class SlowBrokerParameters(Parameters, frozen=True, kw_only=True):
    """Of `SlowBrokers`."""

    factor: Annotated[float, Meta(gt=0, description="So many times the median of its peers is slow.")] = 2.0
    at_least: Annotated[int, Meta(ge=1, description="Fewer answers of a broker to an API are not judged.")] = 20


class SlowBrokers(Accumulator[SlowBrokerParameters]):
    """For each API the median latency of each broker against the median of the other brokers' medians.

    The slowest against its peers comes first. Empty fetches and requests that wait for other members are left out. A
    broker without peers, or with too few answers, has neither ratio nor verdict.
    """

    name: ClassVar[str] = "slow-brokers"
    summary: ClassVar[str] = "Brokers that are slower than their peers, API by API."
    parameters_type = SlowBrokerParameters

    def check(self) -> None:
        """Brokers are told by number and address."""
        self._dimensions = Dimensions(("api", "broker"))

    def reads(self) -> Mapping[str, Reading]:
        return {"exchanges": Reading((*self._dimensions.reads, "latency_us", "record_count"))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(self._dimensions.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        empty = pc.equal(pc.fill_null(column(batch, "record_count"), 0), 0)
        waits = pc.or_(in_any(batch, "api", WAITING), pc.and_(in_any(batch, "api", FETCHES), empty))
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(waits)))
        rows = distribution_rows(self._dimensions.arrays(batch), column(batch, "latency_us"))
        self.parts["latencies"].add(rows)

    def result(self) -> pa.Table:
        keys, found = distributions(self.parts["latencies"], self._dimensions.names, _QUANTILES)
        columns: dict[str, Any] = {**self._dimensions.answer(keys), "count": found["count"]}
        columns |= {name: found[name] for name in _QUANTILES}
        # Brokers of another cluster are no peers.
        judged: dict[tuple[str | None, str | None], list[tuple[int, int]]] = {}
        names = (keys.column(name).to_pylist() for name in ("broker", "api"))
        rows = zip(*names, found["count"].to_pylist(), found["p50_us"].to_pylist(), strict=True)
        for row, (broker, api, count, median) in enumerate(rows):
            if count >= self.parameters.at_least:
                judged.setdefault((self.clusters.group(broker), api), []).append((median, row))
        peers: list[int | None] = [None] * keys.num_rows
        for brokers in judged.values():
            brokers.sort()
            medians = [median for median, _ in brokers]
            for place, (_, row) in enumerate(brokers):
                # The lower of the two in the middle, of the list without this one.
                middle = (len(medians) - 2) // 2
                if len(medians) > 1:
                    peers[row] = medians[middle if middle < place else middle + 1]
        ratios = [
            None if other is None or other <= 0 else median / other
            for median, other in zip(found["p50_us"].to_pylist(), peers, strict=True)
        ]
        slow = [None if one is None else one >= self.parameters.factor for one in ratios]
        columns |= {"peers_p50_us": peers, "ratio": ratios, "slow": slow}
        fields = [
            *self._dimensions.fields,
            ("count", pa.int64()),
            ("p50_us", pa.int64()),
            ("p99_us", pa.int64()),
            ("peers_p50_us", pa.int64()),
            ("ratio", pa.float64()),
            ("slow", pa.bool_()),
        ]
        order = [(name, "ascending") for name, _ in self._dimensions.fields]
        return table_of(columns, fields, [("ratio", "descending"), *order])
