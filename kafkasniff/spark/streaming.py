"""Streams into an export: captures that are being written, as tables that grow by the micro-batch.

    packets = spark.readStream.format("kafkasniff").load("/var/captures")
    query = decode_stream(packets, "tables", trigger={"processingTime": "1 minute"})

Each micro-batch is a run into the folder, as `export` makes one: it begins with the state that the last one left of
every shard (segments held back, halves of frames, requests without a response), and leaves its own. Nothing is kept in
Spark's state store, since the folder keeps it: rows and state become visible together, by the rename of the manifest,
which holds the number of the batch. A batch that is made again after a kill finds it there and does nothing, or finds
what was before it: each row is there once, and no file that the manifest does not name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.capture.key_log_file import open_key_log
from kafkasniff.confined import open_own_folder
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.exports.beginning import check_options, read_carried
from kafkasniff.exports.captures import CaptureFile
from kafkasniff.exports.folder import ExportFolder, local_folder
from kafkasniff.exports.options import ExportOptions
from kafkasniff.rows import TABLE_NAMES
from kafkasniff.spark.export import write_run
from kafkasniff.spark.keys import TaskKeys
from kafkasniff.spark.pipeline import make_options
from kafkasniff.spark.run import Run, parallelism, survey
from kafkasniff.spark.tables import PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["CHECKPOINT", "decode_stream"]

CHECKPOINT: Final = ".checkpoint"
"""In the folder of the export: what Spark knows of the stream. It belongs to these tables and no others."""


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

    `packets`: of `spark.readStream.format("kafkasniff")`, all columns. The folder is a new one, or that of the same
    stream, which goes on then. Options are those of `pipeline.decode`; the key log is read anew for each batch, since
    it may grow. `trigger`: as `DataStreamWriter.trigger` takes it; `discard_state`: do not resume what the last batch
    before this query left, so that rows of connections that were open then stay as they are. The driver and the
    executors need the folder under the same path.

    Raises UsageError where a column is missing, a table is none, the key log cannot be read, or the folder is a URI;
    MissingPartError where there is nothing to decrypt with; UsageError and OutputError where the folder is another
    user's, or what Spark keeps in it leads elsewhere. The query fails with UsageError where the folder holds something
    else.
    """
    missing = {*PIPELINE, "capture"} - set(packets.columns)
    if missing:
        raise UsageError(f"packets need the columns {', '.join(sorted(missing))}, too")
    options = make_options(tables, bodies=bodies, records=records, ports=ports, show_secrets=show_secrets)
    keys = None if keylog is None else Path(keylog).absolute()
    if keys is not None:
        TaskKeys(open_key_log(keys))  # what is wrong with it is told here, not by the query
    batches = _Batches(local_folder(directory).absolute(), options, dict(topic_ids or {}), keys, shards)
    batches.discard_state = discard_state
    _check_checkpoint(batches.directory)
    writer = packets.writeStream.foreachBatch(batches.write)
    writer = writer.option("checkpointLocation", str(batches.directory / CHECKPOINT))
    return writer.trigger(**(trigger or {"processingTime": "1 minute"})).start()


def _check_checkpoint(directory: Path) -> None:
    """Spark writes its checkpoint by path. Raises UsageError where that leads elsewhere."""
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
        self._parallel = 0
        self.discard_state = False
        """The next batch does not resume what the last one left."""

    def write(self, packets: DataFrame, batch: int) -> None:
        """Take a micro-batch into the export, if it is not there yet."""
        with ExportFolder(self.directory) as folder:
            manifest = folder.manifest
            if manifest is not None:
                if manifest.batch is None:
                    raise UsageError(f"{self.directory} is no stream's export; name a new folder")
                check_options(manifest, self._options, self.directory)
                if batch <= manifest.batch:
                    return
            folder.discard()
            packets.persist()
            try:
                self._write(folder, packets, batch)
            finally:
                packets.unpersist()
                folder.discard()

    def _write(self, folder: ExportFolder, packets: DataFrame, batch: int) -> None:
        packets, found, end_clock, size, captured = survey(packets)
        if not found:
            return
        # A line that is being written is none yet.
        keys = None if self._keylog is None else open_key_log(self._keylog, grows=True)
        if keys is not None and folder.manifest is not None:
            keys.take_flaws()  # the first batch has told them
        known = [] if folder.manifest is None else folder.manifest.captures
        # One that had no TCP packets yet has no name yet.
        new = [CaptureFile(found.get(index, ""), None) for index in range(len(known), max(found) + 1)]
        names = {**dict(enumerate(one.name for one in known)), **found}
        carried = read_carried(folder, discard=self.discard_state)
        self._parallel = self._parallel or parallelism(packets.sparkSession)
        with Run(
            packets,
            self._options,
            names=names,
            end_clock=end_clock,
            size=size,
            carried=carried,
            given=self._given,
            keys=keys,
            captured=captured,
            shards=self._shards or len(carried.shards) or self._parallel,
            parallel=self._parallel,
        ) as run:
            write_run(folder, run, new, batch=batch, goes_on=not self.discard_state)
        self.discard_state = False
