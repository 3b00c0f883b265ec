"""Queries see the tables and nothing else, and read only what they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafkasniff.analysis.export import Export
from kafkasniff.analysis.sql.database import SCHEMAS, Database, SqlLimits, schema_views
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.tables.rows.schemas import TABLES
from tests.analysis.exports import write_export
from tests.analysis.tables import connection, exchange, partition, record
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "librdkafka-codecs.pcap"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    orders = partition("orders", record_count=2, batch_count=1, bytes=100)
    rows = [exchange("Produce", second, latency_us=1000 * second, partitions=[orders]) for second in range(1, 11)]
    rows.append(exchange("Fetch", 20, latency_us=5, topics=["orders"]))
    folder = tmp_path_factory.mktemp("sql") / "out"
    return Export.open(str(write_export(folder, exchanges=rows, records=[record()], connections=[connection()])))


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codecs") / "out"
    assert kafkasniff("export", CAPTURE, "-q", "-o", folder).code == 0
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(SqlLimits(str(tmp_path))) as found:
        yield found


def rows_of(database: Database, query: str, *exports: Export) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = database.run(database.plan(query), exports).read_all().to_pylist()
    return found


NEEDS = {
    "SELECT 1": {},
    "SHOW TABLES": {},
    "SELECT count(*) FROM exchanges": {"exchanges": {"capture"}},
    "SELECT api FROM exchanges WHERE latency_us > 5 ORDER BY time LIMIT 3": {
        "exchanges": {"api", "latency_us", "time"}
    },
    "WITH e AS (SELECT * FROM exchanges) SELECT api, count(*) FROM e WHERE connection_id > 0 GROUP BY ALL": {
        "exchanges": {"api", "connection_id"}
    },
    "SELECT topic, sum(bytes) FROM partitions GROUP BY ALL": {"exchanges": {"partitions"}},
    "SELECT client_id, uncompressed_bytes FROM partitions": {
        "exchanges": {"client_id", "partitions"},
        "records": {"capture"},
    },
    "SELECT partitions[1].topic FROM exchanges": {"exchanges": {"partitions"}, "records": {"capture"}},
    "SELECT * FROM problems": {"problems": set(TABLES["problems"].names)},
    "SELECT api FROM exchanges e WHERE EXISTS (SELECT 1 FROM problems p WHERE p.connection_id = e.connection_id)": {
        "exchanges": {"api", "connection_id"},
        "problems": {"connection_id"},
    },
}


@pytest.mark.parametrize("query", NEEDS)
def test_a_plan_names_the_columns_that_are_read(query: str, database: Database) -> None:
    assert {table: set(reading.columns) for table, reading in database.plan(query).reads.items()} == NEEDS[query]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT api, count(*) AS n, max(latency_us) AS most FROM exchanges GROUP BY api ORDER BY n",
        "SELECT p.topic, p.bytes, e.api FROM partitions p JOIN exchanges e USING (connection_id, exchange_id) "
        "ORDER BY ALL",
        "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3 AND n + 1 IN (SELECT exchange_id "
        "FROM exchanges)) SELECT * FROM r",
        "SELECT a.api, row_number() OVER (PARTITION BY a.api ORDER BY a.time) AS n FROM exchanges a ORDER BY ALL",
        "SELECT * EXCLUDE (request_body, response_body) FROM exchanges ORDER BY connection_id, exchange_id",
        "SELECT max(length(request_body)) AS n FROM (SELECT * FROM exchanges)",
        "SELECT topic, record_count, uncompressed_bytes FROM partitions ORDER BY ALL",
        "SELECT topic, count(*) AS n, sum(octet_length(value)) AS size FROM records GROUP BY topic ORDER BY topic",
        "SELECT COLUMNS('.*_us$') FROM exchanges ORDER BY ALL",
        "SUMMARIZE SELECT api, latency_us FROM exchanges",
    ],
)
def test_unneeded_columns_change_nothing(query: str, codecs: Path, database: Database) -> None:
    """The oracle: DuckDB over the files, with all columns."""
    found = rows_of(database, query, Export.open(str(codecs)))
    oracle = duckdb.connect(config={"threads": 1})
    oracle.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        files = f"'{codecs}/{table}/*/*.parquet'"
        oracle.execute(f"CREATE VIEW {table} AS FROM read_parquet({files}, hive_partitioning = false)")
    oracle.execute("CREATE VIEW partitions AS SELECT * EXCLUDE (partitions, error_code, error, record_count), "
                   "unnest(partitions, max_depth := 2) FROM exchanges")  # fmt: skip
    assert found == oracle.sql(query).to_arrow_reader(1000).read_all().to_pylist()
    assert found


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC", 'syntax error at or near "SELEC"'),
        ("", "give one query"),
        ("SELECT 1; SELECT 2", "give one query"),
        ("DROP TABLE exchanges", "give one query"),
        ("INSERT INTO exchanges (api) VALUES ('x')", "give one query"),
        ("COPY exchanges TO 'x.csv'", "give one query"),
        ("SET threads = 2", "give one query"),
        ("INSTALL httpfs", "give one query"),
        ("ATTACH 'x.db'", "give one query"),
        ("SELECT latncy_us FROM exchanges", "there is no column latncy_us; did you mean latency_us, "),
        ("SELECT\n e.nothing_like_it FROM exchanges e", "lists them, in line 2"),
        ("SELECT 1 FROM exchange", "there is no table exchange; did you mean exchanges?"),
        ("SELECT 1 FROM audit_log", "there is no table audit_log; there are exchanges, records, connections, "),
        ("SELECT * FROM read_text('/etc/hosts')", "file system operations are disabled"),
        ("SELECT * FROM '/etc/hosts.csv'", "file system operations are disabled"),
        ("SELECT * FROM glob('/*')", "file system operations are disabled"),
        ("SELECT * FROM tmp_path", "there is no table tmp_path"),
    ],
)
def test_a_mistake_is_found_before_anything_is_read(query: str, message: str, database: Database) -> None:
    with pytest.raises(UsageError, match=r"^SQL: ") as found:
        database.plan(query)
    assert message in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("schema", "view"), one_in(3, [(schema, view) for schema in SCHEMAS for view in schema_views(schema)])
)
def test_views_of_a_schema_have_the_rows_of_a_table(schema: str, view: str, codecs: Path, tmp_path: Path) -> None:
    export = Export.open(str(codecs))
    table = "transport" if view in ("conn", "network_activity") else "exchanges"
    seconds = "floor(ts)" if schema == "zeek" else '"time" // 1000'
    query = f"SELECT count(*) AS n, min({seconds}) AS first FROM {view}"
    oracle = f"SELECT count(*) AS n, min(floor(epoch(time))) AS first FROM {table}"
    found = []
    for one in (query, oracle):
        with Database(SqlLimits(str(tmp_path)), schema=schema) as database:
            assert view in database.types()
            found.append(rows_of(database, one, export))
    assert found[0] == found[1]
    with Database(SqlLimits(str(tmp_path)), ["exchanges"], schema=schema) as database:
        assert (view in database.schema_views) == (view == "kafka")


def test_nothing_can_be_unlocked(export: Export, database: Database) -> None:
    rows_of(database, "SELECT 1 AS one", export)
    for setting in ("enable_external_access = true", "lock_configuration = false", "memory_limit = '1TB'"):
        with pytest.raises(duckdb.Error):
            database._connection.execute(f"SET {setting}")
    names = "'enable_external_access', 'autoinstall_known_extensions', 'autoload_known_extensions'"
    query = f"SELECT DISTINCT value FROM duckdb_settings() WHERE name IN ({names})"
    assert database._connection.execute(query).fetchall() == [("false",)]


def test_what_exceeds_the_memory_goes_to_the_folder_and_has_a_limit(export: Export, tmp_path: Path) -> None:
    query = "SELECT h FROM (SELECT md5(i::VARCHAR) AS h FROM range({}) t(i)) ORDER BY h"
    with Database(SqlLimits(str(tmp_path), memory=40 << 20)) as database:
        plan = database.plan(query.format(1_000_000))
        assert database.run(plan, [export]).read_all().num_rows == 1_000_000
    limit = pytest.raises(MissingPartError, match="20 MiB of memory")
    with Database(SqlLimits(str(tmp_path), memory=20 << 20, disk=1 << 20)) as database, limit:
        database.run(database.plan(query.format(3_000_000)), [export]).read_all()


def test_a_damaged_file_is_named(tmp_path: Path, database: Database) -> None:
    folder = write_export(tmp_path / "out", exchanges=[exchange("Produce", 1)])
    path = next(folder.rglob("*.parquet"))
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CaptureError, match=r"cannot read .*part-00000\.parquet"):
        rows_of(database, "SELECT api FROM exchanges", Export.open(str(folder)))
