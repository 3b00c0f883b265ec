"""Fetches across zones: the consumer's rack compared with the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    exploded,
    in_any,
    integers,
    is_follower,
    looked_up,
    only,
    order_columns,
    table_of,
)
from kafkasniff.analysis.partials import Shape

__all__ = ["Racks"]

_FETCHES: Final = ("Fetch", "ShareFetch")
_RACK_APIS: Final = ("Metadata", "DescribeCluster")
_CLIENT: Final[Any] = (
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("follower", pa.bool_()),
    ("client_rack", pa.string()),
    ("broker_id", pa.int32()),
    ("broker", pa.string()),
)


class _Broker(msgspec.Struct):
    rack: str | None = None
    node_id: int | None = None
    broker_id: int | None = None
    """The name of the API Metadata's field in DescribeCluster."""


class _Brokers(msgspec.Struct):
    brokers: list[_Broker] = []


_BROKERS: Final = msgspec.json.Decoder(_Brokers)


class _Rack(msgspec.Struct):
    rack_id: str | None = None


_RACK: Final = msgspec.json.Decoder(_Rack)


class Racks(Accumulator[Parameters]):
    """Fetches and their bytes by the consumer's rack and that of the broker, those that cross zones first.

    Racks are in bodies: in exports with `--no-json` all are null. `--hosts` fills in racks by address that no message
    contains.
    """

    name: ClassVar[str] = "racks"
    summary: ClassVar[str] = "Fetches across zones: the consumer's rack compared with the broker's."
    essential: ClassVar[tuple[str, ...]] = (
        "client_id",
        "broker",
        "client_rack",
        "broker_rack",
        "cross_zone",
        "fetches",
        "bytes",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "follower": "whether it is a broker that replicates, by its client id",
        "broker_rack": "from the last Metadata or DescribeCluster response",
        "cross_zone": "whether they differ; null if one of them is unknown",
        "fetches": "number of fetches",
    }

    def reads(self) -> Mapping[str, TableReading]:
        own = ("client_id", "client_ip", "broker_id", "broker_ip", "broker_port", "request_body", "response_body")
        return {
            "exchanges": TableReading(("api", *ORDER, *own, "partitions", "response_size"), (*_FETCHES, *_RACK_APIS))
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("fetches", "bytes", "records", "response_bytes"))
        last: Any = tuple((name, pa.int64(), "last") for name in ORDER)
        return {
            "fetches": Shape(keys=_CLIENT, measures=sums, weight="response_bytes"),
            "brokers": Shape(
                keys=(("node_id", pa.int64()),), measures=(*last, ("rack", pa.string(), "last")), order=ORDER
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self._learn(only(batch, pc.and_(in_any(batch, "api", _RACK_APIS), pc.is_valid(column(batch, "response_body")))))
        batch = only(batch, in_any(batch, "api", _FETCHES))
        batch = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        brought = exploded(batch, ["row"])
        rows = integers(column(brought, "row"))
        size, records = (
            np.bincount(rows, weights=integers(column(brought, name)), minlength=batch.num_rows).astype(np.int64)
            for name in ("bytes", "record_count")
        )
        client = {name: column(batch, name) for name in ("client_id", "client_ip", "broker_id")}
        self.parts["fetches"].add(
            {
                **client,
                "follower": is_follower(column(batch, "client_id")),
                "client_rack": looked_up(batch, "request_body", _rack, pa.string()),
                "broker": broker_endpoint(batch),
                "fetches": np.ones(batch.num_rows, np.int64),
                "bytes": size,
                "records": records,
                "response_bytes": integers(column(batch, "response_size")),
            }
        )

    def _learn(self, batch: pa.RecordBatch) -> None:
        bodies = column(batch, "response_body").to_pylist()
        found = [(row, broker) for row, body in enumerate(bodies) for broker in _brokers(body)]
        rows = pa.array([row for row, _ in found], pa.int64())
        order = {name: values.take(rows) for name, values in order_columns(batch).items()}
        nodes = [broker.node_id if broker.node_id is not None else broker.broker_id for _, broker in found]
        racks = pa.array([broker.rack for _, broker in found], pa.string())
        self.parts["brokers"].add({**order, "node_id": pa.array(nodes, pa.int64()), "rack": racks})

    def result(self) -> pa.Table:
        brokers = self.parts["brokers"].table()
        racks = dict(zip(brokers.column("node_id").to_pylist(), brokers.column("rack").to_pylist(), strict=True))
        table = self.parts["fetches"].table()
        columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        broker_racks = [racks.get(node) for node in table.column("broker_id").to_pylist()]
        client_racks = table.column("client_rack").to_pylist()
        if self.hosts is not None:
            find = self.hosts.rack
            ends = table.column("broker").to_pylist()
            broker_racks = [one or find(*_split(end)) for one, end in zip(broker_racks, ends, strict=True)]
            ips = table.column("client_ip").to_pylist()
            client_racks = [one or find(address) for one, address in zip(client_racks, ips, strict=True)]
            columns["client_rack"] = client_racks
        pairs = zip(client_racks, broker_racks, strict=True)
        columns["cross_zone"] = [None if one is None or other is None else one != other for one, other in pairs]
        columns["broker_rack"] = broker_racks
        fields = [
            *_CLIENT,
            ("broker_rack", pa.string()),
            ("cross_zone", pa.bool_()),
            *((name, pa.int64()) for name in ("fetches", "bytes", "records", "response_bytes")),
        ]
        order = [("cross_zone", "descending"), ("response_bytes", "descending")]
        return table_of(columns, fields, [*order, *((name, "ascending") for name, _ in _CLIENT)])


def _split(endpoint: str | None) -> tuple[str | None, int | None]:
    """Address and port of an endpoint as text."""
    if endpoint is None:
        return None, None
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


def _rack(body: str) -> str | None:
    try:
        # A client without a rack sends an empty one.
        return _RACK.decode(body).rack_id or None
    except msgspec.DecodeError:
        return None


def _brokers(body: str) -> list[_Broker]:
    try:
        return _BROKERS.decode(body).brokers
    except msgspec.DecodeError:
        return []
