"""Parquet: `DIR/exchanges/date=YYYY-MM-DD/part-NNNNN.parquet` and a manifest, whole or not at all.

All files are written under `DIR/.partial` and moved into place on `close()`: first the table's folder, the manifest
last, each with one rename. So readers that honour the manifest never see half an export, and a killed one leaves only
`.partial`, which the next export into the same folder removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson
import pyarrow as pa
from pyarrow import parquet as pq

import kafkasniff
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.model import Exchange, Message
from kafkasniff.rows import EXCHANGES, SCHEMA_VERSION, ExchangeRows, capture_name
from kafkasniff.sinks.jsonl import FLOAT_APIS, BytesForm, body_json, json_default

__all__ = ["ROW_GROUP_BYTES", "ROW_GROUP_ROWS", "ParquetSink"]

ROW_GROUP_ROWS: Final = 65_536
"""Rows of a row group: enough for good compression, few enough to hold back in memory."""
ROW_GROUP_BYTES: Final = 64 << 20
"""Estimated bytes of rows held back, over all dates together, before they are written."""
OPEN_DATES: Final = 8
"""Files open at a time. Captures run forward in time, so more are open only where their clocks are wrong."""
FILE_MODE: Final = 0o600
"""Exports hold what was said on the wire: for the owner only, until he decides otherwise."""
COMPRESSION: Final = "zstd"

_PARTIAL: Final = ".partial"
_MANIFEST: Final = "manifest.json"
_TABLE: Final = "exchanges"
_DAY: Final = 86_400 * 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Part:
    """One file that is being written: its writer and the rows that wait for their row group."""

    def __init__(self, path: Path, rows: ExchangeRows) -> None:
        self.path = path
        self.rows = rows
        self.written = 0
        # Created here, not by Arrow, so that the mode is right from the first moment.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        metadata = {"kafkasniff.schema_version": str(SCHEMA_VERSION), "kafkasniff.version": kafkasniff.__version__}
        self._writer = pq.ParquetWriter(
            path,
            EXCHANGES.with_metadata({**metadata, "kafkasniff.table": _TABLE}),
            compression=COMPRESSION,
            write_statistics=True,
        )

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if len(self.rows):
            batch = self.rows.take()
            self._writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
            self.written += batch.num_rows

    def close(self) -> None:
        self.flush()
        self._writer.close()


class ParquetSink:
    """Writes the table `exchanges` of what an inspector yields into a folder that holds no export yet.

    `bodies`: fill the columns `request_body` and `response_body`, else both are null; `form`: how bytes stand in them.
    Raises `UsageError` where the folder holds an export or a folder `exchanges` of another origin, or is being exported
    to; `OutputError` where it cannot be written. As a context manager it closes, or discards when an exception passes.
    """

    def __init__(self, directory: str | os.PathLike[str], *, bodies: bool = True, form: BytesForm = "auto") -> None:
        self.directory = Path(directory)
        self._partial = self.directory / _PARTIAL
        self._body_json = partial(_body_json, form=form) if bodies else None
        self._parts: OrderedDict[str, _Part] = OrderedDict()
        self._files: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._captures: dict[str, None] = {}
        self._closed = False
        self._moved = False
        self.rows = 0
        """Rows taken so far."""
        with self._output():
            self.directory.mkdir(parents=True, exist_ok=True)
            if (self.directory / _MANIFEST).exists():
                raise UsageError(f"{self.directory} already holds an export; name a new folder")
            self._partial.mkdir(exist_ok=True)
            self._lock = os.open(self._partial, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._take_over()
        except BaseException:
            os.close(self._lock)
            raise

    def _take_over(self) -> None:
        """Own `.partial`, empty: what a killed export left in it is removed, and what that had moved out of it."""
        with self._output():
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another export is writing into {self.directory}") from None
            table = self.directory / _TABLE
            if table.exists():
                # Moved there by an export that was killed before its manifest followed; else it is none of ours.
                if not (self._partial / _MANIFEST).exists():
                    raise UsageError(f"{table} is not part of an export; name a new folder")
                shutil.rmtree(table)
            for left in self._partial.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()

    @contextlib.contextmanager
    def _output(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"cannot write {self.directory}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def write(self, event: object) -> None:
        """Take an event; only exchanges become rows. Raises OutputError."""
        if not isinstance(event, Exchange):
            return
        with self._output():
            part = self._part(_date(event))
            part.rows.append(event)
            self.rows += 1
            for message in (event.request, event.response):
                if message is not None and message.capture is not None:
                    self._captures[message.capture] = None
            if len(part.rows) >= ROW_GROUP_ROWS:
                part.flush()
            elif sum(one.rows.size for one in self._parts.values()) >= ROW_GROUP_BYTES:
                for one in self._parts.values():
                    one.flush()

    def _part(self, date: str) -> _Part:
        part = self._parts.get(date)
        if part is not None:
            self._parts.move_to_end(date)
            return part
        if len(self._parts) >= OPEN_DATES:
            self._finish(self._parts.popitem(last=False)[1])
        folder = self._partial / _TABLE / f"date={date}"
        folder.mkdir(parents=True, exist_ok=True)
        number = self._numbers.get(date, 0)
        self._numbers[date] = number + 1
        part = self._parts[date] = _Part(folder / f"part-{number:05}.parquet", ExchangeRows(self._body_json))
        return part

    def _finish(self, part: _Part) -> None:
        part.close()
        path = part.path.relative_to(self._partial).as_posix()
        self._files.append({"path": path, "rows": part.written, "bytes": part.path.stat().st_size})

    def close(self) -> None:
        """Finish all files and move them into place, the manifest last. Raises OutputError. Again: does nothing."""
        if self._closed:
            return
        try:
            with self._output():
                while self._parts:
                    self._finish(self._parts.popitem(last=False)[1])
                manifest = self._partial / _MANIFEST
                with open(os.open(manifest, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as stream:
                    stream.write(self._manifest())
                if self._files:
                    (self._partial / _TABLE).rename(self.directory / _TABLE)
                    self._moved = True
                manifest.rename(self.directory / _MANIFEST)
                self._partial.rmdir()
        except BaseException:
            self.discard()
            raise
        self._closed = True
        os.close(self._lock)

    def _manifest(self) -> bytes:
        manifest = {
            "format": "kafkasniff-export",
            "schema_version": SCHEMA_VERSION,
            "version": kafkasniff.__version__,
            "engine": "local",
            "captures": [capture_name(name) for name in self._captures],
            "tables": {_TABLE: {"rows": self.rows, "files": sorted(self._files, key=lambda file: str(file["path"]))}},
        }
        return orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def discard(self) -> None:
        """Give the export up and remove what was written. After `close()`: does nothing."""
        if self._closed:
            return
        self._closed = True
        for part in self._parts.values():
            # The file goes anyway; a full disk must not keep the rest from being removed.
            with contextlib.suppress(OSError, pa.ArrowException):
                part.close()
        self._parts.clear()
        if self._moved:
            shutil.rmtree(self.directory / _TABLE, ignore_errors=True)
        shutil.rmtree(self._partial, ignore_errors=True)
        os.close(self._lock)


def _body_json(message: Message, form: BytesForm) -> str:
    """The body as in the JSON lines. Hot: only bodies that can have NaN are walked over."""
    body = message.body
    if body is not None and message.api_key in FLOAT_APIS:
        return body_json(body, form)
    return orjson.dumps(body, default=json_default(form)).decode()


def _date(exchange: Exchange) -> str:
    """UTC date of the exchange's `time`; 1970-01-01 where the capture has none."""
    seen = exchange.request if exchange.request is not None else exchange.response
    nanoseconds = None if seen is None else seen.time_ns
    return _day((nanoseconds or 0) // _DAY)


@lru_cache(maxsize=64)
def _day(number: int) -> str:
    return (_EPOCH + timedelta(days=number)).strftime("%Y-%m-%d")
