"""The base of all questions, and of those that take rows, keep partial answers that merge, and give a table.

A question is a class with a name, a summary and parameters. An instance of an accumulator does no I/O: the command line
feeds it the rows of an export, Spark those of a partition, and `stats`, `check` and `live` those that they have. Other
questions are queries (`sql.question`).

    question = Latency(LatencyParameters(by=("api", "broker")))
    for batch in batches:
        question.update(batch)
    question.merge(other)
    question.result()                          # a pyarrow.Table

The answer depends on the rows alone, not on their order or batches, or on how partial answers were merged (for the
exception above a bound, see `partials`). `state()` and `from_state()` transfer a partial answer to another process.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import BROKER, MEANINGS, for_readers, in_any, only
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.percentiles import RELATIVE_ERROR
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.tables.rows.resolve import LearnedNames


class Known(msgspec.Struct, frozen=True):
    """The clusters of brokers, which are identified by endpoint (`address:port`)."""

    labels: Mapping[str, str] = {}
    """Cluster ids by broker; a cluster without an id is identified by the endpoint of its first broker."""

    ids: frozenset[str] = frozenset()
    """Cluster ids."""

    @property
    def several(self) -> bool:
        """Whether there are certainly two or more: a cluster without an id may be any of the others."""
        return len(self.ids) > 1

    def label(self, broker: str | None) -> str | None:
        """The cluster of a broker; None if it is unknown."""
        return None if broker is None else self.labels.get(broker)

    def group(self, broker: str | None) -> str | None:
        """The same if there are several clusters; None if all brokers may belong to one."""
        return self.label(broker) if self.several else None

    def groups(self, brokers: pa.Array | pa.ChunkedArray) -> pa.Array:
        """`group` of each broker."""
        if isinstance(brokers, pa.ChunkedArray):
            brokers = pa.concat_arrays([pa.array([], pa.string()), *brokers.chunks])
        found = brokers.dictionary_encode()
        return pa.array([self.group(one) for one in found.dictionary.to_pylist()], pa.string()).take(found.indices)

    def folded(self, part: Partials, names: LearnedNames | None = None) -> pa.Table:
        """Rows of a partial answer, brokers in the key `cluster` replaced by their `group`; equal rows combined.

        `names`: topics in the key `topic` are replaced by their names, too.
        """
        table = part.table()
        columns: dict[str, Any] = {}
        if names is not None and table.num_rows and "topic" in table.column_names:
            topics = table.column("topic").combine_chunks().dictionary_encode()
            topic_texts = topics.dictionary.to_pylist()
            known = [names.topic(one) or one for one in topic_texts]
            if known != topic_texts:
                columns["topic"] = pa.array(known, pa.string()).take(topics.indices)
        if table.num_rows and "cluster" in table.column_names:
            columns["cluster"] = self.groups(table.column("cluster"))
        if not columns:
            return table
        distinct = functools.partial(pc.count_distinct, mode="all")
        if all(distinct(table.column(name)) == distinct(found) for name, found in columns.items()):
            # No two rows have become equal.
            for name, found in columns.items():
                table = table.set_column(table.schema.get_field_index(name), name, found)
            return table
        merged = Partials(part.shape)
        merged.add({**{name: table.column(name) for name in table.column_names}, **columns})
        return merged.table()


ALONE: Final = Known()
"""Nothing is known: brokers are assumed to belong to one cluster."""


MAX_STATE: Final = 1 << 30
"""Maximum size in bytes of a partial answer that is accepted; all bounds together stay far below it."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parameters: each field has a default and a description in `Meta(description=…)`."""


class TableReading(msgspec.Struct, frozen=True):
    """What a question reads of a table."""

    columns: tuple[str, ...]
    apis: tuple[str, ...] | None = None
    """Only rows of these APIs matter; others may be skipped, and are ignored."""
    optional: bool = False
    """The question has an answer without this table, too."""

    def __post_init__(self) -> None:
        # Dimensions and questions may need the same column, but selecting it twice from a batch fails.
        msgspec.structs.force_setattr(self, "columns", tuple(dict.fromkeys(self.columns)))


