"""Dimensions that break down an answer: API, broker, client …, and time spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import TIME, broker_endpoint, column, datetimes, floor_divided, with_topics

Dimension = Literal["api", "version", "broker", "client", "address", "software", "group", "topic", "connection"]

# The columns that each one reads of a row, and those that it produces.
_READ: Final = {
    "api": ("api", "api_key"),
    "version": ("api_version",),
    "broker": ("broker_id", "broker_ip", "broker_port"),
    "client": ("client_id",),
    "address": ("client_ip",),
    "software": ("software_name", "software_version"),
    "group": ("group_id",),
    "topic": ("topics",),
    "connection": ("connection_id",),
}
_MADE: Final[dict[str, tuple[tuple[str, pa.DataType], ...]]] = {
    "api": (("api", pa.string()),),
    "version": (("api_version", pa.int32()),),
    "broker": (("broker_id", pa.int32()), ("broker", pa.string())),
    "client": (("client_id", pa.string()),),
    "address": (("client_ip", pa.string()),),
    "software": (("software_name", pa.string()), ("software_version", pa.string())),
    "group": (("group_id", pa.string()),),
    "topic": (("topic", pa.string()),),
    "connection": (("connection_id", pa.int64()),),
}


BROKER_SQL: Final = (
    "CASE WHEN broker_ip LIKE '%:%' THEN concat('[', broker_ip, ']') ELSE broker_ip END || ':' || "
    "CAST(broker_port AS STRING)"
)
"""`address:port` of the broker, IPv6 in brackets."""
_SPAN_SQL: Final = "time_ns - (time_ns % {every} + {every}) % {every}"
_SQL: Final = {
    # An API that is newer than the definitions has no name.
    "api": "coalesce(api, CAST(api_key AS STRING))",
    "broker": BROKER_SQL,
}
"""How key columns are made that `exchanges` lacks."""


class Dimensions:
    """Some dimensions, and spans of `every` nanoseconds (0: time is not a dimension)."""

    def __init__(self, by: Sequence[Dimension], every: int = 0) -> None:
        self.by = tuple(dict.fromkeys(by))
        self.every = every
        self.reads = tuple(dict.fromkeys(name for one in self.by for name in _READ[one]))
        """Columns of `exchanges` that are needed."""
        if every:
            self.reads = tuple(dict.fromkeys(["time_ns", *self.reads]))
        made = [field for one in self.by for field in _MADE[one]]
        self.keys: tuple[tuple[str, pa.DataType], ...] = ((("span", pa.int64()),) if every else ()) + tuple(made)
        """Key columns; `span` is the beginning of a span of time, in nanoseconds since 1970."""
        self.names = tuple(name for name, _ in self.keys)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Columns of an answer: the same, `span` being the `time` where it begins."""
        return tuple(("time", TIME) if name == "span" else (name, kind) for name, kind in self.keys)

    @property
    def pieces(self) -> dict[str, str]:
        """For the text of a query: `made`, the key columns of `rows`, and `keys`, their names in what was made.

        `rows` are those of `exchanges`, or those of each topic of an exchange if topics are asked for.
        """
        sql = {**_SQL, "span": _SPAN_SQL.format(every=self.every)}
        made = [f"{sql[name]} AS {name}" if name in sql else name for name in self.names]
        by_topic = "(SELECT *, {each_topic} AS topic FROM {exchanges}) AS exchanges_by_topic"
        rows = by_topic if "topic" in self.by else "{exchanges}"
        return {"made": ", ".join(made), "keys": ", ".join(self.names), "rows": rows}

    def spread(self, batch: pa.RecordBatch, kept: Sequence[str]) -> pa.RecordBatch:
        """The batch with a row for each topic of a row, if topics are asked for; `kept` columns stay."""
        return with_topics(batch, [*self.reads, *kept]) if "topic" in self.by else batch

    def arrays(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The key columns of a batch that `spread` returned."""
        made: dict[str, pa.Array] = {}
        if self.every:
            made["span"] = pc.multiply(floor_divided(column(batch, "time_ns"), self.every), self.every)
        for one in self.by:
            match one:
                case "api":
                    # An API that is newer than the definitions has no name.
                    number = column(batch, "api_key").cast(pa.string())
                    made["api"] = pc.coalesce(column(batch, "api"), number)
                case "broker":
                    made["broker_id"], made["broker"] = column(batch, "broker_id"), broker_endpoint(batch)
                case _:
                    made |= {name: column(batch, name) for name, _ in _MADE[one]}
        return made

    def answer(self, keys: pa.Table) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Key columns of a partial answer as columns of an answer."""
        made = {name: keys.column(name) for name in self.names}
        if "span" in made:
            made = {"time": datetimes(made.pop("span")), **made}
        return made
