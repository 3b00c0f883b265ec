"""TLS in Spark: a real session makes the rows of the local engine. The finer points are in test_connections.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.craft.write import pcap_bytes, pcapng_bytes
from tests.spark.conftest import of_spark, plain
from tests.tables.exports.exported import Rows, manifest, run, tables
from tests.tls.endpoints import Pair, kafka_talk, packets_of
from tests.tls.test_commands import many, with_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

HEAD = 3
"""Blocks of a pcapng file in front of its packets."""


def rotated(folder: Path, *, key_log: bytes | None) -> list[Path]:
    """Connections of both versions in three files; the first of them holds their secrets, if any does."""
    packets, _ = many()
    third = len(packets) // 3
    folder.mkdir(exist_ok=True)
    paths = [folder / f"part-{number}.pcapng" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(pcapng_bytes(packets[number * third : None if number == 2 else (number + 1) * third]))
    if key_log is not None:
        paths[0].write_bytes(with_secrets(paths[0].read_bytes(), key_log, blocks=HEAD + 5))
    return paths


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

    _, log = many()
    captures = rotated(tmp_path / "captures", key_log=log)
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


def found_in(folder: Path) -> dict[str, Rows]:
    """Rows of an export, but for names that a batch cannot know yet."""
    late = ("broker_id", "topics", "partitions", "request_body", "response_body", "topic")
    return {
        table: sorted(({**row, **dict.fromkeys(late)} for row in found), key=repr)
        for table, found in tables(folder).items()
    }


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Some connections by what the first capture holds, some by a key log, which has a line more for a later batch."""
    _, log = many()
    captures = rotated(tmp_path / "captures", key_log=log)
    capture, keylog, secrets = another(tmp_path)
    keylog.write_bytes(b"bad\n")
    follow(spark, tmp_path / "captures", tmp_path / "out", keylog)
    assert manifest(tmp_path / "out")["runs"] > 1
    with keylog.open("ab") as stream:
        stream.write(secrets)
    shutil.copy(capture, tmp_path / "captures" / "part-3.pcap")
    follow(spark, tmp_path / "captures", tmp_path / "out", keylog)
    run([*captures, tmp_path / "captures" / "part-3.pcap"], tmp_path / "once", keylog=str(keylog))
    found = found_in(tmp_path / "out")
    assert found == found_in(tmp_path / "once")
    assert len(found["exchanges"]) == 45 + 4
    assert [row["kind"] for row in found["problems"]] == ["tls-key-log"]
