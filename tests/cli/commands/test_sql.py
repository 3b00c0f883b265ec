"""`kafkasniff sql`: captures and exports, formats, and what goes wrong; `screens/sql.txt` has what it shows."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.tables.rows.schemas import COLUMNS, TABLE_NAMES
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CLASSIC = ROOT / "captures" / "java-group-classic.pcap"
CODECS = ROOT / "captures" / "librdkafka-codecs.pcap"
APIS = "SELECT api, count(*) AS n FROM exchanges GROUP BY api ORDER BY n DESC, api LIMIT 2"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql") / "out"
    assert kafkasniff("export", CLASSIC, "-q", "-o", folder).code == 0
    return folder


def test_an_export_and_a_capture(export: Path) -> None:
    query = "SELECT count(*) AS n, sum(request_size) AS size FROM exchanges"
    of_export, of_both = (
        kafkasniff("sql", query, *sources, "--format", "json", "-q").objects
        for sources in ([export], [export, CLASSIC])
    )
    assert of_both == [{name: 2 * value for name, value in of_export[0].items()}]


def test_every_table_of_a_capture_is_that_of_its_export(export: Path) -> None:
    for table in (*one_in(4, TABLE_NAMES), "partitions"):
        query = f"SELECT * FROM {table} ORDER BY ALL"
        rows = [kafkasniff("sql", query, source, "--format", "json", "-q").objects for source in (CLASSIC, export)]
        assert rows[0] == rows[1]
        assert rows[0] or table == "problems"


@pytest.mark.extended
def test_jobs_change_nothing() -> None:
    query = 'SELECT topic, "offset", uncompressed_bytes FROM partitions ORDER BY ALL'
    one, two = (kafkasniff("sql", query, CODECS, "--jobs", jobs, "-q") for jobs in (1, 2))
    assert one == two
    assert len(one.lines) > 30


def test_filters_select_exchanges() -> None:
    query = "SELECT DISTINCT api FROM exchanges"
    assert kafkasniff("sql", query, CODECS, "--api", "Produce", "-q").lines == ["api", "Produce"]
    none = kafkasniff("sql", query, CODECS, "--api", "JoinGroup", "-q")
    assert (none.code, none.out) == (Exit.NOTHING, b"")
    assert "no exchange matches api JoinGroup" in none.err
    without_rows = kafkasniff("sql", f"{query} WHERE api = 'JoinGroup'", CODECS, "-q")
    assert (without_rows.code, without_rows.out, without_rows.err) == (Exit.OK, b"", "")


def test_a_query_in_a_file(export: Path, tmp_path: Path) -> None:
    file = tmp_path / "apis.sql"
    file.write_text(f"-- the busiest APIs\n{APIS};\n")
    lines = kafkasniff("sql", APIS, export).lines
    assert kafkasniff("sql", export, APIS).lines == lines
    assert kafkasniff("sql", "-f", file, export).lines == lines
    assert kafkasniff("sql", "-f", "-", export, stdin=APIS.encode()).lines == lines


def test_parquet(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    assert kafkasniff("sql", "SELECT api, time FROM exchanges", export, "-o", path).code == Exit.OK
    table = pq.read_table(path)
    assert (table.num_rows, table.schema.names) == (70, ["api", "time"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cannot = kafkasniff("sql", "SELECT max(time) - min(time) AS d FROM exchanges", export, "-o", path)
    assert (cannot.code, "CAST the column" in cannot.err) == (Exit.USAGE, True)


def test_the_list_of_tables(export: Path, tmp_path: Path) -> None:
    found = {one["table"]: one for one in kafkasniff("sql", "--list", "--format", "json").objects}
    assert list(found) == [*TABLE_NAMES, "partitions"]
    for table in TABLE_NAMES:
        columns = [(one["name"], one["meaning"]) for one in found[table]["columns"]]
        assert columns == [(one.name, one.meaning) for one in COLUMNS[table]]
    assert {"name": "api", "type": "VARCHAR", "meaning": found["exchanges"]["columns"][11]["meaning"]} in (
        found["partitions"]["columns"]
    )
    assert kafkasniff("sql").out == kafkasniff("sql", "--list").out == kafkasniff("sql", CLASSIC).out
    assert kafkasniff("export", CLASSIC, "-q", "-o", tmp_path / "some", "--tables", "connections").code == 0
    assert [one["table"] for one in kafkasniff("sql", tmp_path / "some", "--format", "json").objects] == ["connections"]
    missing = kafkasniff("sql", APIS, tmp_path / "some")
    assert (missing.code, "there is no table exchanges; there are connections" in missing.err) == (Exit.USAGE, True)


def test_a_truncated_capture_is_reported(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(CLASSIC.read_bytes()[:-10])
    assert kafkasniff("sql", APIS, cut, "-q").code == Exit.BROKEN


@pytest.mark.extended
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_query(signum: int, code: int, export: Path) -> None:
    """The first row is out: DuckDB is at work."""
    query = "SELECT api, i FROM exchanges, range(10000000000) t(i) WHERE i % 1000 = 1"
    command = [sys.executable, "-m", "kafkasniff", "sql", query, str(export), "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"api,i\n"
        process.send_signal(signum)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, b"")
