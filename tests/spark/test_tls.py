"""TLS in Spark: a real session makes the rows of the local engine. The finer points are in test_connections.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.craft.write import pcap_bytes
from tests.spark.conftest import of_spark, plain
from tests.spark.test_connections import HEAD, in_three
from tests.spark.test_streaming import same_rows
from tests.tables.exports.exported import manifest, run, tables
from tests.tls.endpoints import Pair, kafka_talk, packets_of
from tests.tls.test_commands import many, with_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended


def rotated(folder: Path) -> tuple[list[Path], bytes]:
    """Connections of both versions in three files, the first of which holds their secrets; these secrets."""
    packets, log = many()
    folder.mkdir()
    paths = in_three(folder, packets)
    paths[0].write_bytes(with_secrets(paths[0].read_bytes(), log, blocks=HEAD + 5))
    return paths, log


def another(folder: Path) -> tuple[Path, Path, bytes]:
    """A capture with one more connection, and its key log, which has a bad line."""
    talk = Pair().talk(kafka_talk(2))
    capture, keylog = folder / "another.pcap", folder / "keys.log"
    capture.write_bytes(pcap_bytes(packets_of(talk.flights, client_port=50_500)))
    keylog.write_bytes(b"bad\n" + talk.key_log)
    return capture, keylog, talk.key_log


def test_packets_with_secrets_between_them(spark: SparkSession, tmp_path: Path) -> None:
    """A DataFrame of packets alone knows nothing of blocks, unless they are asked for. Plans show none of it."""
    from kafkasniff.spark import pipeline

    captures, log = rotated(tmp_path / "captures")
    capture, keylog, secrets = another(tmp_path)
    captures.append(capture)
    run(captures, tmp_path / "local", keylog=str(keylog))
    reader = spark.read.format("kafkasniff")
    packets = reader.option("secrets", "true").load([str(path) for path in captures])
    with pipeline.decode(packets, keylog=keylog, shards=2) as found:
        plan: Any = found._rows._jdf.queryExecution()
        shown = plan.toString() + plan.logical().toJSON()
        wanted = plain(tables(tmp_path / "local"))
        assert of_spark(found, ["exchanges", "problems"]) == {name: wanted[name] for name in ("exchanges", "problems")}
    assert len(wanted["exchanges"]) == 45 + 4
    assert "ReadConnections" in shown
    assert not any(line.split()[2].decode() in shown for line in (log + secrets).splitlines())
    # A table of the data source, where only some have secrets.
    run([capture], tmp_path / "alone", keylog=str(keylog))
    reader = spark.read.format("kafkasniff").option("keylog", str(keylog)).option("table", "problems")
    rows = [plain(row.asDict(recursive=True)) for row in reader.load(str(capture)).collect()]
    assert rows == plain(tables(tmp_path / "alone"))["problems"] != []
    with pytest.raises(Exception, match=r"cannot read the key log \S*/none: No such file"):
        reader.option("keylog", str(tmp_path / "none")).load(str(capture)).count()


def follow(spark: SparkSession, captures: Path, folder: Path, keylog: Path | None = None) -> None:
    from kafkasniff.spark.streaming import decode_stream

    reader = spark.readStream.format("kafkasniff").option("maxbytespertrigger", "25k").option("secrets", "true")
    query = decode_stream(reader.load(str(captures)), folder, keylog=keylog, shards=2, trigger={"availableNow": True})
    query.awaitTermination()


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Some connections by what the first capture holds, some by a key log, which has a line more for a later batch."""
    captures, _ = rotated(tmp_path / "captures")
    capture, keylog, secrets = another(tmp_path)
    keylog.write_bytes(b"bad\n")
    follow(spark, tmp_path / "captures", tmp_path / "out", keylog)
    assert manifest(tmp_path / "out")["runs"] > 1
    with keylog.open("ab") as stream:
        stream.write(secrets)
    shutil.copy(capture, tmp_path / "captures" / "part-3.pcap")
    follow(spark, tmp_path / "captures", tmp_path / "out", keylog)
    run([*captures, tmp_path / "captures" / "part-3.pcap"], tmp_path / "once", keylog=str(keylog))
    same_rows(tmp_path / "out", tmp_path / "once")
    found = tables(tmp_path / "out")
    assert len(found["exchanges"]) == 45 + 4
    assert [row["kind"] for row in found["problems"]] == ["tls-key-log"]