P = TypeVar("P", bound=Parameters)


class _State(msgspec.Struct):
    """A partial answer on its way to another process."""

    question: str
    parameters: Any
    parts: dict[str, tuple[bytes, list[int]]]


class Question(ABC, Generic[P]):
    """A question with its parameters, and what is known of its answer."""

    name: ClassVar[str]
    """Its name on the command line."""
    summary: ClassVar[str]
    """One sentence."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Meanings of the columns of the answer, if they differ from `columns.MEANINGS`."""
    essential: ClassVar[tuple[str, ...]] = ()
    """Columns without which the answer says little, the most useful first: a narrow screen hides them last."""
    parameters_type: ClassVar[type[Parameters]] = Parameters
    hosts: Hosts | None = None
    """The user's facts about addresses."""

    def __init__(self, parameters: P | None = None) -> None:
        """Raises UsageError for parameters that are invalid."""
        self.parameters: P = self.parameters_type() if parameters is None else parameters  # type: ignore[assignment]
        self.check()

    def check(self) -> None:
        """Raise UsageError for parameters that are invalid."""
        return

    @abstractmethod
    def reads(self) -> Mapping[str, TableReading]:
        """Tables with their needed columns."""

    @abstractmethod
    def result(self) -> pa.Table:
        """The answer to the rows so far: always the same columns for the same parameters, rows in a fixed order."""

    def meanings(self) -> dict[str, str]:
        """The meaning of each column of the answer."""
        return {name: self.columns.get(name) or MEANINGS[name] for name in self.result().schema.names}

    def notes(self) -> list[str]:
        """Caveats for the reader of the answer: what memory bounds have made less exact, and `missing`."""
        return self.missing()

    def missing(self) -> list[str]:
        """What the answer lacks because memory bounds have dropped it."""
        return []


class Accumulator(Question[P]):
    """One question's rows so far."""

    counts: ClassVar[str] = "exchanges"
    """What a measure `count` counts."""
    names: LearnedNames | None = None
    """Names learned from captures that were read to their end; None: rows already have all known names."""
    clusters: Known = ALONE
    """Which brokers belong to one cluster, if that is known when the answer is needed."""

    def __init__(self, parameters: P | None = None) -> None:
        """Raises UsageError for parameters that are invalid."""
        super().__init__(parameters)
        self.parts = {name: Partials(shape) for name, shape in self.shapes().items()}

    @abstractmethod
    def shapes(self) -> Mapping[str, Shape]:
        """The partial answers by name."""

    @abstractmethod
    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table; columns other than those of `reads` are ignored."""

    def merge(self, other: Self) -> None:
        """Merge another's rows. Raises ValueError if it is another question or has other parameters."""
        if type(other) is not type(self) or other.parameters != self.parameters:
            raise ValueError("only partial answers to the same question can be merged")
        for name, part in self.parts.items():
            part.merge(other.parts[name])

    def notes(self) -> list[str]:
        """Caveats for the reader of the answer: what memory bounds have made less exact, and `missing`."""
        return [sentence for part in self.parts.values() for sentence in _notes(part)] + self.missing()

    def missing(self) -> list[str]:
        """What the answer lacks because memory bounds have dropped it."""
        return [sentence for part in self.parts.values() for sentence in _missing(part, self.counts)]

    def state(self) -> bytes:
        """The rows so far: msgpack, the tables in it as Arrow streams."""
        parts = {name: part.dump() for name, part in self.parts.items()}
        return msgspec.msgpack.encode(_State(self.name, self.parameters, parts))

    @classmethod
    def from_state(cls, state: bytes) -> Self:
        """The accumulator whose `state()` this is. Raises ValueError for anything else."""
        if len(state) > MAX_STATE:
            raise ValueError(f"a partial answer of more than {MAX_STATE} bytes")
        try:
            partial = msgspec.msgpack.decode(state, type=_State)
            if partial.question != cls.name:
                raise ValueError(f"a partial answer to {partial.question!r}, not to {cls.name!r}")
            parameters = msgspec.convert(partial.parameters, cls.parameters_type)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a partial answer: {error}") from None
        made = cls(parameters)  # type: ignore[arg-type]
        if partial.parts.keys() != made.parts.keys():
            raise ValueError("a partial answer of another version")
        for name, (rows, lost) in partial.parts.items():
            made.parts[name].load(rows, lost)
        return made


