"""Brokers that are slower than their peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector, united
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.wording import elapsed, some, times_as_much
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.slow_brokers import SlowBrokerParameters, SlowBrokers
from kafkasniff.analysis.waits import may_have_waited, with_sender, work_us
from kafkasniff.text.times import duration

_REPLICAS: Final = " (acks=all)"
MAX_SLOWEST: Final = 1 << 16
"""Maximum number of exchanges that are kept as evidence, the slowest."""


class SlowBrokerThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SlowBroker`."""

    factor: Annotated[float, Meta(gt=1, description="This many times the median of its peers is slow.")] = 2.0
    at_least: Annotated[
        int, Meta(ge=1, description="Minimum number of responses of a broker to an API; fewer are not judged.")
    ] = 20
    beyond: Annotated[Duration, Meta(ge=0, description="Minimum difference from its peers' median.")] = 5_000_000
    grave: Annotated[Duration, Meta(ge=0, description="A difference of at least this is a warning, less a note.")] = (
        20_000_000
    )


class SlowBroker(Detector[SlowBrokerThresholds]):
    """Brokers whose median time to answer an API is longer than that of their peers.

    Exchanges with a possible requested wait are excluded; time queued after earlier requests and throttle times are
    subtracted. Produce with acks=all is compared with Produce with acks=all only.

    Caveats: network time is included, so a broker in another zone looks slow. With acks=all another replica may be the
    slow one. A higher load is a good reason to be slower.
    """

    name: ClassVar[str] = "slow-broker"
    summary: ClassVar[str] = "Brokers that are slower than their peers."
    parameters_type = SlowBrokerThresholds
    parts_clusters = True

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        limits = self.thresholds
        return {"slow": SlowBrokers(SlowBrokerParameters(factor=limits.factor, at_least=limits.at_least))}

    def reads(self) -> Mapping[str, TableReading]:
        return united(super().reads(), {"exchanges": TableReading(ORDER)})

    def shapes(self) -> Mapping[str, Shape]:
        place = tuple((name, pa.int64()) for name in ORDER)
        keys = (("api", pa.string()), ("broker", pa.string()), ("faster_us", pa.int64()), *place)
        order = ("faster_us", *ORDER)
        slowest = Shape(
            keys=keys, order=order, keep="earliest", group=("api", "broker"), each=MAX_EVIDENCE, bound=MAX_SLOWEST
        )
        span: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {"slowest": slowest, "times": Shape(keys=(("broker", pa.string()),), measures=span)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        # The numbers of brokers may become known late or halfway through, so brokers are identified by endpoint.
        place = batch.schema.get_field_index("broker_id")
        batch = batch.set_column(place, "broker_id", pa.nulls(batch.num_rows, pa.int32()))
        # A leader that waits for replicas is compared with others that do.
        waits = pc.fill_null(in_any(batch, "waits_for", ["replicas"]), False)
        api = column(batch, "api")
        labels = pc.if_else(waits, pc.binary_join_element_wise(api, _REPLICAS, ""), api)
        batch = batch.set_column(batch.schema.get_field_index("api"), "api", labels)
        self.asked["slow"].update(batch)
        known = pc.and_(pc.is_valid(column(batch, "latency_us")), pc.is_valid(column(batch, "api")))
        batch = only(batch, pc.and_(known, pc.invert(may_have_waited(batch))))
        broker, time = broker_endpoint(batch), column(batch, "time_ns")
        self.parts["times"].add({"broker": broker, "first": time, "last": time})
        self.parts["slowest"].add(
            {
                "api": with_sender(batch),
                "broker": broker,
                "faster_us": -work_us(batch),
                **{name: column(batch, name) for name in ORDER},
            }
        )

    def findings(self) -> list[Finding]:
        by_broker: dict[str, list[dict[str, Any]]] = {}
        self.asked["slow"].clusters = self.clusters
        for row in self.asked["slow"].result().to_pylist():
            if row["slow"] and (row["p50_us"] - row["peers_p50_us"]) * 1000 >= self.thresholds.beyond:
                by_broker.setdefault(row["broker"], []).append(row)
        times = {row["broker"]: row for row in self.parts["times"].table().to_pylist()}
        return [self._finding(broker, rows, times.get(broker, {})) for broker, rows in by_broker.items()]

    def _finding(self, broker: str, rows: list[dict[str, Any]], times: dict[str, Any]) -> Finding:
        worst = rows[0]
        apis = [row["api"] for row in rows]
        others = f" (and {some(apis[1:])})" if apis[1:] else ""
        difference = (worst["p50_us"] - worst["peers_p50_us"]) * 1000
        return self.finding(
            "warning" if difference >= self.thresholds.grave else "note",
            f"{broker}: median {worst['api']}{others} latency is {elapsed(worst['p50_us'] * 1000)}, "
            f"{times_as_much(worst['ratio'])} its peers' ({elapsed(worst['peers_p50_us'] * 1000)})",
            meaning=(
                "The same requests take longer at this broker than at the others: it has more work, or a slower disk, "
                "network or machine."
                + (" With acks=all, it may wait for a slow follower." if any(map(_waits, apis)) else "")
            ),
            advice=(
                "Check how leaders and traffic are spread (skewed-partitions), and this broker's disks, request queue "
                "and garbage collection; `kafkasniff timing --by broker` shows whether the network path is slow."
            ),
            subject={"broker": broker},
            count=sum(row["count"] for row in rows),
            first=times.get("first"),
            last=times.get("last"),
            evidence=self._evidence(broker, apis),
            values={
                "apis": apis,
                **{name: worst[name] for name in ("p50_us", "p99_us", "peers_p50_us", "ratio")},
            },
        )

    def _evidence(self, broker: str, apis: list[str]) -> tuple[Evidence, ...]:
        """Its slowest exchanges of the API with the largest ratio."""
        rows = [
            row
            for row in self.parts["slowest"].table().to_pylist()
            if row["broker"] == broker and row["api"] == apis[0]
        ]
        rows.sort(key=lambda row: (row["faster_us"], row["time_ns"] or 0, row["connection_id"], row["exchange_id"]))
        return tuple(
            Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], duration(-row["faster_us"] * 1000))
            for row in rows[:MAX_EVIDENCE]
        )


def _waits(api: str) -> bool:
    """Whether the broker waits for replicas."""
    return api.endswith(_REPLICAS)
