"""Streams into an export: growing captures become tables that grow with each micro-batch.

    packets = spark.readStream.format("kafkasniff").load("/var/captures")
    query = decode_stream(packets, "tables", trigger={"processingTime": "1 minute"})

Each micro-batch is a run into the folder, like a run of `export`: it starts from the state of every shard after the
last one (segments held back, partial frames, requests without a response), and leaves its own. Nothing is kept in
Spark's state store, since the folder has it: rows and state become visible together, by the rename of the manifest,
which holds the number of the batch. A batch that is repeated after a kill either finds its number there and does
nothing, or finds the state before it: each row exists once, and no file is left that the manifest does not name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.connections import TaskKeys
from kafkasniff.spark.export import write_files
from kafkasniff.spark.pipeline import SparkRun, check_columns, make_options, of_rows, parallelism
from kafkasniff.spark.session import runs_elsewhere
from kafkasniff.spark.tasks import check_executors, output_of
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.run import ExportRun
from kafkasniff.tables.exports.target import ExportFolder, local_folder
from kafkasniff.tables.rows import TABLE_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = ".checkpoint"
"""In the folder of the export: Spark's checkpoint of the stream. It belongs to these tables only."""


def decode_stream(
    packets: DataFrame,
    directory: str | Path,
    *,
    tables: Iterable[str] = TABLE_NAMES,
    bodies: bool = True,
    records: bool = False,
    ports: Iterable[int] = (),
    show_secrets: bool = False,
    topic_ids: Mapping[str, str] | None = None,
    keylog: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    trigger: Mapping[str, Any] | None = None,
    discard_state: bool = False,
) -> StreamingQuery:
    """Start a query that writes the tables of a stream of packets into an export.

    `packets`: from `spark.readStream.format("kafkasniff")`, all columns. The folder is a new one, or that of the same
    stream, which is resumed. Options are those of `pipeline.decode`; the key log is read again for each batch, since
    it may grow. `trigger`: as for `DataStreamWriter.trigger`; `discard_state`: do not resume connections that were open
    after the last batch before this query; their rows stay as they are. The driver and the executors need the folder
    under the same path.

    Raises UsageError if a column is missing, a table is unknown, the key log cannot be read, or the folder is a URI;
    MissingPartError if decryption is not available; UsageError and OutputError if the folder belongs to another
    user, or if Spark's checkpoint in it leads elsewhere. The query fails with UsageError if the folder holds something
    else.
    """
    check_columns(packets)
    options = make_options(tables, bodies=bodies, records=records, ports=ports, show_secrets=show_secrets)
    keys = None if keylog is None else Path(keylog).absolute()
    if keys is not None:
        TaskKeys(open_key_log(keys))  # report its errors here, not in the query
    batches = _Batches(local_folder(directory).absolute(), options, dict(topic_ids or {}), keys, shards)
    batches.discard_state = discard_state
    _check_checkpoint(batches.directory)
    writer = packets.writeStream.foreachBatch(batches.write)
    writer = writer.option("checkpointLocation", str(batches.directory / CHECKPOINT))
    return writer.trigger(**(trigger or {"processingTime": "1 minute"})).start()


def _check_checkpoint(directory: Path) -> None:
    """Spark writes its checkpoint by path. Raises UsageError if that leads elsewhere."""
    try:
        folder = open_own_folder(directory, make=True)
        with contextlib.closing(folder):
            checkpoint = folder / CHECKPOINT
            checkpoint.make_folder()
            checkpoint.check_tree()
    except OSError as error:
        raise OutputError(f"cannot write {directory}: {error.strerror or error}") from error


class _Batches:
    """Writes the micro-batches of one stream."""

    def __init__(
        self, directory: Path, options: ExportOptions, given: dict[str, str], keylog: Path | None, shards: int | None
    ) -> None:
        self.directory = directory
        self._options = options
        self._given = given
        self._keylog = keylog
        self._shards = shards
        self._checked = False
        self.discard_state = False
        """The next batch does not resume the state of the last one."""

    def write(self, packets: DataFrame, batch: int) -> None:
        """Add a micro-batch to the export, unless it is there already."""
        with ExportFolder(self.directory) as folder:
            run = ExportRun(folder, self._options, discard_state=self.discard_state, streams=True)
            if folder.manifest is not None and folder.manifest.batch is not None and batch <= folder.manifest.batch:
                return
            folder.discard()
            packets.persist()
            try:
                self._write(run, packets, batch)
            finally:
                packets.unpersist()
                folder.discard()

    def _write(self, run: ExportRun, packets: DataFrame, batch: int) -> None:
        run_input = of_rows(packets)
        if not run_input.names:
            return
        # A line that is still being written is ignored.
        keys = None if self._keylog is None else open_key_log(self._keylog, grows=True)
        if keys is not None and run.before:
            keys.take_flaws()  # the first batch has reported them
        # A capture without TCP packets so far has no name yet.
        run.captures = [
            ManifestCapture(run_input.names.get(index, ""), None)
            for index in range(len(run.before), max(run_input.names) + 1)
        ]
        run_input.names = {**dict(enumerate(run.names)), **run_input.names}
        carried = run.carried()
        output = output_of(run.target)
        parallel = parallelism(run_input.spark)
        if not self._checked and runs_elsewhere(run_input.spark):
            check_executors(run_input.spark, output, parallel)
        self._checked = True
        shards = self._shards or len(carried.shards) or parallel
        with SparkRun(run_input, self._options, carried=carried, given=self._given, keys=keys, shards=shards) as stages:
            made = write_files(run.target, output, stages)
            run.commit(made, stages.summary, broken=False, engine="spark", batch=batch)
        self.discard_state = False
