"""Reads the rows of an export that a question needs: of a folder, or of an object store."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, Question, TableReading
from kafkasniff.analysis.sql.question import SqlQuestion
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.runtime.addresses import Location, name_of
from kafkasniff.runtime.confined_files import open_any_folder
from kafkasniff.runtime.export_manifest import FORMAT, MANIFEST, read_manifest
from kafkasniff.runtime.object_store import LocalFile, ObjectStore, RandomFile, is_object_store
from kafkasniff.tables.rows.file_names import is_table_file
from kafkasniff.tables.rows.schemas import TABLES
from kafkasniff.tables.rows.staged import UNDATED, day_of

if TYPE_CHECKING:
    # It imports pyarrow.dataset, which takes a tenth of the start of a command that reads captures only.
    from kafkasniff.analysis.table_file import TableFile

LATER_COLUMNS: Final = {
    "connections": (
        *("protocol", "captured", "tls_handshake_us", "tls_answers", "tls_answer_p50_us", "tls_answer_p99_us"),
        *("tls_answer_max_us", "tls_unanswered_us"),
    ),
    "records": ("key_decoded", "value_decoded"),
    "exchanges": ("sender", "behind_us", "muted_us", "wait_us", "waits_for"),
}
"""Columns that exports of earlier releases lack; they are null there."""
_PAYLOAD: Final = frozenset({"key", "value", "headers"})
"""Columns of `records` with payload."""


class Export(msgspec.Struct, frozen=True):
    """An export: the files of each table."""

    name: str
    """Path of the folder, or address without secrets."""
    tables: Mapping[str, tuple[str, ...]]
    """Paths of their files in the export."""
    location: Location
    has_payload: bool = True
    """False: nulls or hashes replace keys and values."""
    has_bodies: bool = True
    """False: it contains only headers, and values from bodies are null."""
    has_json: bool = True
    """False: the columns `request_body` and `response_body` are null."""

    @classmethod
    def open(cls, folder: str) -> Self:
        """The export in a folder, or at an address in an object store. Raises CaptureError if there is none."""
        location = Location.of(folder)
        name = name_of(folder)
        try:
            text = read_manifest(folder)
        except FileNotFoundError:
            is_empty = is_object_store(folder) or os.path.isdir(location.path)
            reason = f"it has no {MANIFEST}" if is_empty else "there is no such folder"
            raise CaptureError(f"{name} is not an export: {reason} (kafkasniff export makes one)") from None
        except NotADirectoryError:
            raise CaptureError(f"{name} is a file, not an export (kafkasniff export makes one)") from None
        except OSError as error:
            raise CaptureError(f"cannot read {name}: {error.strerror or error}") from error
        try:
            manifest = json.loads(text)
            if manifest["format"] != FORMAT:
                raise ValueError("it belongs to another program")
            tables = {
                table: tuple(_checked(file["path"], table) for file in entry["files"])
                for table, entry in manifest["tables"].items()
            }
            options = manifest.get("options", {})
            has_payload = options.get("payload", {}).get("form", "shown") == "shown"
            has_bodies = not options.get("headers", False)
            has_json = has_bodies and bool(options.get("bodies", True))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CaptureError(f"{name} is not an export: its {MANIFEST} is invalid ({error})") from None
        return cls(name, tables, location, has_payload, has_bodies, has_json)

    def missing(self, question: Question[Any]) -> list[str]:
        """The missing tables of a question, or those without the needed keys and values, that it can do without.

        Raises UsageError if it cannot.
        """
        left_out = missing_tables(self.tables, question)
        reading = question.reads().get("records")
        if self.has_payload or reading is None or "records" in left_out or _PAYLOAD.isdisjoint(reading.columns):
            return left_out
        if not reading.optional:
            raise UsageError(
                f"{question.name} needs keys and values, which {self.name} does not have "
                "(it was exported with --no-payload or --hash-payload)"
            )
        return [*left_out, "records"]

    def files(self, table: str, since_ns: int | None = None, until_ns: int | None = None) -> list[str]:
        """The files of a table that may have rows within some times."""
        low, high = (None if one is None else _date(one) for one in (since_ns, until_ns))
        return [
            path
            for path in self.tables.get(table, ())
            # Rows of any time may be among those without a date (`exports.finalise`).
            if (date := _partition(path)) in {None, day_of(UNDATED)}
            or ((low is None or low <= date) and (high is None or date <= high))
        ]

    def start_ns(self) -> int | None:
        """Time of the first exchange, from the files' statistics; None if none has a time."""
        found: list[int] = []
        for path, file in self._opened("exchanges", self.tables.get("exchanges", ())):
            with _readable(path):
                least = file.minimum("time_ns")
            if least is not None:
                found.append(least)
        return min(found, default=None)

    def elsewhere(self) -> Self:
        """The export for another process, which may have another working directory; without its files (`only`)."""
        location = self.location.at(os.path.abspath(self.location.path)) if self.location.is_local else self.location
        return msgspec.structs.replace(self, location=location, tables={})

    def only(self, table: str, file: str) -> Self:
        """The export with one file of a table, and nothing else."""
        return msgspec.structs.replace(self, tables={table: (file,)})

    def path_of(self, file: str) -> str:
        """The whole path of a file, or its address without secrets."""
        return f"{self.name.rstrip('/')}/{file}"

    def _opened(self, table: str, files: Sequence[str]) -> Iterator[tuple[str, TableFile]]:
        """Files of a table and their whole paths, each open until the next is requested.

        Raises CaptureError if one cannot be read.
        """
        from kafkasniff.analysis.table_file import TableFile

        with contextlib.ExitStack() as stack:
            with _readable(self.name):
                opened = self._opener(stack)
            for path in files:
                whole = self.path_of(path)
                with _readable(whole):
                    file = TableFile(opened(path), table)
                with contextlib.closing(file):
                    yield whole, file

    def _opener(self, stack: contextlib.ExitStack) -> Callable[[str], RandomFile]:
        """Opens files; `stack` closes what it needs."""
        if not self.location.is_local:
            return ObjectStore(self.location).open
        folder = stack.enter_context(contextlib.closing(open_any_folder(self.location.path)))
        return lambda path: LocalFile(folder.below(*path.split("/")).open_to_read())

    def batches(
        self, table: str, reading: TableReading, since_ns: int | None = None, until_ns: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a table: the given columns, APIs and times, bounds included.

        Files of other dates are not opened, and row groups that statistics exclude are not read. Raises UsageError if a
        column is missing, CaptureError if a file cannot be read.
        """
        files = self.files(table, since_ns, until_ns)
        if not files:
            return
        from kafkasniff.analysis.table_file import RowSelection

        schema: pa.Schema | None = None
        selection = RowSelection()
        later: list[str] = []
        for path, file in self._opened(table, files):
            if schema is None:
                schema = file.schema
                later = [name for name in LATER_COLUMNS.get(table, ()) if name not in schema.names]
                missing = [name for name in reading.columns if name not in (*schema.names, *later)]
                if missing:
                    raise UsageError(
                        f"the table {table} of {self.name} has no column {missing[0]}: another version wrote it"
                    )
                selection = RowSelection(reading.apis, since_ns, until_ns, "time_ns" in schema.names)
            there = [name for name in reading.columns if name not in later]
            rows = file.batches(there, selection, schema)
            while True:
                with _readable(path):
                    batch = next(rows, None)
                if batch is None:
                    break
                for name in later:
                    batch = batch.append_column(name, pa.nulls(batch.num_rows, TABLES[table].field(name).type))
                yield batch


class _Span(msgspec.Struct, frozen=True):
    """The rows of an export within some times."""

    export: Export
    since_ns: int | None
    until_ns: int | None

    @property
    def tables(self) -> Mapping[str, object]:
        return self.export.tables

    def batches(self, table: str, reading: TableReading, /) -> Iterator[pa.RecordBatch]:
        return self.export.batches(table, reading, self.since_ns, self.until_ns)


def answer(
    export: Export, question: Question[Any], since_ns: int | None = None, until_ns: int | None = None
) -> list[str]:
    """Give a question the rows of an export. Returns the optional tables that are missing (`Export.missing`).

    Raises UsageError if a required table or payload is missing, CaptureError if a file cannot be read.
    """
    left_out = export.missing(question)
    if isinstance(question, SqlQuestion):
        question.ask([_Span(export, since_ns, until_ns)])
        return left_out
    assert isinstance(question, Accumulator)
    for table, reading in question.reads().items():
        if table not in left_out:
            for batch in export.batches(table, reading, since_ns, until_ns):
                question.update(batch, table)
    return left_out


def missing_tables(tables: Mapping[str, Any], question: Question[Any]) -> list[str]:
    """Optional tables of a question that are missing. Raises UsageError if a required one is missing."""
    missing = [table for table in question.reads() if table not in tables]
    for table in missing:
        if not question.reads()[table].optional:
            has = ", ".join(tables) or "none"
            raise UsageError(f"{question.name} needs the table {table}, which the export does not have (it has {has})")
    return missing


class _readable:  # noqa: N801 - a context manager, used like a function
    """Turns exceptions for files that are missing, damaged or over their bounds into CaptureError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError | ValueError | pa.ArrowException):
            reason = " ".join(str(error).split())
            raise CaptureError(f"cannot read {self._path}: {reason}") from error


def _checked(path: str, table: str) -> str:
    """A file that a manifest names; it must belong to the table."""
    if not is_table_file(path, table):
        raise ValueError(f"{path!r} is not a file of {table}")
    return path


def _partition(path: str) -> str | None:
    """The date in a file's path; None if it has none."""
    return next((part.removeprefix("date=") for part in path.split("/") if part.startswith("date=")), None)


def _date(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d")
