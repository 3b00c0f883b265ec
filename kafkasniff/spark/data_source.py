"""The data source `kafkasniff`: `spark.read.format("kafkasniff").load("captures/*.pcapng")`, batch and streaming.

Spark imports this module in every session to look for sources, so it imports the code that reads captures only when
captures are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.capture.timeline.parts import CapturePlan
    from kafkasniff.spark.options import SourceOptions
    from kafkasniff.spark.packet_rows import Condition
    from kafkasniff.spark.stream import CaptureStreamReader


class DefaultSource(DataSource):
    """Captures as tables; the options are those of `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "kafkasniff"

    def schema(self) -> str:
        """The schema, without reading a capture. Raises UsageError for invalid options."""
        return self._parsed().ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        options = self._parsed()
        names = _checked(schema, options)
        if options.table == "notes":
            return _NotesReader(options, names)
        if options.table != "packets":
            return _TableReader(options, names)
        # Spark refuses readers with pushFilters if pushdown is disabled.
        return (_FilteringReader if options.pushdown else _PacketsReader)(options, names)

    def streamReader(self, schema: StructType) -> CaptureStreamReader:  # noqa: N802 - Spark's name
        """A streaming reader."""
        from kafkasniff.spark.stream import CaptureStreamReader

        options = self._parsed()
        if options.table not in {"packets", "notes"}:
            from kafkasniff.errors import UsageError

            raise UsageError(
                f"streams have packets and notes; {options.table}: kafkasniff.spark.streaming.decode_stream"
            )
        return CaptureStreamReader(options, _checked(schema, options))

    def _parsed(self) -> SourceOptions:
        from kafkasniff.spark.options import SourceOptions

        return SourceOptions.of(self.options)


def _checked(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns of a schema, which may come from the user. Raises UsageError for an unknown column."""
    from kafkasniff.errors import UsageError

    names = tuple(schema.fieldNames())
    unknown = [name for name in names if name not in options.types]
    if unknown:
        raise UsageError(f"table {options.table} has no column {', '.join(unknown)}")
    return names


class _Reader(DataSourceReader):
    """What the readers of tables share. Each partition's value is the input of one task."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns


def _plan(options: SourceOptions) -> CapturePlan:
    from kafkasniff.capture.timeline.locations import list_captures
    from kafkasniff.spark.source import look_at_captures, plan_looked_at

    files = list_captures(options.paths, selection=options.selection)
    return plan_looked_at(look_at_captures(None, files, options.split_size))


class _PacketsReader(_Reader):
    _conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Plan here: on the driver, in a Python process without a session that could run a job."""
        from kafkasniff.spark.source import parts_of

        options = self._options
        parts = parts_of(_plan(options), options.split_size, secrets=options.secrets)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kafkasniff.spark.source import PacketQuery, read_part

        if partition.value is not None:  # Spark's own, where there are none
            yield from read_part(partition.value, PacketQuery(self._columns, self._options.ports, self._conditions))


class _FilteringReader(_PacketsReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        from kafkasniff.spark.packet_rows import condition_of

        for filter_ in filters:
            condition = condition_of(filter_)
            if condition is None:
                yield filter_
            else:
                self._conditions = (*self._conditions, condition)


class _TableReader(_Reader):
    """A table of Kafka: one task reads all captures and makes all rows."""

    def partitions(self) -> list[InputPartition]:
        from kafkasniff.spark.table_rows import local_captures, local_key_log

        captures = local_captures(self._options.paths, self._options.selection)
        keylog = None if self._options.keylog is None else local_key_log(self._options.keylog)
        return [InputPartition((captures, keylog))] if captures else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kafkasniff.spark.table_rows import scan_table

        if partition.value is None:
            return  # Spark's own, where there are none
        captures, keylog = partition.value
        options = self._options
        yield from scan_table(
            captures,
            options.table,
            self._columns,
            ports=options.ports,
            show_secrets=options.show_secrets,
            keylog=keylog,
        )


class _NotesReader(_Reader):
    """A single task: captures have few notes, and a note may depend on all captures."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(_plan(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kafkasniff.capture.timeline.locations import open_capture
        from kafkasniff.capture.timeline.parts import read_notes
        from kafkasniff.spark.packet_rows import note_rows

        plan: CapturePlan = partition.value
        rows = note_rows(
            read_notes(plan, open_capture), dict(enumerate(plan.names)), show_secrets=self._options.show_secrets
        )
        if rows.num_rows:
            yield rows.select(list(self._columns))
