"""Questions that are a query: its text groups rows, and Python divides and sorts what it found.

The text is in a file with the name of the question, beside its module; `{table}` in it stands for a table. It is run by
DuckDB, and on a cluster by Spark SQL, so it uses what both understand (`database` defines some functions of Spark). It
finds integers and texts only: so both give the same answer, with all groups.
"""

from __future__ import annotations

import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import pyarrow as pa

from kafkasniff.analysis.accumulator import Parameters, Question
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.tables.rows.schemas import TABLES

if TYPE_CHECKING:
    from kafkasniff.analysis.sql.database import TableSource

P = TypeVar("P", bound=Parameters)
Engine = Literal["duckdb", "spark"]
_SIZE: Final = "coalesce({}(one.key), 0) + coalesce(octet_length(one.value), 0)"
_DIFFERENT: Final[dict[Engine, dict[str, str]]] = {
    "duckdb": {
        "header_bytes": f"CAST(coalesce(list_sum([{_SIZE.format('strlen')} for one in headers]), 0) AS BIGINT)",
        "each_topic": "unnest(CASE WHEN len(topics) > 0 THEN topics ELSE [NULL] END)",
        "each_broker": "unnest(from_json(get_json_object(response_body, '$.brokers'), "
        """'[{"node_id": "BIGINT", "broker_id": "BIGINT", "rack": "VARCHAR"}]'))""",
        "bytes_inside": "coalesce(list_sum([one.bytes for one in partitions]), 0)",
        "records_inside": "coalesce(list_sum([one.record_count for one in partitions]), 0)",
    },
    "spark": {
        "header_bytes": f"coalesce(aggregate(headers, 0L, (sum, one) -> sum + {_SIZE.format('octet_length')}), 0L)",
        "each_topic": "explode_outer(topics)",
        "each_broker": "explode(from_json(get_json_object(response_body, '$.brokers'), "
        "'array<struct<node_id: bigint, broker_id: bigint, rack: string>>'))",
        "bytes_inside": "aggregate(partitions, 0L, (sum, one) -> sum + coalesce(one.bytes, 0L))",
        "records_inside": "aggregate(partitions, 0L, (sum, one) -> sum + coalesce(one.record_count, 0L))",
    },
}
"""Expressions that have no common form, by the name that stands for them in texts."""


def texts(values: Iterable[str]) -> str:
    """Values, such as names of APIs, as a list in a query."""
    return ", ".join(f"'{value}'" for value in values)


def ranked(keys: str) -> str:
    """The rows of `counted`, each of which stands for `n` equal measures, with their rank among those of their keys.

    `upto` is the number of measures up to this one, `measured` that of all. Nulls do not count.
    """
    return (
        "SELECT *, sum(n) OVER ("
        f"PARTITION BY {keys} ORDER BY measure NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        f") AS upto, sum(CASE WHEN measure IS NOT NULL THEN n END) OVER (PARTITION BY {keys}) AS measured FROM counted"
    )


_SHARED: Final = {
    # Brokers that replicate, by the client id that they use (ReplicaFetcherManager).
    "is_follower": "coalesce(regexp_like(client_id, '^(broker-[0-9]+-fetcher-[0-9]+|raft-client-[0-9]+)$'), false)",
    # A Fetch names no group, other requests of its client do. A client that is in several has none here.
    "members": "SELECT client_id, client_ip, min(group_id) AS group_id FROM {exchanges} "
    f"WHERE api IN ({texts(MEMBER_APIS)}) AND group_id IS NOT NULL "
    "GROUP BY client_id, client_ip HAVING count(DISTINCT group_id) = 1",
    # A client without a rack sends an empty one. One that is not text is an object.
    "rack": "CASE WHEN get_json_object(request_body, '$.rack_id') NOT LIKE '_\"base64\":%' "
    "THEN nullif(get_json_object(request_body, '$.rack_id'), '') END",
}
"""What stands for names in all queries."""


class SqlQuestion(Question[P]):
    """A question whose rows a query finds."""

    _found: pa.Table | None = None

    @property
    @abstractmethod
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        """Columns and types of the rows that the query finds."""

    @abstractmethod
    def finish(self, found: pa.Table) -> pa.Table:
        """The answer by the rows that the query found, which may have any order."""

    def pieces(self) -> dict[str, str]:
        """What stands for other names in braces, by name; tables may be in braces in it."""
        return {}

    def text(self, engine: Engine = "duckdb") -> str:
        """The query. For Spark, tables are in braces: it takes DataFrames by name."""
        module = Path(str(sys.modules[type(self).__module__].__file__))
        file = module.with_name(f"{self.name.replace('-', '_')}.sql")
        tables = {table: table if engine == "duckdb" else f"{{{table}}}" for table in TABLES}
        given = {**tables, **_DIFFERENT[engine]}
        pieces = {name: piece.format(**given) for name, piece in {**_SHARED, **self.pieces()}.items()}
        return file.read_text(encoding="utf-8").format(**given, **pieces)

    def take(self, found: pa.Table) -> None:
        """Take the rows that the query found."""
        schema = pa.schema(list(self.found_fields))
        self._found = found.select(schema.names).cast(schema)

    def ask(self, sources: Sequence[TableSource]) -> None:
        """Run the query by DuckDB. Raises CaptureError, MissingPartError."""
        from kafkasniff.analysis.sql.database import Database, Plan, SqlLimits

        reads = self.reads()
        with (
            tempfile.TemporaryDirectory(prefix="kafkasniff-") as folder,
            Database(SqlLimits(folder), reads) as database,
        ):
            self.take(database.run(Plan(self.text(), reads), sources).read_all())

    def result(self) -> pa.Table:
        """The answer to the rows that were taken."""
        found = self._found
        return self.finish(pa.schema(list(self.found_fields)).empty_table() if found is None else found)
