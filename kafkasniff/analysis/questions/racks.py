"""Fetches across zones: the consumer's rack compared with the broker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, table_of
from kafkasniff.analysis.dimensions import BROKER_SQL
from kafkasniff.analysis.sql.question import SqlQuestion, texts

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
_SUMS: Final = ("fetches", "bytes", "records", "response_bytes")


class Racks(SqlQuestion[Parameters]):
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

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_FETCHES), "rack_apis": texts(_RACK_APIS), "broker": BROKER_SQL}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*_CLIENT, ("broker_rack", pa.string()), *((name, pa.int64()) for name in _SUMS)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        broker_racks, client_racks = (found.column(name).to_pylist() for name in ("broker_rack", "client_rack"))
        if self.hosts is not None:
            find = self.hosts.rack
            ends = found.column("broker").to_pylist()
            broker_racks = [one or find(*_split(end)) for one, end in zip(broker_racks, ends, strict=True)]
            ips = found.column("client_ip").to_pylist()
            client_racks = [one or find(address) for one, address in zip(client_racks, ips, strict=True)]
            columns["client_rack"] = client_racks
        pairs = zip(client_racks, broker_racks, strict=True)
        columns["cross_zone"] = [None if one is None or other is None else one != other for one, other in pairs]
        columns["broker_rack"] = broker_racks
        fields = [
            *_CLIENT,
            ("broker_rack", pa.string()),
            ("cross_zone", pa.bool_()),
            *((name, pa.int64()) for name in _SUMS),
        ]
        order = [("cross_zone", "descending"), ("response_bytes", "descending")]
        return table_of(columns, fields, [*order, *((name, "ascending") for name, _ in _CLIENT)])


def _split(endpoint: str | None) -> tuple[str | None, int | None]:
    """Address and port of an endpoint as text."""
    if endpoint is None:
        return None, None
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)
