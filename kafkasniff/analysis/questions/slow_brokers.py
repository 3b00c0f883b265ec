"""Brokers that are slower than their peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, only, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.waits import WAIT_COLUMNS, may_have_waited, with_sender, work_us

_QUANTILES: Final = {"p50_us": 0.5, "p99_us": 0.99}


class SlowBrokerParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `SlowBrokers`."""

    factor: Annotated[float, Meta(gt=0, description="This many times the median of its peers is slow.")] = 2.0
    at_least: Annotated[
        int, Meta(ge=1, description="Minimum number of responses of a broker to an API; fewer are not judged.")
    ] = 20


class SlowBrokers(Accumulator[SlowBrokerParameters]):
    """For each API the median latency of each broker compared with the median of the other brokers' medians.

    The slowest relative to its peers comes first. Exchanges in which the broker waited as requested, or may have, are
    skipped; time spent waiting for earlier requests and quotas is subtracted. Fetches of replicas and of the KRaft
    quorum are compared separately from those of clients. A broker without peers, or with too few responses, has neither
    ratio nor verdict.
    """

    name: ClassVar[str] = "slow-brokers"
    summary: ClassVar[str] = "Brokers that are slower than their peers, API by API."
    essential: ClassVar[tuple[str, ...]] = ("api", "broker", "p50_us", "peers_p50_us", "ratio", "slow")
    columns: ClassVar[Mapping[str, str]] = {
        "api": "name; `replica Fetch` and `quorum Fetch` are separate from `Fetch`, by sender",
        "count": "number of responses",
        "peers_p50_us": "median of the other brokers; null if none of them is judged",
        "ratio": "this broker's median divided by theirs",
        "slow": "whether `ratio` is at least `--factor`",
    }
    parameters_type = SlowBrokerParameters

    def check(self) -> None:
        """Brokers are shown by number and address."""
        self._dimensions = Dimensions(("api", "broker"))

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._dimensions.reads, "latency_us", *WAIT_COLUMNS))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(self._dimensions.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(may_have_waited(batch))))
        keys = {**self._dimensions.arrays(batch), "api": with_sender(batch)}
        self.parts["latencies"].add(distribution_rows(keys, pa.array(work_us(batch))))

    def result(self) -> pa.Table:
        keys, found = distributions(self.parts["latencies"], self._dimensions.names, _QUANTILES)
        columns: dict[str, Any] = {**self._dimensions.answer(keys), "count": found["count"]}
        columns |= {name: found[name] for name in _QUANTILES}
        # Brokers of another cluster are not peers.
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
                # The lower middle element of the list without this one.
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