def _notes(part: Partials) -> list[str]:
    lost, bound = part.lost, part.shape.bound
    if not lost.level:
        return []
    if part.shape.coarsens is not None:
        error = 100 * RELATIVE_ERROR * (1 << lost.level)
        return [f"percentiles are at most {error:.2g}% off: the limit is {bound:,} buckets"]
    return [f"one of {1 << lost.level:,} was examined: there are more than {bound:,}"]


def _missing(part: Partials, counts: str) -> list[str]:
    lost, bound = part.lost, part.shape.bound
    if not lost.rows:
        return []
    if part.shape.keep == "earliest":
        return [f"some rows are missing: the limit is {bound:,}"]
    what = counts if part.shape.weight == "count" else (part.shape.weight or "rows").replace("_", " ")
    return [
        f"{lost.weight:,} {what} of the smallest groups are missing: the limit is {bound:,} rows; counts that are "
        f"shown may be up to {lost.undercount:,} too low"
    ]


_MORE: Final = (BROKER, "_endpoints", "_pending")
"""Columns that nobody asks for: the broker's endpoint, made once for all, and those of staged rows alone."""
_Sharing = list[tuple[tuple[str, ...] | None, list[tuple[Accumulator[Any], tuple[str, ...]]]]]


class TableReaders:
    """Accumulators that read the same tables."""

    def __init__(self, readers: Iterable[Accumulator[Any]]) -> None:
        readers = tuple(readers)
        needed = united(*(accumulator.reads() for accumulator in readers))
        self._sharing = {table: _sharing(readers, table) for table in needed}
        # Their rows are selected by API.
        by_api = {
            table: TableReading(("api",), needed[table].apis, needed[table].optional)
            for table, some in self._sharing.items()
            if any(apis is not None for apis, _ in some)
        }
        self.reads = united(needed, by_api)
        """Tables with the columns that `update` needs."""

    def update(self, batch: pa.RecordBatch, table: str) -> None:
        """Take rows of a table."""
        whole = for_readers(batch)
        more = [name for name in _MORE if name in whole.column_names]
        for apis, readers in self._sharing.get(table, ()):
            rows = whole if apis is None else only(whole, in_any(whole, "api", apis))
            for accumulator, columns in readers if rows.num_rows else ():
                accumulator.update(rows.select([*columns, *more]), table)


def _sharing(readers: Iterable[Accumulator[Any]], table: str) -> _Sharing:
    """Those that look at the same rows of a table, by the APIs of these rows, each with its columns."""
    found: dict[tuple[str, ...] | None, list[tuple[Accumulator[Any], tuple[str, ...]]]] = {}
    for accumulator in readers:
        reading = accumulator.reads().get(table)
        if reading is not None:
            found.setdefault(reading.apis, []).append((accumulator, reading.columns))
    return list(found.items())


def united(*readings: Mapping[str, TableReading]) -> dict[str, TableReading]:
    """The combined needs of all readings: columns and APIs. A table is optional if all treat it as optional."""
    table_readings: dict[str, TableReading] = {}
    for reading in readings:
        for table, wanted in reading.items():
            known = table_readings.get(table)
            if known is None:
                table_readings[table] = wanted
                continue
            apis = None
            if known.apis is not None and wanted.apis is not None:
                apis = tuple(dict.fromkeys((*known.apis, *wanted.apis)))
            table_readings[table] = TableReading(
                (*known.columns, *wanted.columns), apis, known.optional and wanted.optional
            )
    return table_readings
