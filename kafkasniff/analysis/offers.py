"""Versions that brokers offered their clients: the bodies of ApiVersions responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, only
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.apis.dissectors import API_VERSIONS, PRODUCE

__all__ = ["Offers", "highest", "is_controller", "offered_in"]


class Offers(Accumulator[Parameters]):
    """For each client the highest version of each API that brokers offered it; the lowest of several brokers' offers.

    A client that asks uses the highest version in common with its broker. So if it uses a lower version than it was
    offered, it does not know or want the higher ones; if it uses the highest offered, its own limit is unknown.
    """

    name: ClassVar[str] = "offers"
    summary: ClassVar[str] = "Versions that brokers offered their clients."

    def check(self) -> None:
        """Any parameters are valid."""
        self._dimensions = Dimensions(("client", "address", "software"))

    def reads(self) -> Mapping[str, TableReading]:
        """Only ApiVersions, with responses."""
        columns = (*self._dimensions.reads, "api_key", "response_body")
        return {"exchanges": TableReading(columns, apis=("ApiVersions",))}

    def shapes(self) -> Mapping[str, Shape]:
        """By client and API."""
        keys = (*self._dimensions.keys, ("api_key", pa.int32()))
        return {"offers": Shape(keys=keys, measures=(("highest", pa.int32(), "min"),))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows; those without bodies have no information."""
        asked = pc.and_(pc.equal(column(batch, "api_key"), API_VERSIONS), pc.is_valid(column(batch, "response_body")))
        batch = only(batch, asked)
        # Thousands of connections get the same offer from the same few brokers, so each text is read only once.
        names = [*self._dimensions.names, "response_body"]
        rows = pa.table({**self._dimensions.arrays(batch), "response_body": column(batch, "response_body")})
        different = rows.group_by(names).aggregate([]).to_pylist()
        offered = {text: offered_in(text) for text in {row["response_body"] for row in different}}
        columns: dict[str, list[Any]] = {name: [] for name in (*self._dimensions.names, "api_key", "highest")}
        for row in different:
            for key, version in offered[row.pop("response_body")].items():
                for name, value in {**row, "api_key": key, "highest": version}.items():
                    columns[name].append(value)
        self.parts["offers"].add(columns)

    def result(self) -> pa.Table:
        """Columns of the client, `api_key`, `highest`."""
        order = [(name, "ascending") for name in (*self._dimensions.names, "api_key")]
        return self.parts["offers"].table().sort_by(order)


def highest(body: Any) -> dict[int, int]:
    """API key → highest version, from the body of an ApiVersions response; empty if it reports an error."""
    if not isinstance(body, Mapping) or body.get("error_code") != 0:
        return {}
    entries = body.get("api_keys")
    found: dict[int, int] = {}
    for entry in entries if isinstance(entries, list) else ():
        key, version = (entry.get("api_key"), entry.get("max_version")) if isinstance(entry, Mapping) else (None, None)
        if isinstance(key, int) and isinstance(version, int):
            found[key] = version
    return found


def is_controller(offered: Mapping[int, int]) -> bool:
    """Whether a listener that offers these versions is one of controllers, which serve no clients."""
    return bool(offered) and PRODUCE not in offered


def offered_in(text: str) -> dict[int, int]:
    """The same as `highest` from the body as in the table; empty if it is invalid, too."""
    return highest(_decoded(text))


def _decoded(text: str) -> Any:
    """A body as in the table; None if invalid, which only another program can have written."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
