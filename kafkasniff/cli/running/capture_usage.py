"""API versions that clients use, from captures: only headers are decoded, and hardly any body but ApiVersions'.

The counts equal those from an export, where a client's software also applies to exchanges before it was announced. So
counts wait here until their connection has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.questions.versions import ClientVersions, Offers, highest
from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.apis.entities import text
from kafkasniff.kafka.messages.message_plan import client_software
from kafkasniff.model import Connection, Exchange
from kafkasniff.native.library import kernel
from kafkasniff.tables.rows.column_rows import exchange_rows
from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
from kafkasniff.tables.rows.schemas import EXCHANGES

if TYPE_CHECKING:
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.engine.message_table import Output, PairColumns
    from kafkasniff.packets import PacketBatch

MAX_ENDED: Final = 4096
"""Ended connections whose counts are handed on together."""

_SOFTWARE: Final = ("software_name", "software_version")
_CLIENT: Final = (
    ("connection_id", pa.int64()),
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    *((name, pa.string()) for name in _SOFTWARE),
)
_SENT: Final = Shape(
    keys=(*_CLIENT, ("api", pa.string()), ("api_key", pa.int32()), ("api_version", pa.int32())),
    measures=(("requests", pa.int64(), "sum"), ("first", pa.int64(), "min"), ("last", pa.int64(), "max")),
    weight="requests",
)
_USED: Final = pa.schema([EXCHANGES.field(name) for name in (*(name for name, _ in _SENT.keys), "time_ns")])
_OFFERED: Final = Shape(keys=(*_CLIENT, ("api_key", pa.int32())), measures=(("highest", pa.int32(), "min"),))


class CaptureUsage:
    """Packets in; after `close()`, `versions` and `offers` have seen everything."""

    def __init__(self, inspector: Inspector, versions: ClientVersions, offers: Offers) -> None:
        """`inspector` has to yield exchanges and connections, and to decode headers only."""
        self._inspector = inspector
        self._finder = ExchangeFinder(kernel(), headers=True)
        self._versions = versions
        self._offers = offers
        self._sent = Partials(_SENT)
        self._offered = Partials(_OFFERED)
        self._ended: dict[int, tuple[str | None, str | None]] = {}
        """Ended connections, and the software that their clients announced."""

    def feed(self, batch: PacketBatch) -> None:
        """Process the next packets."""
        for events, columns in self._inspector.feed_columns(batch, self._finder):
            for column in columns:
                self._columns(column, batch.captures)
            self._take(events)
            if len(self._ended) >= MAX_ENDED:
                self._pass_on()

    def close(self) -> None:
        """End of packets."""
        self._take(self._inspector.close())
        self._pass_on(everything=True)

    def notes(self) -> list[str]:
        """Sentences about data lost to bounds."""
        lost = self._sent.lost
        if not lost.rows:
            return []
        return [f"{lost.weight:,} requests are not counted: too many clients were connected at the same time"]

    def _columns(self, pair_columns: PairColumns, captures: Sequence[str]) -> None:
        rows = exchange_rows(pair_columns, captures, schema=_USED)
        times = rows.column("time_ns")
        columns = {name: rows.column(name) for name, _ in _SENT.keys}
        self._sent.add({**columns, "requests": pa.array([1] * len(rows), pa.int64()), "first": times, "last": times})

    def _take(self, events: Iterable[Output]) -> None:
        sent: dict[str, list[Any]] = {name: [] for name in _SENT.schema.names}
        offered: dict[str, list[Any]] = {name: [] for name in _OFFERED.schema.names}
        for event in events:
            if type(event) is Connection:
                self._ended[event.connection_id] = (event.software_name, event.software_version)
            elif type(event) is Exchange and event.request is not None:
                # A response alone has no version.
                self._exchange(event, sent, offered)
        self._sent.add(sent)
        self._offered.add(offered)

    @staticmethod
    def _exchange(exchange: Exchange, sent: dict[str, list[Any]], offered: dict[str, list[Any]]) -> None:
        request, response = exchange.request, exchange.response
        assert request is not None
        name, version = exchange.software_name, exchange.software_version
        software = client_software(request.api_key) if name is None else None
        if software is not None and request.body is not None:
            name, version = (text(request.body.get(field)) for field in software)
        client = {
            "connection_id": exchange.connection_id,
            "client_id": text(request.client_id),
            "client_ip": None if request.client is None else request.client.address,
            "software_name": name,
            "software_version": version,
        }
        more = {"api": request.api, "api_key": request.api_key, "api_version": request.api_version}
        counts = {"requests": 1, "first": request.time_ns, "last": request.time_ns}
        for field, value in {**client, **more, **counts}.items():
            sent[field].append(value)
        if request.api_key == API_VERSIONS and response is not None:
            for key, one in highest(response.body).items():
                for field, value in {**client, "api_key": key, "highest": one}.items():
                    offered[field].append(value)

    def _pass_on(self, *, everything: bool = False) -> None:
        """Hand the counts of ended (or all) connections to the per-client counters."""
        sent, self._sent = self._over(self._sent, everything=everything)
        offered, self._offered = self._over(self._offered, everything=everything)
        for batch in sent.to_batches():
            self._versions.add(batch, *(batch.column(name) for name in ("requests", "first", "last")))
        offers = self._offers.parts["offers"]
        offers.add({name: offered.column(name) for name in offers.shape.schema.names})
        self._ended = {}

    def _over(self, part: Partials, *, everything: bool) -> tuple[pa.Table, Partials]:
        """The rows of ended (or all) connections with their clients' software, and the remaining rows."""
        table = part.table()
        rest = Partials(part.shape, part.lost)
        ids = pa.array(list(self._ended), pa.int64())
        if not everything:
            over = pc.is_in(table.column("connection_id"), value_set=ids)
            open_ones = table.filter(pc.invert(over))
            rest.add({name: open_ones.column(name) for name in open_ones.column_names})
            table = table.filter(over)
        place = pc.index_in(table.column("connection_id"), ids)
        unknown = pc.is_null(table.column("software_name"))
        for which, name in enumerate(_SOFTWARE):
            late = pa.array([software[which] for software in self._ended.values()], pa.string())
            index = table.schema.get_field_index(name)
            table = table.set_column(index, name, pc.if_else(unknown, late.take(place), table.column(name)))
        return table, rest
