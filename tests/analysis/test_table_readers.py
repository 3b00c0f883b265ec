from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import BROKER
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.table_readers import TableReaders
from tests.analysis.tables import batch_of, exchange


class Noting(Accumulator[Parameters]):
    """Notes the columns and APIs of the rows it gets."""

    def __init__(self, *columns: str, apis: tuple[str, ...] | None = None) -> None:
        super().__init__()
        self._reading = TableReading(columns, apis)
        self.got: list[tuple[list[str], int]] = []

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": self._reading}

    def shapes(self) -> Mapping[str, Shape]:
        return {}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.got.append((batch.schema.names, batch.num_rows))

    def result(self) -> pa.Table:
        return pa.table({})


def test_each_reader_gets_its_own_columns_and_apis() -> None:
    whole, some, none = Noting("client_id"), Noting("time_ns", apis=("Fetch",)), Noting("api", apis=("Produce",))
    readers = TableReaders([whole, some, none])
    assert {*readers.reads["exchanges"].columns} == {"client_id", "time_ns", "api"}
    batch = batch_of([exchange("Fetch"), exchange("Metadata")])
    readers.update(batch, "exchanges")
    readers.update(batch, "problems")
    assert whole.got == [(["client_id", BROKER], 2)]
    assert some.got == [(["time_ns", BROKER], 1)]
    assert none.got == []
